"""`ember probe`."""

import json
import signal
from typing import Any

import click

from pipelines.cli.run import INTERRUPTED, interrupt


@click.command()
@click.argument("plan", metavar="CONFIG|RUN", type=click.Path())
@click.option("--out", type=click.Path(file_okay=False), help="Folder of the results; by default RUN/probes.")
@click.option("--partial", is_flag=True, help="Use a run in which some prompts failed, without them.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; overrides the plan.")
@click.option("--scheduler", help="local, serial, tcp://host:port or a scheduler file; overrides the plan.")
@click.option("--serial", is_flag=True, help="Run in this process, without workers; short for --scheduler serial.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON, one line for each run.")
def probe(
    plan: str, out: str | None, partial: bool, workers: int | None, scheduler: str | None, serial: bool, as_json: bool
) -> int | None:
    """Ask at which layers labels can be read from hidden states, next to controls.

    CONFIG is a probe plan (YAML, `schema: ember.probe/v1`); RUN is the directory of a finished run, whose labels are
    all probed, at all layers, under every split that can be made. Results go to RUN/probes. A finished sweep is left
    as it is, an interrupted one goes on.

    \b
    Examples:
      ember probe outputs/roots
      ember probe configs/probe.yaml --workers 4
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.config.models import OutputConfig
    from pipelines.probes import open_plan
    from pipelines.probes import probe as run_probes

    signal.signal(signal.SIGTERM, interrupt)
    changes: dict[str, Any] = {"output": OutputConfig(dir=out) if out else None, "partial": partial or None}
    config = open_plan(plan, **changes)
    try:
        summaries = run_probes(
            config,
            workers=workers,
            scheduler="serial" if serial else scheduler,
            say=lambda line: click.echo(line, err=True),
        )
    except KeyboardInterrupt:
        click.echo(f"interrupted: matrices that are done are kept; go on with: ember probe {plan}", err=True)
        return INTERRUPTED
    for one in summaries:
        click.echo(json.dumps(one.record, ensure_ascii=False) if as_json else "\n".join(one.lines()))
    return None
