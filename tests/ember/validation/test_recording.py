"""Recordings: what is read, which variant goes first, and files that are not recordings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ember.errors import InputError
from ember.validation.recording import Recording, read_recording, write_recording

GOOD: dict[str, Any] = {
    "tokens": np.array([[1, 2], [3, -1]], np.int32),
    "lengths": np.array([2, 1], np.int32),
    "logits": np.ones((2, 4), np.float32),
}


def stored(path: Path, **changes: Any) -> Path:
    arrays = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    np.savez(path, **arrays)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    arrays = {"logits": np.arange(8, dtype=np.float32).reshape(2, 4), "h0": np.ones((2, 3), np.float32)}
    write_recording(tmp_path / "r.npz", Recording(((5, 6, 7), (8,)), arrays, {"name": "llama.cpp", "version": "1"}))
    found = read_recording(tmp_path / "r.npz")
    assert found.prompts == ((5, 6, 7), (8,))
    assert found.about == {"name": "llama.cpp", "version": "1"}
    assert set(found.sites()) == {"after_logits"}
    np.testing.assert_array_equal(found.arrays["logits"], arrays["logits"])


def test_the_reference_variant_goes_before_the_stock_one(tmp_path: Path) -> None:
    found = read_recording(stored(tmp_path / "r.npz", ref_logits=np.full((2, 4), 7, np.float32)))
    assert (found.arrays["logits"] == 7).all()
    assert found.about == {"name": "r.npz"}


def test_the_state_entering_a_layer_is_that_leaving_the_one_before(tmp_path: Path) -> None:
    layers = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    found = read_recording(stored(tmp_path / "r.npz", l_out=layers, h0=np.full((2, 3), -1, np.float32)))
    assert found.sites()["before_layer"].tolist() == [[[-1] * 3, [0, 1, 2]], [[-1] * 3, [6, 7, 8]]]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tokens": None}, "has no tokens"),
        ({"logits": None}, "has no logits"),
        ({"lengths": np.array([3, 1])}, "lengths from 1 to 3 in rows of 2"),
        ({"lengths": np.array([0, 1])}, "lengths from 0 to 1"),
        ({"lengths": np.array([2])}, r"tokens int32 \(2, 2\) with lengths"),
        ({"tokens": np.ones((2, 2))}, "expected integers"),
        ({"logits": np.ones(4, np.float32)}, r"logits is float32 \(4,\)"),
        ({"l_out": np.ones((2, 4), np.float32)}, "expected numbers of 3 dimensions"),
        ({"logits": np.full((2, 4), np.nan, np.float32)}, "not finite"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_recording(stored(tmp_path / "r.npz", **changes))


def test_files_that_are_no_npz_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_recording(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    np.save(tmp_path / "single.npy", np.ones(3))
    np.savez(tmp_path / "pickled.npz", **{**GOOD, "logits": np.array([{"a": 1}], object)})
    for name in ("text.npz", "single.npy", "pickled.npz"):
        with pytest.raises(InputError, match="not an npz of recorded values"):
            read_recording(tmp_path / name)
