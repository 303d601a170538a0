"""A run as one page that a reader can open without anything else, and its figures as files.

    from pipelines.report import make_report
    make_report("outputs/roots").html

Provenance first; then what the run shows, with intervals; then warnings, and what it does not show. Reads only files of
verified runs, never the engine; the same files give the same bytes.
"""

from pipelines.report.build import Report, make_report
from pipelines.report.files import write_report

__all__ = ["Report", "make_report", "write_report"]
