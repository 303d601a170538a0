"""`ember report RUN [RUN2]`."""

import json
from pathlib import Path
from typing import Final

import click

NAME: Final = "report.html"


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path), required=False, metavar="[RUN2]")
@click.option(
    "--probes", type=click.Path(path_type=Path), help="Folder of the probes; by default RUN/probes, if there."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The page; by default RUN/report.html.")
@click.option(
    "--figures", type=click.Path(path_type=Path, file_okay=False), help="Also write figures here, as PNG and SVG."
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers of the report, and what was written, as JSON.")
def report(
    run: Path, other: Path | None, probes: Path | None, out: Path | None, figures: Path | None, as_json: bool
) -> None:
    """Write a finished run up as one HTML page that needs nothing else: no network, no other file.

    What was run comes first; then answers with intervals, scores, hidden states, probes; then warnings, and what the
    run does not show. RUN may be a causal trace. With RUN2 two runs are compared (by default into
    RUN/report-vs-NAME.html, where NAME is that of RUN2's directory). Every file is checked first; a damaged run is
    refused with exit status 1. The same run gives the same page.

    \b
    Examples:
      ember report outputs/roots
      ember report outputs/roots --out roots.html --figures figures
      ember report outputs/baseline outputs/patched
    """  # noqa: D301 - a backspace keeps the lines below as they are
    from pipelines.report import make_report, write_report

    made = make_report(run, other, probes=probes)
    page = out or run / (NAME if other is None else f"report-vs-{other.resolve().name}.html")
    written = write_report(made, page, figures)
    if as_json:
        click.echo(json.dumps({"written": [str(path) for path in written], **made.record}, ensure_ascii=False))
        return
    more = f" and {len(written) - 1} figures in {figures}" if figures else ""
    click.echo(f"wrote {page}{more}; open it in a browser")
