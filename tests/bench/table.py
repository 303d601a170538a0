"""The record of a benchmark as tables, with what it was measured on."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.bench.setting import Row


def as_record(row: Row, about: Mapping[str, Any]) -> dict[str, Any]:
    """Make plain data of a row and of what it was measured on."""
    return {**about, **asdict(row)}


def as_markdown(record: Mapping[str, Any]) -> str:
    """Write a line for each contender: wall and processor seconds, speed; then what they say together."""
    machine = record["machine"]
    loads = ", ".join(map(str, record["load"]))
    head = (
        f"## {record['name']}\n\n{record['title']}; {record['threads']} thread(s), {record['rounds']} interleaved "
        f"rounds on {machine['processor']}, {machine['cores']} cores, {record['when']}. Processes that wanted to run "
        f"before and after: {loads}. These figures belong to this machine: compare lines, not machines.\n"
    )
    rows = [
        "| | seconds: least, median, most | a second | GFLOP/s | processor s: least, median | private MB |",
        "|---|---|---|---|---|---|",
        *(_line(label, line) for label, line in record["lines"].items()),
    ]
    ratios = [
        "| | measured | asked for | by processor time |",
        "|---|---|---|---|",
        *(_ratio(one) for one in record["ratios"]),
    ]
    facts = [f"- {key}: {_short(value)}" for key, value in record["facts"].items()]
    details = [f"- {label}: {said}" for label, line in record["lines"].items() if (said := _details(line["about"]))]
    return "\n".join([head, *rows, "", *ratios, "", *facts, *details]) + "\n"


def _line(label: str, line: Mapping[str, Any]) -> str:
    wall = f"{min(line['seconds']):.2f}, {line['median_seconds']:.2f}, {max(line['seconds']):.2f}"
    used = f"{min(line['cpu_seconds']):.2f}, {line['median_cpu_seconds']:.2f}"
    flops = f"{line['gflops_per_second']:.0f}" if "gflops_per_second" in line else ""
    return f"| {label} | {wall} | {line['per_second']:.0f} {line['unit']} | {flops} | {used} | {_private(line)} |"


def _private(line: Mapping[str, Any]) -> str:
    if "private_bytes" in line:
        return f"{line['private_bytes'] / 1e6:.0f}"
    return ", ".join(f"{key[11:]} {value}" for key, value in line.items() if key.startswith("private_mb_"))


def _ratio(one: Mapping[str, Any]) -> str:
    wanted = "" if one["wanted"] is None else f"{one['wanted']:g}"
    cpu = "" if one["cpu"] is None else f"{one['cpu']:.2f}"
    return f"| {one['what']} | {one['measured']:.2f} | {wanted} | {cpu} |"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(one)}" for key, one in value.items())
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _details(about: Mapping[str, Any]) -> str:
    kept = [f"{key} {about[key]}" for key in ("version", "settings", "system") if key in about]
    kernels = [f"OpenBLAS {pool.get('architecture')} x {pool['num_threads']}" for pool in about.get("blas", [])]
    numerics = about.get("numerics", {})
    kept += [f"{key} {numerics[key]}" for key in ("route", "contract") if key in numerics]
    kernels += [f"OpenBLAS {blas['kernel']} x {blas['threads']}" for blas in numerics.get("blas", [])]
    return ", ".join(kept + kernels)
