"""YAML 1.2 core schema, places of values, and everything that must not get through."""

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.yaml_core import MAX_BYTES, load_yaml, parse_yaml, resolve_plain


def value(text):
    document = parse_yaml(text.encode(), "x.yaml")
    assert document.problems == []
    return document.value


# The table of YAML 1.2.2, 10.3.2, and what 1.1 would have made of the same text.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("012", 12),  # 1.1: 10
        ("0o14", 12),
        ("0x1F", 31),
        ("+12", 12),
        ("-7", -7),
        ("12:30", "12:30"),  # 1.1: 750
        ("1_000", "1_000"),  # 1.1: 1000
        ("0b1", "0b1"),  # 1.1: 1
        ("2001-01-01", "2001-01-01"),  # 1.1: a date
        ("=", "="),
        ("no", "no"),  # 1.1: False
        ("Yes", "Yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("TRUE", True),
        ("tRue", "tRue"),
        ("False", False),
        ("~", None),
        ("null", None),
        ("NULL", None),
        ("nUll", "nUll"),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.5e-1", -0.05),
        (".", "."),
        ("-", "-"),
        (".inf", float("inf")),
        ("-.Inf", float("-inf")),
        (".inF", ".inF"),
        ("0o8", "0o8"),
        ("0xG", "0xG"),
        ("1A2i3", "1A2i3"),
        ("\u0661\u0662", "\u0661\u0662"),  # Arabic-Indic digits are letters here
    ],
)
def test_plain_scalars_follow_the_core_schema(text, expected):
    found = resolve_plain(text)
    assert found == expected
    assert type(found) is type(expected)


def test_nan_is_a_float():
    assert resolve_plain(".nan") != resolve_plain(".nan")


def test_quoted_scalars_are_text():
    assert value("a: '012'\nb: \"no\"\nc: 'null'\nd: |\n  12\n") == {"a": "012", "b": "no", "c": "null", "d": "12\n"}


def test_absent_values_are_null():
    assert value("a:\nb: ~\n") == {"a": None, "b": None}
    assert value("") is None
    assert value("# only a comment\n") is None


@pytest.mark.parametrize(
    ("scalar", "text"),
    [
        ("كلمة  ", "كلمة"),
        ('"كلمة  "', "كلمة  "),
        ("'  كلمة'", "  كلمة"),
        ("|\n  كلمة \n", "كلمة \n"),
        ("|-\n  كلمة \n", "كلمة "),
        (">\n  كلمة\n  أخرى\n", "كلمة أخرى\n"),
        (">-\n  كلمة\n  أخرى", "كلمة أخرى"),
    ],
)
def test_white_space_of_each_scalar_style(scalar, text):
    assert value(f"prompt: {scalar}") == {"prompt": text}


@pytest.mark.parametrize(
    "text",
    [
        "ش\u0651\u064e",  # shadda before fatha: NFC would swap them
        "\u0627\u0654",  # alef + combining hamza
        "\ufefb",  # lam-alef ligature
        "كتـــاب",  # tatweel
        "a\u200f\u200cb",
        "🦙",
        "a\u2028b\u2029c\x85d",  # line ends in YAML 1.1, ordinary characters in 1.2
        "a\u00a0b",
    ],
)
def test_text_arrives_code_point_by_code_point(text):
    assert value(f"a: {text}\nb: '{text}'\nc: \"{text}\"") == {"a": text, "b": text, "c": text}
    assert value(f"a: |\n  {text}\n  {text}\n") == {"a": f"{text}\n{text}\n"}


def test_stand_ins_for_line_separators_never_meet_the_text():
    text = "\U000f0000\u2028\U000f0001"
    assert value(f"a: '{text}'\nb: \"\\U000F0002\\u2028\"") == {"a": text, "b": "\U000f0002\u2028"}


def test_line_separators_count_no_lines():
    assert parse_yaml("a: x\u2028y\nb: 1\n".encode(), "f").mark(("b",)).line == 2


def test_byte_order_mark_is_removed():
    assert value("\ufeffschema: x") == {"schema": "x"}


def test_marks_say_line_column_and_spelling():
    document = parse_yaml(b"a: 1\nb:\n  - x\n  - {c: 012}\n", "f.yaml")
    mark = document.mark(("b", 1, "c"))
    assert (mark.line, mark.column, mark.source) == (4, 9, "012")
    assert document.mark(("b", 1, "absent")).line == 4
    assert document.mark(("absent",)).line == 1
    assert document.key_marks[("b",)].line == 2


def test_duplicate_keys_name_both_lines_and_all_are_listed():
    document = parse_yaml(b"a: 1\nb: 2\na: 3\nb: 4\n", "f.yaml")
    assert document.value == {"a": 1, "b": 2}
    assert [(p.line, p.text) for p in document.problems] == [
        (3, "the key 'a' is already on line 1: remove one of the two"),
        (4, "the key 'b' is already on line 2: remove one of the two"),
    ]


def test_keys_must_be_text():
    problems = parse_yaml(b"1: a\ntrue: b\n~: c\n[x]: d\n'1': e\nno: f\n", "f").problems
    assert [p.line for p in problems] == [1, 2, 3, 4]
    assert "put it in quotes" in problems[0].text


def test_merge_keys_are_refused_and_quoted_ones_are_text():
    assert "merge keys" in parse_yaml(b"<<: {a: 1}", "f").problems[0].text
    assert value("'<<': 1") == {"<<": 1}


def test_aliases_repeat_values():
    assert value("a: &x [1, {b: 2}]\nc: *x") == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("a:\n\tb: 1", "f:2:1", "a tab cannot indent"),
        ("a: [1,\nb: {", "f:2:5", "expected"),
        ("a: b: c", "f:1:5", "in quotes"),
        ("a: 'x", "f:1:6", "unexpected end"),
        ("a: !!python/name:os.system x", "f:1:4", "tags are not allowed"),
        ("a: !local x", "f:1:4", "tags are not allowed"),
        ("a: !!str no", "f:1:4", "tags are not allowed"),
        ("a: *nope", "f:1:4", "undefined alias"),
        ("a: &x [*x]", "f:1:4", "inside what it repeats"),
        ("a\n---\nb", "f:2:1", "another document"),
        ("[" * 1000, "f:1:65", "nested more than 64 deep"),
        ("- " * 1000, "f:1:129", "nested more than 64 deep"),
        ('a: "\\ud800"', "f:1:4", "half a surrogate pair"),
        ('a: "\\udd99\\ud83e"', "f:1:4", "half a surrogate pair"),
        ('a: "\\U00110000"', "f:1:7", "no Unicode character"),
        ('a: "\\UFFFFFFFF"', "f:1:7", "no Unicode character"),
        ("a: \x07", "f:1:4", "U+0007"),
        ("a:\n  b\x00", "f:2:4", "U+0000"),
    ],
)
def test_what_cannot_be_read_names_the_place(text, place, said):
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text.encode(), "f")
    assert str(caught.value).startswith(place)
    assert said in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a: b\nc: \xff", "f:2: byte 8 is 0xff, which is not UTF-8"),
        ("a: b".encode("utf-16"), "looks like UTF-16"),
        (b"a: \xed\xa0\x80", "byte 3 is 0xed"),  # a surrogate in UTF-8 clothes
        (b"a: \xc0\xaf", "byte 3 is 0xc0"),  # overlong
    ],
)
def test_only_strict_utf8(data, said):
    with pytest.raises(ConfigError, match=said):
        parse_yaml(data, "f")


def test_alias_bomb_is_refused_at_once():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    start = time.perf_counter()
    with pytest.raises(ConfigError, match="aliases repeat more than"):
        parse_yaml("\n".join(lines).encode(), "f")
    assert time.perf_counter() - start < 5


def test_missing_and_odd_files(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_yaml(tmp_path)
    big = tmp_path / "big.yaml"
    with big.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ConfigError, match="larger than 2 MiB"):
        load_yaml(big)


# What json.dumps writes is YAML 1.2 (with JSON's own escapes for non-ASCII left out): an independent reading of it.
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abكت ", max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=150)
@given(plain, st.booleans())
@example("🦙", True)  # JSON escapes it as a surrogate pair
def test_json_reads_as_json_does(tree, escaped):
    assert value(json.dumps(tree, ensure_ascii=escaped)) == tree


def outcome(data):
    """What reading gives: a document, or the message of its refusal."""
    try:
        return parse_yaml(data, "f").file + ":"
    except ConfigError as error:
        return str(error)


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_message(text):
    assert outcome(text.encode("utf-8", "surrogatepass")).startswith("f:")


@settings(deadline=None, max_examples=300)
@given(st.text("ab:-?[]{}&*!|>'\"%@`#,\n\t \\<0123.é\x85\u2028", max_size=40))
def test_any_punctuation_is_read_or_refused_with_a_message(text):
    assert outcome(text.encode()).startswith("f:")


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_with_a_message(data):
    assert outcome(data).startswith("f:")
