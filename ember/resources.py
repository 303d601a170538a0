"""What this machine lends to this process: processors and memory, as limited by affinity, control groups and SLURM.

`os.cpu_count` sees none of these limits; starting that many workers in a job with four processors makes it several
times slower.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

CGROUP: Final = Path("/sys/fs/cgroup")
_NO_LIMIT: Final = 1 << 60
"""Control groups of version 1 write a huge number for `no limit`."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What may be used."""

    cpus: int
    cpu_source: str
    """Which limit was the tightest: `affinity`, `cgroup quota` or `SLURM_CPUS_PER_TASK`."""
    memory: int
    """Bytes that can be had without swapping."""


def find_resources(environ: Mapping[str, str] = os.environ, cgroup: Path = CGROUP) -> Resources:
    """Look at the limits of this process."""
    limits = {"affinity": len(os.sched_getaffinity(0))}
    quota = _cgroup_cpus(cgroup)
    if quota is not None:
        limits["cgroup quota"] = quota
    slurm = environ.get("SLURM_CPUS_PER_TASK", "")
    if slurm.isdigit() and int(slurm) > 0:
        limits["SLURM_CPUS_PER_TASK"] = int(slurm)
    source = min(limits, key=lambda name: limits[name])
    free = psutil.virtual_memory().available
    lent = _cgroup_memory(cgroup)
    return Resources(limits[source], source, free if lent is None else min(free, lent))


def own_cgroup(root: Path = CGROUP, membership: Path = Path("/proc/self/cgroup")) -> list[Path]:
    """Directories of this process's control group (version 2) and of those above it, innermost first."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return [root]
    inner = next((line[3:] for line in lines if line.startswith("0::")), "/").strip("/")
    path = root / inner
    return [path, *[parent for parent in path.parents if parent == root or root in parent.parents]]


def _cgroup_cpus(root: Path) -> int | None:
    quotas = [q for folder in own_cgroup(root) if (q := _quota_v2(folder)) is not None]
    v1 = _number(root / "cpu/cpu.cfs_quota_us"), _number(root / "cpu/cpu.cfs_period_us")
    if v1[0] and v1[1] and v1[0] > 0:
        quotas.append(v1[0] / v1[1])
    return max(1, int(min(quotas))) if quotas else None


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _cgroup_memory(root: Path) -> int | None:
    rooms = []
    for folder in own_cgroup(root):
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if limit is not None and used is not None:
            rooms.append(max(0, limit - used) + _reclaimable(folder / "memory.stat"))
    limit, used = _number(root / "memory/memory.limit_in_bytes"), _number(root / "memory/memory.usage_in_bytes")
    if limit is not None and used is not None and limit < _NO_LIMIT:
        rooms.append(max(0, limit - used) + _reclaimable(root / "memory/memory.stat"))
    return min(rooms) if rooms else None


def _reclaimable(stat: Path) -> int:
    # Page cache counts as used, but gives way: a mapped model is mostly that.
    try:
        pairs = dict(line.split() for line in stat.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(pairs.get("inactive_file", pairs.get("total_inactive_file", 0)))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
