"""Disks that are full, closed or gone, and output paths that are no directory."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.engines import Fault
from tests.faults.rig import finish, manifest, prompts, run_cli, start, tables, write_config
from tests.faults.test_kills import receipts, wait_for_receipts

CAPTURES = {"capture": [{"site": "after_layer", "position": "all"}]}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB; mounting one takes root's rights."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root's rights")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(ballast: Path) -> None:
    """Write until nothing more can be written."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_disk_that_is_too_small_is_seen_before_the_run(tmp_path: Path, small_disk: Path) -> None:
    """P11: estimate first."""
    config = write_config(tmp_path, prompts(400), hooks=CAPTURES, output={"dir": str(small_disk / "run")})
    status, _, err = run_cli(config, "--serial")
    assert status == 1
    assert "the run will write up to" in err
    assert "are free" in err
    assert not (small_disk / "run/activations").exists()


@pytest.mark.parametrize("options", [("--serial",), ("--workers", "2")])
def test_a_disk_that_fills_up_stops_the_run_which_then_goes_on(
    tmp_path: Path, small_disk: Path, options: tuple[str, ...]
) -> None:
    texts = prompts(60)
    config = write_config(tmp_path, texts, hooks=CAPTURES, output={"dir": str(small_disk / "run")})
    process = start(config, *options, fault=Fault("sleep", size=0.2))
    wait_for_receipts(small_disk / "run", 2, process)
    ballast = small_disk / "ballast"
    fill(ballast)
    status, _, err = finish(process)
    assert status == 1
    assert "no space left in" in err
    assert "bytes needed" in err or "MB needed" in err
    assert len([line for line in err.splitlines() if line.startswith("error:")]) == 1
    assert not (small_disk / "run/manifest.json").exists()
    kept = receipts(small_disk / "run")
    ballast.unlink()
    status, _, err = run_cli(config, "--serial")
    assert status == 0, err
    assert f"going on: {kept} units are finished" in err
    whole = write_config(tmp_path, texts, "whole", hooks=CAPTURES)
    assert run_cli(whole, "--serial")[0] == 0
    assert tables(small_disk / "run") == tables(tmp_path / "whole")


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A directory that nobody may write to, not even root."""
    folder = tmp_path / "closed"
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
        return
    bound = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], capture_output=True, check=False)
    if bound.returncode != 0:
        pytest.skip("root writes anywhere, and no read-only file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_directory_that_cannot_be_written(tmp_path: Path, closed: Path) -> None:
    config = write_config(tmp_path, prompts(4), output={"dir": str(closed / "run")})
    status, _, err = run_cli(config, "--serial")
    assert status == 1
    assert f"cannot make the run directory: {closed}/run cannot be written" in err
    assert len(err.strip().splitlines()) <= 2  # a note, and the one message


def test_a_run_whose_disk_was_closed_since(tmp_path: Path) -> None:
    config = write_config(tmp_path, prompts(4))
    assert run_cli(config, "--serial")[0] == 0
    if os.geteuid() != 0:
        pytest.skip("mounting needs root's rights")
    run_dir = tmp_path / "run"
    if subprocess.run(["mount", "--bind", "-o", "ro", run_dir, run_dir], check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        status, _, err = run_cli(config, "--serial")
    finally:
        subprocess.run(["umount", "-l", run_dir], check=True)
    assert status == 1
    assert "cannot lock the run directory" in err


def test_an_output_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    status, _, err = run_cli(write_config(tmp_path, prompts(4)), "--serial")
    assert status == 1
    assert f"output.dir {tmp_path / 'run'} is a file; give the name of a directory" in err
    assert (tmp_path / "run").read_text() == "mine"


def test_a_directory_under_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    status, _, err = run_cli(write_config(tmp_path, prompts(4), output={"dir": str(tmp_path / "file/run")}), "--serial")
    assert status == 1
    assert "cannot make the run directory" in err


@pytest.mark.parametrize("options", [("--serial",), ("--workers", "1")])
def test_a_directory_that_is_removed_during_the_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    config, run_dir = write_config(tmp_path, prompts(60)), tmp_path / "run"
    process = start(config, *options, fault=Fault("sleep", size=0.2))
    wait_for_receipts(run_dir, 2, process)
    run_dir.rename(tmp_path / "moved")
    status, _, err = finish(process)
    assert status == 1
    assert "removed or moved during the run" in err or "writing in" in err
    assert not (run_dir / "manifest.json").exists()
    # What was finished is still good where it was moved to.
    shutil.rmtree(run_dir, ignore_errors=True)
    (tmp_path / "moved").rename(run_dir)
    assert run_cli(config, "--serial")[0] == 0
    assert manifest(run_dir)["status"] == "complete"
