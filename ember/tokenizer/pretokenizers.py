"""How each `tokenizer.ggml.pre` cuts a text into words before byte pairs are merged, which never happens across a cut.

Names and patterns follow llama.cpp (src/llama-vocab.cpp): a name is here only if that program cuts with the same
pattern, merges by the same rule and has no further rule for it; the recordings in the tests check each against it.

`unicode_classes` says what is a letter or a number, not the regex engine, whose tables change with its version.
"""

from dataclasses import dataclass
from typing import Final

from ember.errors import UnsupportedError
from ember.tokenizer.unicode_classes import LETTERS, NUMBERS

LETTER: Final = f"[{LETTERS}]"
NUMBER: Final = f"[{NUMBERS}]"
_MARK: Final = rf"[^\s{LETTERS}{NUMBERS}]"
"""Neither white space nor letter nor number: punctuation, symbols, and vowel signs, which are no letters to Unicode."""
_LEAD: Final = rf"[^\r\n{LETTERS}{NUMBERS}]"
"""The one character that may be joined to the letters after it: a space, a quote, a vowel sign."""

_GPT2: Final = rf"'s|'t|'re|'ve|'m|'ll|'d| ?{LETTER}+| ?{NUMBER}+| ?{_MARK}+|\s+(?!\S)|\s+"
_LLAMA3: Final = (
    # The contractions are spelt out: a case-insensitive group would take U+017F, the long s, for an s.
    rf"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|{_LEAD}?{LETTER}+|{NUMBER}{{1,3}}"
    rf"| ?{_MARK}+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2: Final = _LLAMA3.replace("{1,3}", "")
_MINICPM5: Final = _LLAMA3.replace("{1,3}", "+")
_SEED_CODER: Final = _QWEN2.replace(rf" ?{_MARK}+[\r\n]*", rf" ?{_MARK}+")
_NOT_SMALL: Final = rf"(?:(?![a-z]){LETTER})"
_NOT_CAPITAL: Final = rf"(?:(?![A-Z]){LETTER})"
_TEKKEN: Final = (
    # Words end where small letters are followed by capitals; letters that are not ASCII count as both.
    rf"{_LEAD}?{_NOT_SMALL}*{_NOT_CAPITAL}+|{_LEAD}?{_NOT_SMALL}+{_NOT_CAPITAL}*|{NUMBER}"
    rf"| ?{_MARK}+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_VIKING: Final = r" ?[^(\s|.,!?…。，、।۔،)]+"


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
    caution: str = ""
    """What a run's record must say of it."""


_CUTS_AT_MARKS: Final = (
    "words are cut at vowel signs, as in llama.cpp, which vocalised Arabic feels; the tokenizer that such models were "
    "trained with does not cut there: see what `ember tokenize --compare` says"
)
_KINDS: Final = (
    (
        PreTokenizer("gpt-2", (_GPT2,)),
        ("phi-2", "mpt", "olmo", "jais", "a.x-4.0", "mellum", "trillion", "granite-docling"),
    ),
    (
        PreTokenizer("llama-bpe", (_LLAMA3,), ignore_merges=True, add_bos=True),
        ("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    ),
    (
        PreTokenizer("smollm", (NUMBER, _GPT2)),
        ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    ),
    (PreTokenizer("qwen2", (_QWEN2,)), ("deepseek-r1-qwen", "megrez", "stablelm2", "kormo", "f2llmv2")),
    (PreTokenizer("smaug-bpe", (_LLAMA3,)), ()),
    (PreTokenizer("minicpm5", (f"{NUMBER}{{1,3}}", _MINICPM5), ignore_merges=True), ()),
    (PreTokenizer("seed-coder", (_SEED_CODER,)), ()),
    (PreTokenizer("tekken", (_TEKKEN,), ignore_merges=True, add_bos=True, caution=_CUTS_AT_MARKS), ()),
    (PreTokenizer("viking", (_VIKING, NUMBER)), ()),
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
