"""`ember capture`: experiments beside captures, and files that are put in place whole or not at all."""

import errno
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ember
from ember.cli import arrays
from ember.hooks.loading import load_experiment
from tests.foundry import commands

NANO = "builtin:sarf-nano"
ZERO = "zero_layer_output:1:layer"

call = partial(commands.call, command="capture")


@pytest.mark.parametrize("observe", ["before", "after"])
def test_an_experiment_is_observed_from_the_side_that_is_asked_for(capfdbinary, tmp_path: Path, observe: str) -> None:
    out = tmp_path / "h.npy"
    status, _, err = call(capfdbinary, NANO, "a", "b", "--experiment", ZERO, "--observe", observe, "--out", str(out))
    assert (status, err) == (0, "")
    found = np.load(out)
    assert found.shape == (2, 5, 128)
    assert bool(np.all(found[:, 1] == 0)) == (observe == "after")
    expected = ember.open(NANO).capture(["a", "b"], experiments=[load_experiment(ZERO)], observe=observe)
    assert np.array_equal(found, expected["after_layer"])
    (acted,) = json.loads(Path(f"{out}.json").read_text())["experiments"]
    assert (acted["spec"], acted["options"], acted["mutates"]) == ("zero_layer_output", {"spec": "1:layer"}, True)


def test_an_experiment_that_changes_values_needs_a_side(capfdbinary, tmp_path: Path) -> None:
    status, _, err = call(capfdbinary, NANO, "a", "--experiment", ZERO, "--out", str(tmp_path / "h.npy"))
    assert status == 2
    assert "observe" in err
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_that_only_looks_changes_nothing(capfdbinary, tmp_path: Path) -> None:
    plain, watched = tmp_path / "plain.npy", tmp_path / "watched.npy"
    assert call(capfdbinary, NANO, "a", "--out", str(plain))[0] == 0
    assert call(capfdbinary, NANO, "a", "--experiment", "activation_stats", "--out", str(watched))[0] == 0
    assert plain.read_bytes() == watched.read_bytes()
    assert "experiments" not in json.loads(Path(f"{plain}.json").read_text())
    (found,) = json.loads(Path(f"{watched}.json").read_text())["findings"]
    assert (found["prompt"], found["experiment"], found["results"]["prompt_tokens"]) == (0, "activation_stats", 2)


def test_layers_and_positions_are_taken_as_before(capfdbinary, tmp_path: Path) -> None:
    out = tmp_path / "h.npz"
    options = ("--layers", "0,-1", "--position", "mean", "--site", "after_mlp", "--site", "before_layer")
    status, told, _ = call(capfdbinary, NANO, "a b", *options, "--out", str(out), "--json")
    assert status == 0
    assert json.loads(told)["shapes"] == {"after_mlp": [1, 2, 128], "before_layer": [1, 2, 128]}
    assert set(np.load(out)) == {"after_mlp", "before_layer", "rows"}


def test_a_write_that_fails_leaves_what_was_there(capfdbinary, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "h.npy"
    assert call(capfdbinary, NANO, "a", "--out", str(out))[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(arrays.np, "save", full)
    status, _, err = call(capfdbinary, NANO, "a", "--out", str(out))
    assert status == 2
    assert err == f"error: {out}: cannot be written: No space left on device\n"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_are_as_readable_as_others(capfdbinary, tmp_path: Path) -> None:
    out = tmp_path / "h.npy"
    before = os.umask(0o027)
    try:
        assert call(capfdbinary, NANO, "a", "--out", str(out))[0] == 0
    finally:
        os.umask(before)
    assert out.stat().st_mode & 0o777 == 0o640
