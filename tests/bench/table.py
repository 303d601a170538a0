"""The record of a benchmark as a table, with what it was measured on."""

from typing import Any

from tests.bench.rounds import Timing


def as_line(timing: Timing, tokens: int) -> dict[str, Any]:
    """Make the record of one contender that was to run `tokens` tokens a round."""
    return {
        "seconds": timing.seconds,
        "median_seconds": timing.median,
        "tokens_per_second": tokens / timing.median,
        "cpu_seconds": timing.cpu_seconds,
        "median_cpu_seconds": timing.median_cpu,
        "about": timing.about,
    }


def as_markdown(record: dict[str, Any]) -> str:
    """Write one line a contender: wall and processor seconds, tokens a second, how many times the first one's time."""
    lines = record["contenders"]
    ours = next(iter(lines.values()))
    machine = record["machine"]
    head = (
        f"Hidden states of every layer at the last token of {record['prompts']} prompts ({record['tokens']} tokens, "
        f"{record['rows_after_sharing']} rows after sharing), {record['model']}, {record['threads']} thread(s); "
        f"{record['rounds']} interleaved rounds on {machine['processor']}, {machine['cores']} cores, {record['when']}. "
        f"{machine['load']} processes wanted to run, on average. "
        "These figures belong to this machine: compare lines, not machines.\n"
    )
    rows = [
        "| | seconds: least, median, most | tokens/s | times Ember's | processor s: least, median | times Ember's |",
        "|---|---|---|---|---|---|",
    ]
    for label, line in lines.items():
        wall = f"{min(line['seconds']):.2f}, {line['median_seconds']:.2f}, {max(line['seconds']):.2f}"
        used = f"{min(line['cpu_seconds']):.2f}, {line['median_cpu_seconds']:.2f}"
        slower = line["median_seconds"] / ours["median_seconds"]
        dearer = line["median_cpu_seconds"] / ours["median_cpu_seconds"]
        rows.append(f"| {label} | {wall} | {line['tokens_per_second']:.0f} | {slower:.2f} | {used} | {dearer:.2f} |")
    details = [f"- {label}: {_details(line['about'])}" for label, line in lines.items()]
    return "\n".join([head, *rows, "", *details]) + "\n"


def _details(about: dict[str, Any]) -> str:
    kept = [f"{key} {about[key]}" for key in ("version", "settings", "system") if key in about]
    kernels = [f"OpenBLAS {pool.get('architecture')} x {pool['num_threads']}" for pool in about.get("blas", [])]
    numerics = about.get("numerics", {})
    kept += [f"{key} {numerics[key]}" for key in ("route", "contract") if key in numerics]
    kernels += [f"OpenBLAS {blas['kernel']} x {blas['threads']}" for blas in numerics.get("blas", [])]
    return ", ".join(kept + kernels)
