"""The record of a benchmark as a table, with what it was measured on."""

from typing import Any

from tests.bench.rounds import Timing


def as_line(timing: Timing, tokens: int) -> dict[str, Any]:
    """Make the record of one contender that was to run `tokens` tokens a round."""
    return {
        "seconds": timing.seconds,
        "median_seconds": timing.median,
        "tokens_per_second": tokens / timing.median,
        "about": timing.about,
    }


def as_markdown(record: dict[str, Any]) -> str:
    """Write one line a contender: seconds (least, median, most), tokens a second, how often the first one's time."""
    lines = record["contenders"]
    reference = next(iter(lines.values()))["median_seconds"]
    machine = record["machine"]
    head = (
        f"Hidden states of every layer at the last token of {record['prompts']} prompts ({record['tokens']} tokens, "
        f"{record['rows_after_sharing']} rows after sharing prefixes), {record['model']}; {record['rounds']} "
        f"interleaved rounds on {machine['processor']}, {machine['cores']} cores, {record['when']}. "
        "These figures belong to this machine: compare lines, not machines.\n"
    )
    rows = ["| | seconds: least, median, most | tokens/s | of Ember's time |", "|---|---|---|---|"]
    for label, line in lines.items():
        seconds = line["seconds"]
        spread = f"{min(seconds):.2f}, {line['median_seconds']:.2f}, {max(seconds):.2f}"
        rows.append(
            f"| {label} | {spread} | {line['tokens_per_second']:.0f} | {line['median_seconds'] / reference:.2f} |"
        )
    details = [f"- {label}: {_details(line['about'])}" for label, line in lines.items()]
    return "\n".join([head, *rows, "", *details]) + "\n"


def _details(about: dict[str, Any]) -> str:
    kept = {key: value for key, value in about.items() if key not in ("name", "blas", "numerics")}
    kernels = [f"{pool.get('architecture')} x {pool['num_threads']}" for pool in about.get("blas", [])]
    return ", ".join(
        [*(f"{key} {value}" for key, value in kept.items()), *(f"OpenBLAS {kernel}" for kernel in kernels)]
    )
