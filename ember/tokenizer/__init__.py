"""Text to token ids and back, from nothing but a GGUF's own metadata.

    tokenizer = load_tokenizer("model.gguf")
    encoding = tokenizer.encode("كتب الطالب")      # encoding.ids, encoding.byte_offsets
    tokenizer.decode(encoding.ids)

Ids equal llama.cpp's. Text is taken as it is: nothing is normalised, stripped or guessed, and the spelling of a control
token in it is ordinary text unless `parse_special=True`. Offsets count bytes of the text's UTF-8 and tile it.

Where Ember does other than llama.cpp, it is to guess less: `token_type` alone says what is special, whereas llama.cpp
goes by the name of some tokens (`</s>`, `<|im_end|>`); a character with a byte that no token stands for is refused, not
dropped; a BOS that is already there is not doubled; an absent BOS or EOS is none, not id 11. From Hugging Face's
tokenizers it differs where these normalise (Qwen2's turns text into NFC) or know more of Unicode. How often each of
these shows is counted in docs/explanation/tokenizers.md.
"""

from ember.tokenizer.encoding import Encoding
from ember.tokenizer.load import load_tokenizer
from ember.tokenizer.tokenizer import Tokenizer

__all__ = ["Encoding", "Tokenizer", "load_tokenizer"]
