"""The lists of a vocabulary, decoded and checked: texts of tokens, the id of each, pairs to merge."""

from ember.tokenizer.vocabulary import Vocabulary


def texts_of(vocabulary: Vocabulary) -> list[str]:
    """Return all tokens as text; raises TokenizerError for one that is no UTF-8."""
    try:
        return [token.decode() for token in vocabulary.tokens]
    except UnicodeDecodeError as error:
        token = vocabulary.tokens[:].index(error.object)
        raise vocabulary.error("tokens", f"token {token}, {error.object[:40]!r}, is not UTF-8") from None


def unique_ids(vocabulary: Vocabulary, texts: list[str]) -> dict[str, int]:
    """Return the id of each spelling; empty ones, which no text gives, are left out."""
    ids = {text: index for index, text in enumerate(texts)}
    if len(ids) < len(texts):
        first: dict[str, int] = {}
        for index, text in enumerate(texts):
            if text and first.setdefault(text, index) != index:
                what = f"{text[:40]!r} stands twice, as token {first[text]} and as {index}; each must be unique"
                raise vocabulary.error("tokens", what)
    ids.pop("", None)
    return ids


def merge_pairs(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Return the merges, best first; of one that stands twice the first counts, as in llama.cpp."""
    lines = dict.fromkeys(vocabulary.merges or ())
    try:
        pairs = [tuple(line.decode().split(" ")) for line in lines]
    except UnicodeDecodeError as error:
        raise vocabulary.error("merges", f"{error.object[:40]!r} is not UTF-8") from None
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            what = f"{' '.join(pair)[:80]!r} is not a pair; two spellings with a space between them are expected"
            raise vocabulary.error("merges", what)
    return pairs  # type: ignore[return-value]  # each has just been seen to be a pair


def check_merges(vocabulary: Vocabulary, ids: dict[str, int], pairs: list[tuple[str, str]]) -> None:
    """Raise TokenizerError for a merge of what is no token, or into none."""
    for index, (left, right) in enumerate(pairs):
        if left not in ids or right not in ids or left + right not in ids:
            absent = next(spelling for spelling in (left, right, left + right) if spelling not in ids)
            what = f"merge {index}, {left!r} with {right!r}, needs {absent!r}, which is no token; the lists differ"
            raise vocabulary.error("merges", f"{what}: convert the model again")
