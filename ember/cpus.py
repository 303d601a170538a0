"""How many cores this process may really use: affinity, container quota, batch system."""

import os
from pathlib import Path


def usable_cpus() -> int:
    """Return the smallest of affinity, cgroup quota and SLURM_CPUS_PER_TASK; at least 1."""
    limits = [_affinity(), _quota(), _slurm()]
    return max(1, min(limit for limit in limits if limit is not None))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _slurm() -> int | None:
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(given) if given.isdecimal() and int(given) > 0 else None


def _quota(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Cores of the container's quota, version 2 or 1 of the interface; None without one."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not limit.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return max(1, int(limit) // int(period))
