"""How many workers a run gets, and how much memory each: decides nothing but time."""

from dataclasses import dataclass
from typing import Final

from ember.resources import Resources, find_resources
from pipelines.estimates import Memory, worker_memory
from pipelines.plan import Plan

SHARE: Final = 0.9
"""Part of the free memory that all workers together may take."""
FOREIGN_FLOOR: Final = 1 << 30
"""Least limit for workers on machines whose memory is not known here."""


@dataclass(frozen=True, slots=True)
class Crew:
    """Workers of a session."""

    workers: int
    decided_by: str
    """`asked`, `processors`, `memory` or `units`."""
    need: Memory
    """What the plan says a worker takes while weights are decoded layer by layer."""
    limit: int
    """Private bytes after which the watchdog ends a worker."""
    seconds_per_unit: float | None
    """Time after which it ends a worker that is still at one unit; None: never."""
    resources: Resources

    @property
    def weight_budget(self) -> int:
        """Bytes that decoded weights may keep in a worker beside what it needs anyway."""
        return max(0, int(SHARE * self.limit) - self.need.total)

    def keeps_weights(self, decoded_bytes: int) -> bool:
        """Whether a worker keeps weights of so many bytes decoded, or decodes them for each unit."""
        return decoded_bytes <= self.weight_budget


def plan_crew(plan: Plan, open_units: int, workers: int | None = None, *, foreign: bool = False) -> Crew:
    """Choose workers for `open_units` units; `workers` overrides the config, `foreign`: they run on other machines."""
    settings, resources, need = plan.config.run, find_resources(), worker_memory(plan)
    given = None if settings.memory_per_worker == "auto" else int(settings.memory_per_worker)
    asked = workers if workers is not None else (None if settings.workers == "auto" else int(settings.workers))
    count, why = worker_count(
        asked,
        resources,
        blas_threads=plan.config.engine.blas_threads,
        units=open_units,
        memory_per_worker=given or need.total,
    )
    if given is not None:
        limit = given
    elif foreign:
        limit = max(FOREIGN_FLOOR, 2 * need.total)
    else:
        limit = max(int(SHARE * resources.memory / count), need.total)
    return Crew(count, why, need, limit, settings.seconds_per_unit, resources)


def worker_count(
    asked: int | None, resources: Resources, *, blas_threads: int, units: int, memory_per_worker: int
) -> tuple[int, str]:
    """Return how many workers to start and which limit decided: `asked`, `processors`, `memory` or `units`.

    workers x BLAS threads never exceeds the usable processors unless `asked` says so.
    """
    if asked is not None:
        return max(1, min(asked, units)), "asked" if asked <= units else "units"
    limits = {
        "processors": max(1, resources.cpus // blas_threads),
        "memory": max(1, resources.memory // max(1, memory_per_worker)),
        "units": max(1, units),
    }
    tightest = min(limits, key=lambda name: limits[name])
    return limits[tightest], tightest
