"""`ember pipeline compare A B`."""

import json
from pathlib import Path

import click


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for machines.")
def compare(a: Path, b: Path, as_json: bool) -> None:
    """Compare the finished runs in directories A and B.

    Both are checked first, as `verify` does. Stimuli are matched by id. Told are: what made the runs different
    (model, tokenizer, stimuli, hooks, generation, numerics); for each capture and layer the rows compared, how many
    are the same bit for bit, the largest difference over a row's root mean square, cosines, and the first layer
    where they part; tokens, texts and scores.

    There is no tolerance: what differs is shown with its size. Exit status 0 when the comparison was made, also when
    the runs differ (`identical` in the JSON says so); 1 when a run is unfinished or damaged, 2 for bad usage.

    \b
    Example:
      ember pipeline compare outputs/baseline outputs/patched
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.comparison import compare as compare_runs
    from pipelines.comparison.report import comparison_lines

    found = compare_runs(a, b)
    click.echo(json.dumps(found.record, ensure_ascii=False) if as_json else "\n".join(comparison_lines(found)))
