import subprocess
import sys
from pathlib import Path

import pytest

from ember.resources import Resources, find_resources, own_cgroup
from pipelines.crew import worker_count

HERE = Resources(8, "affinity", 16_000)


def test_affinity_is_seen_and_the_number_of_processors_is_not() -> None:
    told = "from ember.resources import find_resources as f; r = f({}); print(r.cpus, r.cpu_source)"
    seen = subprocess.run(
        ["taskset", "-c", "0", sys.executable, "-c", told], capture_output=True, text=True, check=True
    )
    assert seen.stdout.split() == ["1", "affinity"]


def test_slurm_and_quotas_limit(tmp_path: Path) -> None:
    assert find_resources({"SLURM_CPUS_PER_TASK": "1"}, tmp_path).cpus == 1
    assert find_resources({"SLURM_CPUS_PER_TASK": "all"}, tmp_path).cpu_source == "affinity"
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    found = find_resources({}, tmp_path)
    assert (found.cpus, found.cpu_source) == (1, "cgroup quota")


def test_a_quota_above_ours_counts_too(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    membership.write_text("0::/slurm/job_7/step_0\n")
    root = tmp_path / "cgroup"
    inner = root / "slurm/job_7/step_0"
    inner.mkdir(parents=True)
    assert own_cgroup(root, membership) == [inner, inner.parent, inner.parent.parent, root]


def test_quota_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("100000")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert find_resources({}, tmp_path).cpus == 1
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1")
    assert find_resources({}, tmp_path).cpu_source == "affinity"


def test_memory_of_the_control_group_with_its_page_cache(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000")
    (tmp_path / "memory.current").write_text("900000")
    (tmp_path / "memory.stat").write_text("anon 400000\ninactive_file 300000\n")
    assert find_resources({}, tmp_path).memory == 400_000
    (tmp_path / "memory.max").write_text("max")
    assert find_resources({}, tmp_path).memory > 1_000_000


@pytest.mark.parametrize(
    ("asked", "threads", "units", "memory", "expected"),
    [
        (None, 1, 100, 1_000, (8, "processors")),
        (None, 4, 100, 1_000, (2, "processors")),
        (None, 16, 100, 1_000, (1, "processors")),
        (None, 1, 3, 1_000, (3, "units")),
        (None, 1, 100, 5_000, (3, "memory")),
        (None, 1, 100, 50_000, (1, "memory")),
        (5, 4, 100, 50_000, (5, "asked")),
        (5, 1, 2, 1, (2, "units")),
    ],
)
def test_workers(asked: int | None, threads: int, units: int, memory: int, expected: tuple[int, str]) -> None:
    assert worker_count(asked, HERE, blas_threads=threads, units=units, memory_per_worker=memory) == expected
