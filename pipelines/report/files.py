"""Writing a report: each file appears whole or not at all."""

import os
from pathlib import Path

from pipelines import placing
from pipelines.errors import RunError
from pipelines.report.build import Report


def write_report(report: Report, out: Path, figures: Path | None = None) -> list[Path]:
    """Write the page to `out` and, if asked, its figures into the directory `figures`; returns what was written.

    Raises RunError for a place that cannot be written.
    """
    files = {out: report.html.encode()}
    if figures is not None:
        files |= {figures / name: data for name, data in report.figures.items()}
    for path, data in files.items():
        _put(path, data)
    return list(files)


def _put(path: Path, data: bytes) -> None:
    if path.is_dir():
        raise RunError(f"{path} is a directory; name a file for the report")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with placing.disk_errors(path.parent, f"cannot write {path.name}", len(data)):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(data)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
