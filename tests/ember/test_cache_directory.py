"""Where Ember keeps what it can compute again, and what it does where it cannot."""

import os
import tempfile
from pathlib import Path

import pytest

from ember import cache_directory as module
from ember.cache_directory import cache_directory


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No variable set; home and temporary directory below `tmp_path`."""
    monkeypatch.delenv("EMBER_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_order_of_places(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory("a", "b") == bare / "home/.cache/ember/a/b"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_directory("a") == bare / "home/.cache/ember/a"
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "xdg"))
    assert cache_directory("a") == bare / "xdg/ember/a"
    monkeypatch.setenv("EMBER_CACHE_DIR", str(bare / "own"))
    found = cache_directory("a")
    assert found == bare / "own/a"
    assert found.is_dir()


def test_unwritable_home_falls_back_to_a_private_temporary_directory(bare: Path) -> None:
    (bare / "home").write_text("a file where a directory should be")
    found = cache_directory("sha256")
    assert found == bare / f"ember-cache-{os.getuid()}" / "sha256"
    assert (bare / f"ember-cache-{os.getuid()}").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("how", ["others may write", "a link", "a file"])
def test_a_temporary_directory_that_others_could_fill_is_not_used(bare: Path, how: str) -> None:
    """Compiled code is loaded from there."""
    (bare / "home").write_text("")
    place = bare / f"ember-cache-{os.getuid()}"
    if how == "others may write":
        place.mkdir()
        place.chmod(0o777)
    elif how == "a link":
        (bare / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(bare / "elsewhere")
    else:
        place.write_text("")
    assert cache_directory("numba") is None


def test_a_full_or_read_only_disk_means_no_cache(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_writable", lambda folder: False)
    assert cache_directory("numba") is None


def test_an_ember_cache_dir_that_cannot_be_used_falls_back(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "file").write_text("")
    monkeypatch.setenv("EMBER_CACHE_DIR", str(bare / "file"))
    assert cache_directory("x") == bare / f"ember-cache-{os.getuid()}" / "x"
