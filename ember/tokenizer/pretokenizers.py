"""How each `tokenizer.ggml.pre` cuts a text into words before byte pairs are merged, which never happens across a cut.

Names and patterns follow llama.cpp (src/llama-vocab.cpp): a name is here only if that program cuts with the same
pattern, merges by the same rule and has no further rule for it; the recordings in the tests check each against it.

What is a letter or a number follows Unicode 15.1 as llama.cpp's tables do, not the version that the regex engine of the
`tokenizers` package happens to carry: characters that Unicode 16 added are taken out of its classes. All other
characters agree, every code point having been compared.
"""

from dataclasses import dataclass
from typing import Final

from ember.errors import UnsupportedError

UNICODE_VERSION: Final = "15.1"
_NEWER: Final = (
    "1C89-1C8A A7CB-A7CD A7DA-A7DC 105C0-105F3 10D40-10D65 10D6F-10D85 10EC2-10EC4 11380-11389 1138B-1138B 1138E-1138E "
    "11390-113B5 113B7-113B7 113D1-113D1 113D3-113D3 116D0-116E3 11BC0-11BE0 11BF0-11BF9 13460-143FA 16100-1611D "
    "16130-16139 16D40-16D6C 16D70-16D79 18CFF-18CFF 1CCF0-1CCF9 1E5D0-1E5ED 1E5F0-1E5FA"
)
"""Letters and numbers new in Unicode 16."""
_NEW: Final = "".join(rf"\x{{{first}}}-\x{{{last}}}" for first, last in (one.split("-") for one in _NEWER.split()))
LETTER: Final = rf"[\p{{L}}&&[^{_NEW}]]"
NUMBER: Final = rf"[\p{{N}}&&[^{_NEW}]]"
_MARK: Final = rf"[[^\s\p{{L}}\p{{N}}]{_NEW}]"
"""Neither white space nor letter nor number: punctuation, symbols, and vowel signs, which are no letters to Unicode."""
_LEAD: Final = rf"[[^\r\n\p{{L}}\p{{N}}]{_NEW}]"
"""The one character that may be joined to the letters after it: a space, a quote, a vowel sign."""

_GPT2: Final = rf"'s|'t|'re|'ve|'m|'ll|'d| ?{LETTER}+| ?{NUMBER}+| ?{_MARK}+|\s+(?!\S)|\s+"
_LLAMA3: Final = (
    # The contractions are spelt out: a case-insensitive group would take U+017F, the long s, for an s.
    rf"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|{_LEAD}?{LETTER}+|{NUMBER}{{1,3}}"
    rf"| ?{_MARK}+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2: Final = _LLAMA3.replace("{1,3}", "")


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a text becomes words."""

    name: str
    patterns: tuple[str, ...]
    """Regular expressions, applied in turn, each to the pieces that the one before it left."""
    ignore_merges: bool = False
    """Whether a word that is in the vocabulary is that token, whatever the merges would make of it."""
    add_bos: bool = False
    """Whether a BOS is added where the file does not say."""


_KINDS: Final = (
    (PreTokenizer("gpt-2", (_GPT2,)), ("phi-2", "mpt", "olmo", "jais")),
    (
        PreTokenizer("llama-bpe", (_LLAMA3,), ignore_merges=True, add_bos=True),
        ("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    ),
    (
        PreTokenizer("smollm", (NUMBER, _GPT2)),
        ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    ),
    (PreTokenizer("qwen2", (_QWEN2,)), ("deepseek-r1-qwen", "megrez", "stablelm2")),
)
PRE_TOKENIZERS: Final = {name: kind for kind, aliases in _KINDS for name in (kind.name, *aliases)}
"""Every name that is understood; several names may share a PreTokenizer."""


def pre_tokenizer(name: object, origin: str) -> PreTokenizer:
    """Return the pre-tokenizer that a file names; `origin` is the file. Raises UnsupportedError if it is not known."""
    supported = ", ".join(sorted(PRE_TOKENIZERS))
    if name is None:
        raise UnsupportedError(
            f"{origin}: tokenizer.ggml.pre: absent, so how text is cut into words is unknown; Ember does not guess; "
            f"supported: {supported}; convert the model again with a current llama.cpp, which writes it"
        )
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise UnsupportedError(
            f"{origin}: tokenizer.ggml.pre: {name!r} is not supported; supported: {supported}; with another rule the "
            "token ids would silently be others"
        )
    return PRE_TOKENIZERS[name]
