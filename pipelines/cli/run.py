"""`ember pipeline run`."""

import json
import signal
import sys
from types import FrameType

import click

INTERRUPTED = 130


@click.command()
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; overrides the config.")
@click.option("--scheduler", help="local, serial, tcp://host:port or a scheduler file; overrides the config.")
@click.option("--serial", is_flag=True, help="Run in this process, without workers; short for --scheduler serial.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON, one line for each run.")
def run(config: str, workers: int | None, scheduler: str | None, serial: bool, as_json: bool) -> int:
    """Run CONFIG, or go on with its run where it stopped.

    A finished run is left as it is. Exit status: 0 done, 1 failed, 2 bad config, 3 finished but some prompts
    failed, 130 interrupted; after 1 and 130 the same command goes on.

    \b
    Examples:
      ember pipeline run configs/roots.yaml
      ember pipeline run configs/roots.yaml --workers 4
      ember pipeline run configs/roots.yaml --scheduler tcp://10.0.0.5:8786
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.config import load_configs
    from pipelines.progress import make_reporter
    from pipelines.running import run as run_config

    signal.signal(signal.SIGTERM, interrupt)
    status = 0
    for one in load_configs(config):
        try:
            summary = run_config(
                one, workers=workers, scheduler="serial" if serial else scheduler, reporter=make_reporter()
            )
        except KeyboardInterrupt:
            click.echo(
                f"interrupted: finished units are kept in {one.output.dir}; go on with: ember pipeline run {config}",
                err=True,
            )
            return INTERRUPTED
        if as_json:
            click.echo(json.dumps(summary.record, ensure_ascii=False))
        else:
            click.echo("\n".join(summary.lines()))
        status = max(status, summary.exit_status)
    return status


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Treat SIGTERM, with which batch systems announce the end, as Ctrl-C; a second one changes nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.flush()
    raise KeyboardInterrupt
