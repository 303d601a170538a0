"""Words with their morphological analyses, as CAMeL Tools and the CALIMA databases give them, one JSON object a line.

    {"word": "كتب", "analyses": [{"diac": "كَتَب", "lex": "كَتَب", "root": "ك.ت.ب", "pattern": "1َ2َ3", "pos": "verb", …}, …]}

An entry of `analyses` may also be `{"score": …, "analysis": {…}}`, as a disambiguator gives it. Values stay as they
are. Flat tables, with one analysis a row, are read as any other JSON Lines, CSV or TSV.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pipelines.errors import ConfigError
from pipelines.settings import show
from pipelines.stimuli.drafts import fail
from pipelines.stimuli.readers import Row, Table, decoded, read_object

ENTRIES: Final = "analyses"
NESTED: Final = "analysis"
UNLABELLED: Final = frozenset({"analysis"})


def read_analyses(path: Path, which: str) -> Table:
    """Read a row for each word (`only`, `first`) or for each analysis (`each`).

    Words without analysis give no row and are counted. Raises ConfigError listing every line that is wrong; with
    `only`, a word of several analyses is.
    """
    rows: list[tuple[str, Row]] = []
    problems: list[str] = []
    counts = {"words": 0, "words_without_analysis_left_out": 0, "words_of_several_analyses": 0}
    for number, line in enumerate(decoded(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = list(_rows(read_object(line)))
            counts["words"] += 1
            counts["words_without_analysis_left_out"] += not found
            counts["words_of_several_analyses"] += len(found) > 1
            rows += [(f"{path}:{number}", row) for row in _chosen(found, which)]
        except ConfigError as error:
            problems.append(f"{path}:{number}: {error}")
    fail(problems)
    columns = tuple(dict.fromkeys(column for _, row in rows for column in row))
    return Table(path, columns, rows, spare=UNLABELLED, unlabelled=UNLABELLED, counts=counts)


def _rows(line: dict[str, Any]) -> Iterator[Row]:
    entries = line.pop(ENTRIES, None)
    if not isinstance(entries, list) or not isinstance(line.get("word"), str):
        raise ConfigError(f"found no `word` with a list of `{ENTRIES}`, expected both; read flat rows as jsonl")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ConfigError(f"{ENTRIES}: found {show(entry)}, expected a mapping of features")
        inner = entry.get(NESTED)
        features = {**entry, **inner} if isinstance(inner, dict) else entry
        if isinstance(inner, dict) and (twice := sorted((entry.keys() - {NESTED}) & inner.keys())):
            raise ConfigError(f"{twice[0]!r} stands beside an `{NESTED}` and in it; rename one")
        row = {**line, **{key: value for key, value in features.items() if key != NESTED}}
        if clash := sorted(line.keys() & (features.keys() - {NESTED})):
            raise ConfigError(f"{clash[0]!r} stands beside the analyses and in one of them; rename one")
        yield row | {NESTED: str(index)}


def _chosen(found: list[Row], which: str) -> list[Row]:
    if which == "only" and len(found) > 1:
        raise ConfigError(
            f"{found[0]['word']!r} has {len(found)} analyses, expected one; choose with `analyses: first` or `each`, "
            "or disambiguate the file"
        )
    return found if which == "each" else found[:1]
