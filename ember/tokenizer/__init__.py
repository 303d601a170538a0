"""Text to token ids and back, from nothing but a GGUF's own metadata.

    tokenizer = load_tokenizer("model.gguf")
    encoding = tokenizer.encode("كتب الطالب")      # encoding.ids, encoding.byte_offsets
    tokenizer.decode(encoding.ids)

Ids equal llama.cpp's. Text is taken as it is: nothing is normalised, stripped or guessed, and the spelling of a control
token in it is ordinary text unless `parse_special=True`. Offsets count bytes of the text's UTF-8 and tile it.
"""

from ember.tokenizer.encoding import Encoding
from ember.tokenizer.load import load_tokenizer
from ember.tokenizer.tokenizer import Tokenizer

__all__ = ["Encoding", "Tokenizer", "load_tokenizer"]
