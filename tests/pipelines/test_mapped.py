"""Arrays and texts in a mapped file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.mapped import ALIGN, map_arrays, write_arrays
from pipelines.texts import MaybeTexts, TextLists, Texts

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def test_what_is_written_is_mapped(tmp_path: Path) -> None:
    given = {
        "numbers": np.arange(7, dtype=np.int32),
        "none": np.zeros((0, 3), np.float32),
        "flags": np.array([True, False]),
        "big": np.arange(6, dtype=">i8").reshape(2, 3),
        "columns": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    }
    write_arrays(tmp_path / "file", given, {"b": [1, None], "a": "كتب"})
    found, told = map_arrays(tmp_path / "file")
    assert told == {"b": [1, None], "a": "كتب"}
    assert found.keys() == given.keys()
    for name, array in given.items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("<")
        assert found[name].flags.aligned
        assert not found[name].flags.writeable
        assert not found[name].size or found[name].ctypes.data % ALIGN == 0


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    array = {"a": np.arange(3)}
    write_arrays(tmp_path / "one", array, {"x": 1, "y": 2})
    write_arrays(tmp_path / "two", array, {"y": 2, "x": 1})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@given(st.lists(WORDS), st.lists(st.none() | WORDS), st.lists(st.lists(WORDS, max_size=3)))
def test_texts_come_back(texts: list[str], maybe: list[str | None], lists: list[list[str]]) -> None:
    there = np.array([text is not None for text in maybe], np.bool_)
    given = MaybeTexts(Texts.of([text or "" for text in maybe]), there)
    arrays = Texts.of(texts).arrays("a") | given.arrays("b") | TextLists.of(lists).arrays("c")
    assert list(Texts.read(arrays, "a")) == texts
    assert list(MaybeTexts.read(arrays, "b")) == maybe
    assert [list(one) for one in TextLists.read(arrays, "c")] == lists
    assert Texts.read(arrays, "a")[1:3] == texts[1:3]
    assert MaybeTexts.read(arrays, "b")[1:3] == maybe[1:3]
    assert TextLists.read(arrays, "c")[1:3] == list(map(tuple, lists[1:3]))
    with pytest.raises(IndexError):
        Texts.read(arrays, "a")[len(texts)]


@pytest.mark.parametrize("damage", ["empty", "magic", "head", "short", "place"])
def test_a_damaged_file_is_an_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "file"
    write_arrays(path, {"a": np.arange(100)}, {})
    body = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "magic": b"X" + body[1:],
            "head": body[:20] + b"}" + body[21:],
            "short": body[:-400],
            "place": body.replace(b"[100]", b"[900]"),
        }[damage]
    )
    with pytest.raises((ValueError, KeyError, TypeError)):
        map_arrays(path)


def test_what_is_not_looked_at_costs_no_memory(tmp_path: Path) -> None:
    write_arrays(tmp_path / "file", {"a": np.ones(20_000_000)}, {})
    code = """
import sys
from pathlib import Path
from pipelines.mapped import map_arrays
def private():
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0])
before = private()
arrays, _ = map_arrays(Path(sys.argv[1]))
assert float(arrays["a"].sum()) == 20e6
print(private() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 10_000
