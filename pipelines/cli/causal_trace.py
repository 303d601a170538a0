"""`ember pipeline causal-trace`."""

import json
import signal

import click

from pipelines.cli.run import INTERRUPTED, interrupt


@click.command("causal-trace")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; overrides the config.")
@click.option("--scheduler", help="local, serial, tcp://host:port or a scheduler file; overrides the config.")
@click.option("--serial", is_flag=True, help="Run in this process, without workers; short for --scheduler serial.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def causal_trace(config: str, workers: int | None, scheduler: str | None, serial: bool, as_json: bool) -> int:
    """Run the causal trace that CONFIG describes, or go on with it where it stopped.

    For pairs of prompts, of which the corrupt one differs from the clean one: puts single states of the clean prompt
    back into the corrupt one, layer by layer and token by token, and measures how much of the clean answer's
    log-probability comes back. Writes two runs (baseline, patched), effects.parquet, summary.json and a heat map.
    Exit status as for `ember pipeline run`.

    \b
    Example:
      ember pipeline causal-trace configs/causal_trace.yaml
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.causal_trace import load_trace, run_trace
    from pipelines.progress import make_reporter

    signal.signal(signal.SIGTERM, interrupt)
    trace = load_trace(config)
    try:
        summary = run_trace(
            trace, workers=workers, scheduler="serial" if serial else scheduler, reporter=make_reporter()
        )
    except KeyboardInterrupt:
        click.echo(
            f"interrupted: finished units are kept in {trace.output.dir}; "
            f"go on with: ember pipeline causal-trace {config}",
            err=True,
        )
        return INTERRUPTED
    click.echo(json.dumps(summary.record, ensure_ascii=False) if as_json else "\n".join(summary.lines()))
    return summary.exit_status
