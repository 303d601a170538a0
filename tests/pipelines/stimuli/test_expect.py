"""Raw, trimmed and canonical agreement are three answers."""

import pytest

from pipelines.stimuli.expect import compare


@pytest.mark.parametrize(
    ("expected", "produced", "mode", "raw", "trimmed"),
    [
        (" كَاتِب", " كَاتِب", "exact", True, True),
        (" كَاتِب", "كَاتِب", "exact", False, True),
        ("kataba", " kataba\n", "exact", False, True),  # E03
        ("kataba", "kataba x", "exact", False, False),
        ("kataba", "kataba x", "prefix", True, True),
        ("kataba", " kataba x", "prefix", False, True),
        ("kataba", "a kataba", "prefix", False, False),
        ("kataba", "a kataba b", "contains", True, True),
        ("kataba", "", "contains", False, False),
        (" kataba", "kataba", "contains", False, True),
    ],
)
def test_modes(expected, produced, mode, raw, trimmed):
    match = compare(expected, produced, mode)
    assert (match.raw, match.trimmed) == (raw, trimmed)
    assert match.correct is trimmed


def test_equal_to_the_eye_is_not_exact():
    """E12: shadda before the vowel, and after it."""
    match = compare("ش\u0651\u064e", "ش\u064e\u0651", "exact")
    assert (match.raw, match.trimmed, match.nfc, match.correct) == (False, False, True, False)
    assert compare("\u0623", "\u0627\u0654", "exact").nfc is True
    assert compare("\ufefb", "\u0644\u0627", "exact").nfc is False  # NFC does not unify the ligature
