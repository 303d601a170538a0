"""Stimuli from a treebank: one for each word, its sentence as prompt, its place in bytes as target.

A word that is written together with others (`3-4`) has its own letters as target where the forms of the words make up
the token's; else, as in لل for ل + ال, the whole token; the label `span` says which. Words that are not in the text
(`5.1`) give no stimulus and are counted.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.stimuli.conllu import NONE, Sentence, Token, Word, read_sentences
from pipelines.stimuli.drafts import fail
from pipelines.stimuli.readers import Row, Table, decoded

OWN: Final = (
    "prompt", "id", "target", "sentence", "token", "head",
    "form", "lemma", "upos", "xpos", "deprel", "span",
)  # fmt: skip
"""Columns beside the features, which are called as in the treebank, and `misc.NAME`."""
UNLABELLED: Final = ("prompt", "id", "target", "token", "head")
SPELT: Final = frozenset({"form", "lemma"})
MISC: Final = "misc."


@dataclass(frozen=True, slots=True)
class _Text:
    """A sentence's text with the byte span of each of its tokens."""

    text: str
    spans: tuple[tuple[int, int], ...]
    rebuilt: bool
    """From forms and SpaceAfter, there being no `# text`."""


def read_treebank(path: Path) -> Table:
    """Read a CoNLL-U file as a table of words. Raises ConfigError listing every line that is wrong."""
    sentences = read_sentences(path, decoded(path))
    rows: list[tuple[str, Row]] = []
    spans: list[tuple[int, int]] = []
    problems: list[str] = []
    rebuilt = 0
    names = _names(path, sentences, problems)
    for name, sentence in zip(names, sentences, strict=True):
        found = _locate(sentence)
        if isinstance(found, str):
            problems.append(f"{path}:{found}")
            continue
        rebuilt += found.rebuilt
        for word, span, kind in _words(sentence, found):
            if clash := sorted(_pairs(word.cells[3]).keys() & set(OWN)):
                problems.append(f"{path}:{word.line}: the feature {clash[0]!r} has the name of a column; rename it")
            rows.append((f"{path}:{word.line}", _row(name, found.text, word, span, kind)))
            spans.append(span)
    fail(problems)
    columns = tuple(dict.fromkeys((*OWN, *(column for _, row in rows for column in row))))
    unlabelled = frozenset({*UNLABELLED, *(column for column in columns if column.startswith(MISC))})
    counts = {
        "sentences": len(sentences),
        "tokens_of_several_words": sum(t.first != t.last for s in sentences for t in s.tokens),
        "empty_nodes_left_out": sum(sentence.empty_nodes for sentence in sentences),
        "texts_rebuilt": rebuilt,
    }
    return Table(path, columns, rows, frozenset(columns), unlabelled, SPELT, spans, counts)


def _names(path: Path, sentences: list[Sentence], problems: list[str]) -> list[str]:
    """Return the id of each sentence: its `# sent_id`, else its place from 1."""
    first: dict[str, Sentence] = {}
    names = [s.comments.get("sent_id") or f"s{number:06d}" for number, s in enumerate(sentences, start=1)]
    for name, sentence in zip(names, sentences, strict=True):
        if first.setdefault(name, sentence) is not sentence:
            where = first[name].line
            problems.append(f"{path}:{sentence.line}: the sentence {name!r} stands twice, first at line {where}")
    return names


def _locate(sentence: Sentence) -> _Text | str:
    """Find every token in the sentence's text, in order; or say at which line one is not there."""
    tokens = sentence.tokens
    text = sentence.comments.get("text")
    rebuilt = not text
    if not text:
        text = "".join(t.form + (" " if t.spaced and t is not tokens[-1] else "") for t in tokens)
    spans = []
    at = byte = 0
    for token in tokens:
        start = at
        while text[start : start + 1].isspace():
            start += 1
        if not text.startswith(token.form, start):
            hint = "; forms of some treebanks are withheld: fill them in first" if token.form == NONE else ""
            rest = text[start : start + 20]
            return f"{token.line}: found the form {token.form!r}, but `# text` goes on with {rest!r}{hint}"
        byte += len(text[at:start].encode())
        size = len(token.form.encode())
        spans.append((byte, byte + size))
        byte, at = byte + size, start + len(token.form)
    if text[at:].strip():
        return f"{sentence.line}: `# text` goes on with {text[at:].strip()[:20]!r} after the last word"
    return _Text(text, tuple(spans), rebuilt)


def _words(sentence: Sentence, found: _Text) -> list[tuple[Word, tuple[int, int], str]]:
    told = []
    for token, (start, end) in zip(sentence.tokens, found.spans, strict=True):
        words = sentence.words[token.first - 1 : token.last]
        whole = len(words) > 1 and "".join(word.form for word in words) != token.form
        at = start
        for word in words:
            size = len(word.form.encode())
            span = (start, end) if whole or len(words) == 1 else (at, at + size)
            told.append((word, span, _kind(token, whole=whole)))
            at += size
    return told


def _kind(token: Token, *, whole: bool) -> str:
    return "word" if token.first == token.last else "several_words" if whole else "part"


def _row(sentence: str, text: str, word: Word, span: tuple[int, int], kind: str) -> Row:
    lemma, upos, xpos, feats, head, deprel, _, misc = word.cells
    own = {"lemma": lemma, "upos": upos, "xpos": xpos, "deprel": deprel, "head": head}
    # A lemma of an underscore is one where the form is; everywhere else an underscore is no value.
    kept = {name: value for name, value in own.items() if value != NONE or (name == "lemma" and word.form == NONE)}
    return {
        "prompt": text,
        "id": f"{sentence}:{word.number}",
        "target": text.encode()[slice(*span)].decode(),
        "sentence": sentence,
        "token": str(word.number),
        "form": word.form,
        "span": kind,
        **kept,
        **_pairs(feats),
        **{MISC + name: value for name, value in _pairs(misc).items()},
    }


def _pairs(cell: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in cell.split("|") if "=" in pair)
