"""Models in several files (G17): opened by any part, refused by name when a part is absent or foreign."""

import hashlib
import struct
from pathlib import Path

import pytest

from ember.errors import GGUFError
from ember.gguf import open_gguf
from tests.foundry import gguf_bytes as raw
from tests.foundry.gguf_bytes import Gguf, Tensor


def part(index: int, count: int, total: int, *names: str, pairs: tuple[bytes, ...] = ()) -> bytes:
    """One part; the values of tensor `x` are the length of its name."""
    split = (
        raw.scalar("split.no", raw.UINT16, index),
        raw.scalar("split.count", raw.UINT16, count),
        raw.scalar("split.tensors.count", raw.INT32, total),
    )
    tensors = [Tensor(name, [8], raw.F32, struct.pack("<8f", *[len(name)] * 8)) for name in names]
    return Gguf([*pairs, *split], tensors).to_bytes()


@pytest.fixture
def model(tmp_path: Path) -> list[Path]:
    """Three parts, the first one with the metadata and no tensor, as llama-gguf-split can leave it."""
    paths = [tmp_path / f"m-{i:05d}-of-00003.gguf" for i in (1, 2, 3)]
    paths[0].write_bytes(part(0, 3, 3, pairs=(raw.string("general.architecture", "llama"),)))
    paths[1].write_bytes(part(1, 3, 3, "a", "bb"))
    paths[2].write_bytes(part(2, 3, 3, "ccc"))
    return paths


@pytest.mark.parametrize("which", [0, 1, 2])
def test_any_part_opens_the_whole_model(model: list[Path], which: int) -> None:
    file = open_gguf(model[which])
    assert [one.path for one in file.parts] == model
    assert file.path == model[0]
    assert file.metadata["general.architecture"] == "llama"
    assert {name: info.part for name, info in file.tensors.items()} == {"a": 1, "bb": 1, "ccc": 2}
    assert [file.view(name)[0] for name in ("a", "bb", "ccc")] == [1, 2, 3]
    assert file.size == sum(path.stat().st_size for path in model)


def test_parts_are_opened_by_a_relative_path(model: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model[0].parent)
    assert len(open_gguf("m-00002-of-00003.gguf").parts) == 3


def test_hash_covers_all_parts(model: list[Path]) -> None:
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in model]
    expected = hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()
    assert open_gguf(model[1]).sha256() == expected


def test_a_change_of_any_part_is_noticed(model: list[Path]) -> None:
    file = open_gguf(model[0])
    model[2].write_bytes(model[2].read_bytes() + b"x")
    with pytest.raises(GGUFError, match=r"m-00003-of-00003\.gguf: file: model file changed"):
        file.check_unchanged()


def refusal(path: Path) -> str:
    with pytest.raises(GGUFError) as caught:
        open_gguf(path)
    return str(caught.value)


def test_missing_part_is_named(model: list[Path]) -> None:
    model[2].unlink()
    for which in (0, 1):
        message = refusal(model[which])
        assert f"split.count: part {which + 1} of 3; missing beside it: m-00003-of-00003.gguf" in message


def test_truncated_part_is_named(model: list[Path]) -> None:
    model[2].write_bytes(model[2].read_bytes()[:-1])
    message = refusal(model[0])
    assert message.startswith(f"{model[2]}: tensor 'ccc': needs bytes up to")
    assert "truncated" in message


def test_renamed_part(model: list[Path]) -> None:
    renamed = model[1].rename(model[1].with_name("second.gguf"))
    assert "this is part 2 of 3, so its name must end in -00002-of-00003.gguf" in refusal(renamed)


def test_part_under_another_parts_name(model: list[Path]) -> None:
    model[2].write_bytes(model[1].read_bytes())
    assert "split.no: says part 2 of 3; part 3 of 3 is expected" in refusal(model[0])


def test_part_of_another_model(model: list[Path]) -> None:
    model[2].write_bytes(part(2, 3, 9, "ccc", "dddd"))
    assert "split.tensors.count: announces 3 tensors, the 3 parts hold 4" in refusal(model[0])


def test_tensor_in_two_parts(model: list[Path]) -> None:
    model[2].write_bytes(part(2, 3, 3, "a"))
    assert "tensor 'a': stands in m-00002-of-00003.gguf too" in refusal(model[0])


def test_impossible_counts(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(Gguf([raw.scalar("split.count", raw.INT32, -1)]).to_bytes())
    assert "split.count: is -1; 1 to 99999 are expected" in refusal(path)
    path.write_bytes(Gguf([raw.string("split.count", "2")]).to_bytes())
    assert "split.count: stored as STRING; an integer is expected" in refusal(path)
    path.write_bytes(Gguf([raw.scalar("split.count", raw.UINT32, 99999)]).to_bytes())
    assert "its name must end in -00001-of-99999.gguf" in refusal(path)


def test_whole_model_with_split_keys_of_one_part(tmp_path: Path) -> None:
    path = tmp_path / "whole.gguf"
    path.write_bytes(part(0, 1, 1, "a"))
    assert list(open_gguf(path).tensors) == ["a"]


def test_a_name_alone_makes_no_part(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(Gguf([], [Tensor("a", [8], raw.F32, bytes(32))]).to_bytes())
    assert len(open_gguf(path).parts) == 1
