"""Running a config from one end to the other: plan, directory, workers, manifest.

    summary = pipelines.run("configs/roots.yaml")          # or a RunConfig; cluster=… for workers elsewhere

A run that was stopped, however it was, goes on when it is run again.
"""

from pathlib import Path
from typing import Any

from pipelines.config import RunConfig, load_config
from pipelines.errors import LockedError
from pipelines.identity import refuse_foreign
from pipelines.lock import locked, owner_of
from pipelines.plan import make_plan
from pipelines.progress import Reporter, Shown, Silent
from pipelines.resume import make_directory
from pipelines.session import Options, Session
from pipelines.stimuli.record import StimulusSet
from pipelines.summary import Summary
from pipelines.tasks import ENGINE


def run(
    config: RunConfig | str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    cluster: Any = None,
    reporter: Reporter | None = None,
    opener: str = ENGINE,
    stimuli: StimulusSet | None = None,
) -> Summary:
    """Run a config, or go on with its run, and return what came out.

    `workers` and `scheduler` (`local`, `serial`, `tcp://…`, a scheduler file) override the config; `cluster` is a Dask
    cluster object that stays its owner's; `stimuli`, those of an earlier run, stand for the config's own. Raises
    ConfigError, GGUFError, GuardError, RunError and its kin. When prompts failed, the summary's status is `partial`.
    """
    config = config if isinstance(config, RunConfig) else load_config(config)
    options = Options(workers, scheduler or config.run.scheduler, cluster, opener)
    reporter = reporter or Silent()
    run_dir = config.output.path
    owner = owner_of(run_dir)
    if owner is not None:
        raise LockedError(f"{run_dir} is being written by {owner}; wait for it or use another output.dir")
    refuse_foreign(run_dir)
    plan = make_plan(config, stimuli)
    for note in plan.notes:
        reporter.say(f"note: {note}")
    make_directory(run_dir)
    with locked(run_dir), Shown(reporter):
        return Session(run_dir, options, reporter).run(plan)
