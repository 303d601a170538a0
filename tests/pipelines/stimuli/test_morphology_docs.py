"""docs/morphology.md lists the patterns, rules and gaps that there are.

python -m pytest tests/pipelines/stimuli/test_morphology_docs.py checks; running this file writes the tables.
"""

import doctest
import re
from pathlib import Path

from pipelines.stimuli.morphology import apply
from pipelines.stimuli.patterns import PATTERNS
from pipelines.stimuli.rules import REFUSALS
from pipelines.stimuli.weak import ORDER

PAGE = Path(__file__).parents[3] / "docs/morphology.md"


def with_tables(text: str) -> str:
    tables = {
        "patterns": ["| name | pattern | measure | in Arabic |", "|---|---|---|---|"]
        + [f"| `{n}` | `{p.slots}` | {apply('fʿl', p.slots).surface} | {p.title} |" for n, p in PATTERNS.items()],
        "rules": ["| rule | what it says |", "|---|---|"] + [f"| `{rule.name}` | {rule.why} |" for rule in ORDER],
        "gaps": ["| gap | why |", "|---|---|"] + [f"| `{refusal.name}` | {refusal.why} |" for refusal in REFUSALS],
    }
    for name, lines in tables.items():
        table = "\n".join(lines)
        mark = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = mark.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    return text


def test_the_tables_are_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text


def test_the_examples_give_what_is_shown() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert (results.failed, results.attempted) == (0, 4)


def test_every_named_pattern_has_a_measure() -> None:
    assert len({apply("fʿl", pattern.slots).surface for pattern in PATTERNS.values()}) == len(PATTERNS)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
