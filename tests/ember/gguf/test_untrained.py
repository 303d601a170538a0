"""Untrained copies: as valid as the original, the same values in other places, told apart by two keys."""

import gguf
import numpy as np
import pytest
from click.testing import CliRunner

import ember
from ember.cli.untrained import untrained
from ember.errors import InputError
from ember.gguf import open_gguf
from ember.gguf.untrained import SEED_KEY, SOURCE_KEY, write_untrained
from tests.foundry.tiny import tiny_llama


@pytest.fixture(params=["F32", "Q8_0", "F16"])
def source(request, tmp_path):
    return tiny_llama(tmp_path / "m.gguf", seed=4, quant=request.param)


def test_a_copy_has_the_same_values_in_other_places(source, tmp_path) -> None:
    out = tmp_path / "u.gguf"
    with open_gguf(source) as file:
        write_untrained(file, out, 3)
        digest = file.sha256()
    old, new = gguf.GGUFReader(source), gguf.GGUFReader(out)
    assert [(t.name, t.tensor_type, t.shape.tolist()) for t in old.tensors] == [
        (t.name, t.tensor_type, t.shape.tolist()) for t in new.tensors
    ]
    for a, b in zip(old.tensors, new.tensors, strict=True):
        same = np.array_equal(a.data, b.data)
        assert same == (len(a.shape) == 1 or a.name == "rope_freqs.weight"), a.name
        assert np.array_equal(np.sort(a.data.reshape(-1)), np.sort(b.data.reshape(-1)))
    assert new.fields[SEED_KEY].parts[-1][0] == 3
    assert bytes(new.fields[SOURCE_KEY].parts[-1]).decode() == digest
    kept = [name for name in old.fields if not name.startswith("GGUF.")]
    assert [name for name in new.fields if not name.startswith(("GGUF.", "ember."))] == kept


def test_a_copy_runs_and_knows_nothing(source, tmp_path) -> None:
    with open_gguf(source) as file:
        write_untrained(file, tmp_path / "u.gguf", 3)
        write_untrained(file, tmp_path / "again.gguf", 3)
        write_untrained(file, tmp_path / "other.gguf", 4)
    assert (tmp_path / "u.gguf").read_bytes() == (tmp_path / "again.gguf").read_bytes()
    assert (tmp_path / "u.gguf").read_bytes() != (tmp_path / "other.gguf").read_bytes()
    with ember.open(tmp_path / "u.gguf") as model, ember.open(source) as original:
        ids = [[1, 2, 3, 4]]
        assert np.isfinite(model.capture(tokens=ids)["after_layer"]).all()
        assert not np.array_equal(model.logits(tokens=ids), original.logits(tokens=ids))
    with open_gguf(tmp_path / "u.gguf") as copy, pytest.raises(InputError, match="is an untrained copy already"):
        write_untrained(copy, tmp_path / "twice.gguf", 1)
    assert not (tmp_path / "twice.gguf").exists()


def test_the_verb_and_a_place_that_cannot_be_written(tmp_path) -> None:
    done = CliRunner().invoke(untrained, ["builtin:sarf-nano", str(tmp_path / "s.gguf"), "--seed", "5", "--json"])
    assert done.exit_code == 0
    assert open_gguf(tmp_path / "s.gguf").metadata[SEED_KEY] == 5
    with open_gguf(tmp_path / "s.gguf") as file, pytest.raises(InputError):
        write_untrained(file, tmp_path / "no" / "s.gguf", 5)
