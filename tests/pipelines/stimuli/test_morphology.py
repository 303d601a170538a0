"""Root and pattern against forms that stand in dictionaries and grammars, checked by hand."""

import unicodedata
from pathlib import Path

import pytest

from pipelines.stimuli.morphology import apply

FORMS = [
    tuple(line.split())
    for line in (Path(__file__).parent / "forms.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(("root", "pattern", "surface"), FORMS, ids=lambda value: str(value))
def test_forms_of_dictionaries(root: str, pattern: str, surface: str) -> None:
    assert apply(root, pattern).surface == unicodedata.normalize("NFC", surface)
