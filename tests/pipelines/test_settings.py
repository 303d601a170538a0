"""What messages show, and which words are near."""

import pytest

from pipelines.settings import closest, show


@pytest.mark.parametrize(
    ("given", "source", "shown"),
    [
        ("كتاب", None, "'كتاب'"),
        ("a\x1b[31m", None, "'a\\x1b[31m'"),
        (10, "012", "012"),
        (True, "TRUE", "TRUE"),
        (3, None, "3"),
        (None, "~", "nothing"),
        ([], None, "an empty list"),
        ([1, 2], None, "[1, 2]"),
        ([1] * 9, None, "a list of 9"),
        ({}, None, "an empty mapping"),
        ({"a": 1}, None, "{'a': 1}"),
        ({"a": 1, "b": 2}, None, "a mapping of 2 keys"),
        ("x" * 100, None, "'" + "x" * 59 + "…"),
    ],
)
def test_show(given, source, shown):
    assert show(given, source) == shown


def test_closest():
    assert closest("after_layr", ["before_layer", "after_layer"]) == "; did you mean 'after_layer'?"
    assert closest("zzz", ["after_layer"]) == ""
    assert closest("x", []) == ""
