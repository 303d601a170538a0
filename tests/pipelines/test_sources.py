"""Rows of finished runs: found by stimulus and position, read in the worker, refused where anything is wrong."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ember.errors import InputError
from ember.positions import Position
from pipelines.errors import ConfigError, RunError, VerifyError
from pipelines.sources import SourceRun, open_run, read_rows
from tests.foundry.fake_run import FakeRun, make_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    return make_run(tmp_path_factory.mktemp("source") / "run", units=(4, 3, 6))


@pytest.fixture(scope="module")
def source(made: FakeRun) -> SourceRun:
    return open_run(made.directory)


def expected(made: FakeRun, capture: str, layer: int, sample: int, position: int | None) -> Any:
    rows = made.values[capture, layer][made.owner[capture] == sample]
    return rows[position or 0]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_row_is_the_one_that_was_captured(made: FakeRun, source: SourceRun, data: st.DataObject) -> None:
    every = source.capture("every", "after_layer")
    chosen = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=8))
    layers = data.draw(st.lists(st.sampled_from((1, 2)), min_size=1, max_size=2, unique=True))
    parts: list[int] = []
    rows: list[int] = []
    wanted = []
    for sample in chosen:
        at = data.draw(st.lists(st.integers(0, len(made.samples[sample].tokens) - 1), max_size=4))
        found = source.places(every, f"s-{sample:03d}", None, at)
        parts += found[0]
        rows += found[1]
        wanted += [(sample, position) for position in at]
    if not wanted:
        return
    read = read_rows(source.reference(every), layers, parts, rows)
    assert read.shape == (len(layers), len(wanted), 12)
    for slot, layer in enumerate(layers):
        for row, (sample, position) in enumerate(wanted):
            np.testing.assert_array_equal(read[slot, row], expected(made, "every", layer, sample, position))


def test_positions_of_the_sources_own_prompt(made: FakeRun, source: SourceRun) -> None:
    every = source.capture("every", "after_layer")
    last = len(made.samples[3].tokens) - 1
    for position, acted, wanted in (
        (Position(), (0,), [last]),
        (Position(), (0, 1, 2), [last] * 3),
        (Position("index", 1), (0,), [1]),
        (Position("span", part="all"), (2, 3), [0, 1]),
    ):
        sample = 4 if position.kind == "span" else 3
        parts, rows = source.places(every, f"s-{sample:03d}", position, acted)
        read = read_rows(source.reference(every), [1], parts, rows)[0]
        for row, at in zip(read, wanted, strict=True):
            np.testing.assert_array_equal(row, expected(made, "every", 1, sample, at))


def test_a_mean_serves_all_positions(made: FakeRun, source: SourceRun) -> None:
    word = source.capture("word", "before_layer")
    parts, rows = source.places(word, "s-002", None, (0, 1, 2))
    read = read_rows(source.reference(word), [0], parts, rows)[0]
    np.testing.assert_array_equal(read, [expected(made, "word", 0, 2, None)] * 3)


def test_the_only_capture_of_a_site_needs_no_name(source: SourceRun) -> None:
    assert source.capture(None, "before_layer").name == "word"
    assert source.capture("last", "before_layer").site == "after_layer"


@pytest.mark.parametrize(
    ("name", "site", "said"),
    [
        (None, "after_layer", r"no single capture at after_layer; its captures of prompts: 'last' \(after_layer"),
        (None, "after_mlp", "no one capture at after_mlp"),
        ("lost", "after_mlp", "no capture 'lost'"),
    ],
)
def test_captures_that_there_are_not(source: SourceRun, name: str | None, site: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        source.capture(name, site)


@pytest.mark.parametrize(
    ("capture", "stimulus", "wanted", "acted", "said"),
    [
        ("every", "s-099", None, (0,), "no rows of a stimulus 's-099'"),
        ("every", "s-001", None, (9,), "has no row of position 9"),
        ("last", "s-001", None, (0,), "capture 'last' of .* has no row of position 0"),
        ("every", "s-001", Position("index", 9), (0,), "does not exist in a prompt of 4 tokens"),
        ("every", "s-000", Position("span"), (0,), "needs a target text"),
        ("every", "s-001", Position("all"), (0, 1), r"has 4 positions for 2 acted on"),
    ],
)
def test_rows_that_there_are_not(
    source: SourceRun, capture: str, stimulus: str, wanted: Any, acted: Any, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        source.places(source.capture(capture, "after_layer"), stimulus, wanted, acted)


def test_failed_stimuli_have_no_rows(tmp_path: Path) -> None:
    source = open_run(make_run(tmp_path / "run", units=(4, 3), failed=(2,)).directory)
    with pytest.raises(InputError, match="no rows of a stimulus 's-002'"):
        source.places(source.capture("every", "after_layer"), "s-002", None, (0,))


def test_half_precision_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "run", units=(3,), dtype="float16")
    with pytest.raises(ConfigError, match="stores float16; rows of a source must be float32"):
        open_run(tmp_path / "run")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no directory"):
        open_run(tmp_path / "absent")
    with pytest.raises(VerifyError, match=r"(?s)as a source of rows, .*manifest.json is absent"):
        open_run(tmp_path)


@pytest.fixture
def copy(made: FakeRun, tmp_path: Path) -> Path:
    shutil.copytree(made.directory, tmp_path / "run")
    return tmp_path / "run"


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(bytes(body))


@pytest.mark.parametrize("name", ["activations/part-00001.parquet", "stimuli.parquet"])
def test_a_tampered_source_is_refused_with_what_is_wrong(copy: Path, name: str) -> None:
    flip(copy / name)
    with pytest.raises(VerifyError, match=rf"as a source of rows, .*: 1 problem\n  {name}: its sha256 is"):
        open_run(copy)


def test_a_source_that_changes_afterwards_is_refused_by_the_worker(copy: Path) -> None:
    source = open_run(copy)
    every = source.capture("every", "after_layer")
    parts, rows = source.places(every, "s-005", None, (0,))
    assert parts == (1,)
    reference = source.reference(every)
    assert read_rows(reference, [1], parts, rows).shape == (1, 1, 12)
    flip(copy / "activations/part-00001.parquet")
    with pytest.raises(RunError, match=r"part-00001.parquet, a source of rows, has changed since the run began"):
        read_rows(reference, [1], parts, rows)
    (copy / "activations/part-00001.parquet").unlink()
    with pytest.raises(RunError, match=r"a source of rows, cannot be read"):
        read_rows(reference, [1], parts, rows)
