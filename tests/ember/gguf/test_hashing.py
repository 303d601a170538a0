"""sha256 of model files: right, remembered for the very same file only, and never a condition for working."""

import hashlib
import os
from pathlib import Path

import pytest

from ember.errors import GGUFError
from ember.gguf import hashing, open_gguf
from tests.foundry import gguf_bytes as raw
from tests.foundry.gguf_bytes import Gguf


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sha256"


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that counts as old enough for its hash to be remembered."""
    monkeypatch.setattr(hashing, "_SETTLED_NS", -1)
    path = tmp_path / "m.gguf"
    path.write_bytes(Gguf([raw.string("general.architecture", "llama")]).to_bytes())
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def count_hashing(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    hashed: list[Path] = []
    compute = hashing._hash

    def counted(part):
        hashed.append(part.path)
        return compute(part)

    monkeypatch.setattr(hashing, "_hash", counted)
    return hashed


def test_is_the_files_sha256(settled: Path, cache: Path) -> None:
    assert open_gguf(settled).sha256() == digest(settled)


def test_is_computed_once_per_file(settled: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = count_hashing(monkeypatch)
    assert {open_gguf(settled).sha256() for _ in range(3)} == {digest(settled)}
    assert hashed == [settled]
    assert len(list(cache.iterdir())) == 1


def test_same_size_and_time_but_rewritten_is_hashed_again(settled: Path, cache: Path) -> None:
    open_gguf(settled).sha256()
    before = settled.stat()
    settled.write_bytes(settled.read_bytes().replace(b"llama", b"gpt2_"))
    os.utime(settled, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert open_gguf(settled).sha256() == digest(settled)


def test_replaced_file_is_hashed_again(settled: Path, cache: Path) -> None:
    open_gguf(settled).sha256()
    other = settled.with_suffix(".new")
    other.write_bytes(Gguf([raw.string("general.architecture", "gpt2")]).to_bytes())
    other.replace(settled)
    assert open_gguf(settled).sha256() == digest(settled)


def test_file_changed_after_opening_is_refused(settled: Path, cache: Path) -> None:
    file = open_gguf(settled)
    settled.write_bytes(settled.read_bytes() + b"more")
    with pytest.raises(GGUFError, match="model file changed during the run"):
        file.sha256()


def test_a_new_link_makes_no_other_file(settled: Path, cache: Path) -> None:
    file = open_gguf(settled)
    settled.with_suffix(".link").hardlink_to(settled)
    settled.chmod(0o600)
    assert file.sha256() == digest(settled)


def test_file_gone_after_opening_is_refused(settled: Path, cache: Path) -> None:
    file = open_gguf(settled)
    settled.unlink()
    with pytest.raises(GGUFError, match="cannot be read to compute its sha256: No such file"):
        file.sha256()


def test_a_file_changed_just_now_is_not_remembered(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "new.gguf"
    path.write_bytes(Gguf([raw.string("k", "v")]).to_bytes())
    assert open_gguf(path).sha256() == digest(path)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"null", b'{"sha256": 5}', b"\xff\xfe"])
def test_broken_entries_are_ignored(settled: Path, cache: Path, junk: bytes) -> None:
    open_gguf(settled).sha256()
    (entry,) = cache.iterdir()
    entry.write_bytes(junk)
    assert open_gguf(settled).sha256() == digest(settled)
    assert entry.read_bytes() != junk


def test_cache_that_cannot_be_written(settled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "cache_directory", lambda *_: None)
    assert open_gguf(settled).sha256() == digest(settled)


def test_full_disk_costs_the_entry_only(settled: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert open_gguf(settled).sha256() == digest(settled)
    assert list(cache.iterdir()) == []
