"""`ember pipeline reproduce RUN`."""

import json
import signal
from pathlib import Path

import click

from pipelines.cli.run import INTERRUPTED, interrupt


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--model", help="The model's file; by default where the run's config says.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory of the new run; by default RUN-reproduced.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; overrides the config.")
@click.option("--scheduler", help="local, serial, tcp://host:port or a scheduler file; overrides the config.")
@click.option("--serial", is_flag=True, help="Run in this process, without workers; short for --scheduler serial.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def reproduce(
    run: Path,
    model: str | None,
    out: Path | None,
    workers: int | None,
    scheduler: str | None,
    serial: bool,
    as_json: bool,
) -> int:
    """Make the finished run in directory RUN anew, from what the directory holds, and say what differs first.

    Nothing but RUN and the model's file is needed: the config and the stimuli are the run's own. What differs first is
    tokens, else values (beyond what two right computations may be apart), else bits. Another model file than the run's
    is named as a cause. Exit status 0 if every bit is the same, 1 if not, 130 if interrupted (the same command goes
    on).

    \b
    Example:
      ember pipeline reproduce outputs/roots --model model.gguf
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.progress import make_reporter
    from pipelines.reproduce import reproduce as run_again

    signal.signal(signal.SIGTERM, interrupt)
    how = "serial" if serial else scheduler
    try:
        found = run_again(run, model, out, workers=workers, scheduler=how, reporter=make_reporter())
    except KeyboardInterrupt:
        click.echo("interrupted: finished units are kept; the same command goes on", err=True)
        return INTERRUPTED
    click.echo(json.dumps(found.record, ensure_ascii=False) if as_json else "\n".join(found.lines()))
    return found.exit_status
