"""`ember bench`: how fast a model runs on this machine, and how far that is from what the machine can do."""

import io
import json
import os
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import click

import ember
from ember.bench import Bench, measure, run_seconds
from ember.cli import options
from ember.errors import InputError
from ember.model import Model

BUSY: Final = 0.5
"""Processes that want to run beside this one, from which on figures deserve a warning."""
WIDE: Final = 0.15
"""Spread of repeats, as a share of the median, from which on they do."""


@click.command(
    epilog="Examples: ember bench model.gguf;  ember bench builtin:sarf-nano --threads 1;  "
    "ember bench model.gguf --config configs/roots.yaml"
)
@click.argument("model")
@click.option("--config", metavar="CONFIG", help="A pipeline's config for MODEL: also say how long its run would take.")
@click.option("--prompts", type=click.IntRange(min=1), help="Prompts of the prefill; default: about a second's work.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Medians of so many.")
@options.engine
@options.as_json
def bench(
    model: str,
    config: str | None,
    prompts: int | None,
    repeats: int,
    route: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Time MODEL: opening, prefill, decoding alone and in lockstep, beside this machine's multiply and memory.

    Prompts are made of the model's own tokens, 28 each, of which the first twelve are common to all; every layer's
    last token is captured. Speeds belong to this machine, and to it at rest.
    """
    load = os.getloadavg()[0]
    plans = [] if config is None else _plans(config)
    threads = threads or next((plan["workers"]["blas_threads"] for plan in plans), None)
    started = time.perf_counter()
    opened = ember.open(model, route=route, threads=threads)  # type: ignore[arg-type]
    options.say_notes(opened.notes())
    seconds = time.perf_counter() - started
    plan = None if config is None else _plan_of(opened, plans, config)
    found = measure(opened, prompts, repeats)
    told = _record(opened, found, seconds, load) | ({} if plan is None else {"run": _run(plan, found)})
    options.say_notes(_warnings(found, load))
    options.say((json.dumps(told, ensure_ascii=False) if as_json else "\n".join(_lines(told))) + "\n")


def _plans(config: str) -> list[dict[str, Any]]:
    """Ask the pipeline's own command for its plan: the instrument does not import the factory."""
    from ember.cli.main import cli

    pipeline = cli.get_command(click.Context(cli), "pipeline")
    if pipeline is None:
        raise InputError(f"--config {config}: no `ember pipeline` is installed here that could plan it")
    said = io.StringIO()
    with redirect_stdout(said):
        pipeline.main(["plan", config, "--json"], standalone_mode=False)
    return [json.loads(line) for line in said.getvalue().splitlines()]


def _plan_of(opened: Model, plans: list[dict[str, Any]], config: str) -> dict[str, Any]:
    own = opened.file.path.resolve()
    found = next((plan for plan in plans if Path(plan["model"]["path"]).resolve() == own), None)
    if found is None:
        named = ", ".join(plan["model"]["path"] for plan in plans)
        raise InputError(f"--config {config} runs {named}; expected {own}: give the model that the config names")
    return found


def _run(plan: dict[str, Any], found: Bench) -> dict[str, Any]:
    return {
        "name": plan["name"],
        "prompts": plan["prompts"],
        "rows_shared": plan["rows_shared"],
        "max_tokens": plan["max_tokens"],
        "workers": plan["workers"]["count"],
        "seconds": run_seconds(plan, found),
    }


def _record(opened: Model, found: Bench, seconds: float, load: float) -> dict[str, Any]:
    numerics = opened.numerics()
    kernels = opened.contract([], decodes=True)["phases"]
    return {
        "model": str(opened.file.path),
        "architecture": opened.architecture,
        "layers": opened.n_layers,
        "hidden_size": opened.hidden_size,
        "quant_types": dict(opened.card.quant_types),
        "prompts": found.prompts,
        "tokens": found.tokens,
        "rows": found.rows,
        "open_seconds": seconds,
        "first_seconds": found.first_seconds,
        "figures": {name: figure.record() for name, figure in found.figures.items()},
        "shares": found.shares,
        "private_bytes": found.private_bytes,
        "load": load,
        "kernels": kernels["prefill"] | kernels["decode"],
        "numerics": numerics,
    }


def _warnings(found: Bench, load: float) -> list[str]:
    said = []
    if load > BUSY:
        said.append(f"{load:.1f} processes wanted this machine in the last minute: its figures are those of a busy one")
    wide = [f"{name} {figure.spread:.0%}" for name, figure in found.figures.items() if figure.spread > WIDE]
    if wide:
        said.append(f"repeats lie far apart: {', '.join(wide)}; run it again when nothing else runs")
    return said


def _lines(told: dict[str, Any]) -> list[str]:
    numerics, shares = told["numerics"], told["shares"]
    blas = ", ".join(f"{one['library']} {one['version']} {one['kernel']}" for one in numerics["blas"])
    types = ", ".join(told["quant_types"])
    work = f"{told['prompts']} prompts, {told['tokens']:,} tokens, {told['rows']:,} rows after sharing"
    memory = told["private_bytes"]
    return [
        f"{told['model']} ({told['architecture']}, {told['layers']} layers of {told['hidden_size']}, {types})",
        f"{numerics['route']} route, {_threads(numerics)} on {numerics['cpu']['model']}, {blas}, "
        f"weights {told['kernels']['weights']}",
        "",
        f"{'':28}{'median':>12}  least to most",
        f"{'opening':28}{told['open_seconds']:>10.2f} s  first evaluation {told['first_seconds']:.2f} s",
        _figure(told, "matrix multiply, peak", "peak", 1e9, "GFLOP/s"),
        _figure(told, "memory, reading", "reading", 1e9, "GB/s"),
        _figure(told, "prefill", "prefill") + f"  ({work})",
        _figure(told, "  its matrix products alone", "products") + f"  prefill is {shares['prefill_of_products']:.0%}",
        f"{'  of the peak':28}{shares['prefill_of_peak']:>11.0%}",
        _figure(told, "decoding 1 prompt", "decode_1")
        + f"  reads weights at {shares['decode_1_of_reading']:.0%} of the memory's speed",
        _figure(told, "decoding 16 in lockstep", "decode_16"),
        _figure(told, "decoding 64 in lockstep", "decode_64"),
        *([] if memory is None else [f"{'private memory':28}{memory / 1e6:>9.0f} MB"]),
        *_run_line(told.get("run")),
    ]


def _threads(numerics: dict[str, Any]) -> str:
    count = numerics["blas_threads"]
    return f"{count} thread{'s' * (count > 1)}"


def _figure(told: dict[str, Any], label: str, name: str, scale: float = 1, unit: str = "tok/s") -> str:
    figure: dict[str, Any] = told["figures"][name]
    middle, least, most = (figure[key] / scale for key in ("median", "least", "most"))
    return f"{label:28}{middle:>8.0f} {unit:8}{least:.0f} to {most:.0f}"


def _run_line(run: dict[str, Any] | None) -> list[str]:
    if run is None:
        return []
    tokens = f", {run['max_tokens']} tokens after each" if run["max_tokens"] else ""
    return [
        "",
        f"{run['name']}: {run['prompts']} prompts, {run['rows_shared']:,} rows{tokens}, {run['workers']} workers: "
        f"about {run['seconds']:.0f} s, if this machine does nothing else",
    ]
