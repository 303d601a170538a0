"""What `ember pipeline plan`, `lint`, `status`, `verify`, `reproduce` and `ember report` do, as functions.

A config is a path or a `RunConfig`, a run its directory. Each function imports what it needs when it is called, so that
this module costs nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ember.errors import InputError

if TYPE_CHECKING:
    from pipelines.config import RunConfig
    from pipelines.lint import LintReport
    from pipelines.plan import Plan
    from pipelines.report import Report
    from pipelines.reproduce import Reproduction
    from pipelines.status import Status
    from pipelines.verify import Verdict


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What a config would do."""

    plan: "Plan"

    @property
    def record(self) -> dict[str, Any]:
        """The plan as plain data: prompts, units, rows, bytes, memory, time, notes."""
        from pipelines.plan_report import plan_record

        return plan_record(self.plan)

    def lines(self) -> list[str]:
        """Say it in words."""
        from pipelines.plan_report import plan_lines

        return plan_lines(self.record)


def plan_run(config: "RunConfig | str | Path") -> PlanReport:
    """Say what a config would do, without running it.

    Raises ConfigError for what would stop the run, by key and by the ids of stimuli; GGUFError and its kin for a model
    that cannot be read.
    """
    from pipelines.plan import make_plan

    return PlanReport(make_plan(_config(config)))


def lint_run(config: "RunConfig | str | Path") -> "LintReport":
    """Look for trouble in the stimuli of a config, as texts and as tokens; findings name the ids of stimuli.

    Raises ConfigError for stimuli that cannot be made at all, GGUFError and its kin for a model that cannot be read.
    """
    from pipelines.lint import lint

    return lint(_config(config))


def read_status(run_dir: str | Path) -> "Status":
    """Say how far the run in `run_dir` is; raises InputError where there is none."""
    from pipelines.status import read_status

    return read_status(Path(run_dir))


def verify_run(run_dir: str | Path) -> "Verdict":
    """Check every file of a finished run against its manifest; raises VerifyError listing every problem."""
    from pipelines.verify import verify

    return verify(Path(run_dir))


def reproduce_run(
    run_dir: str | Path,
    model: str | Path | None = None,
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> "Reproduction":
    """Make the run in `run_dir` anew from its directory alone, and compare the two.

    The new one goes to `out`, by default RUN-reproduced beside it; `model` is the model's file where it lies elsewhere.
    Raises what `run` raises, and RunError or VerifyError for a run that is unfinished or damaged.
    """
    from pipelines.reproduce import reproduce

    path = None if model is None else str(model)
    return reproduce(run_dir, path, out, workers=workers, scheduler=scheduler)


def report_run(
    run_dir: str | Path,
    other: str | Path | None = None,
    *,
    probes: str | Path | None = None,
    out: str | Path | None = None,
    figures: str | Path | None = None,
) -> "Report":
    """Report on a run or causal trace, or compare it with `other`; the page is `.html`, its numbers are `.record`.

    Written to the file `out`, with figures as files in the folder `figures`, where these are given. `probes` is the
    folder of a sweep, by default that in the run's directory. Raises InputError for what is no directory, RunError for
    an unfinished run or a place that cannot be written, VerifyError for a damaged one, EmberError without matplotlib.
    """
    from pipelines.report import make_report, write_report

    if figures is not None and out is None:
        raise InputError("figures are written beside a page: give `out` too, the file of the page")
    found = make_report(run_dir, other, probes=probes)
    if out is not None:
        write_report(found, Path(out), None if figures is None else Path(figures))
    return found


def _config(given: "RunConfig | str | Path") -> "RunConfig":
    if not isinstance(given, str | Path):
        return given
    from pipelines.config import load_config

    return load_config(given)
