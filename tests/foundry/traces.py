"""Records the traces of tiny models that tests/ember/data holds.

    python -m tests.foundry.traces            # event lists with norms, from the reference route
    python -m tests.foundry.traces --bits     # fingerprints of tiny_llama on both routes, added for this machine

An event's line holds what both routes must tell alike: not times, kernels, how weights are kept, and fingerprints.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import ember
from ember.engine.events import Event
from ember.numerics import cpu_record
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import PLAIN
from tests.foundry.tiny import tiny_llama

DATA: Final = Path(__file__).resolve().parents[1] / "ember/data"
FINGERPRINTS: Final = DATA / "trace_fingerprints.json"
PROMPT: Final = (1, 2, 3, 4, 5, 6)
MAX_TOKENS: Final = 3
MODELS: Final = ("tiny_llama", *PLAIN)
COLUMNS: Final = (
    "name", "op_kind", "phase", "layer", "token_index", "input_shape", "output_shape", "input_bytes", "output_bytes",
    "estimated_flops", "fused_into",
)  # fmt: skip


def write_model(folder: Path, name: str) -> Path:
    """Write the tiny model `name` and return its path."""
    path = folder / f"{name}.gguf"
    return tiny_llama(path) if name == "tiny_llama" else tiny_family(path, PLAIN[name])


def traced(path: Path, route: str, **options: Any) -> list[Event]:
    """Trace the recorded prompt and its continuation."""
    with ember.open(path, route=route, threads=1) as model:
        return model.trace(tokens=PROMPT, max_tokens=MAX_TOKENS, stop_at_eos=False, values=True, **options).events


def line(event: Event) -> str:
    """Give an event as a line of the recorded list, without its norm."""
    return " ".join(_cell(getattr(event, column)) for column in COLUMNS)


def _cell(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else "-" if value is None else str(value)


def norms(events: Sequence[Event]) -> list[float]:
    """Give the norms of all outputs, -1 where none was left in memory."""
    return [-1.0 if event.values.norm is None else event.values.norm for event in events]


def recorded(name: str) -> tuple[list[str], list[float]]:
    """Read the event list of a model: lines, and norms as `norms` gives them."""
    rows = (DATA / f"trace_{name}.txt").read_text(encoding="utf-8").splitlines()[1:]
    cells = [row.rpartition(" ") for row in rows]
    return [one[0] for one in cells], [float(one[2]) for one in cells]


def machine(path: Path) -> str:
    """Name what the bits depend on besides the file: BLAS kernel, versions, vector extensions."""
    with ember.open(path, threads=1) as model:
        numerics = model.numerics()
    blas = numerics["blas"][0]
    versions = [f"{name} {numerics['versions'].get(name)}" for name in ("numpy", "numba", "llvmlite")]
    return ", ".join([f"{blas['library']} {blas['version']} {blas['kernel']}", *versions, *cpu_record()["features"]])


def fingerprints(path: Path) -> dict[str, list[str | None]]:
    """Give the fingerprints of both routes."""
    return {route: [event.values.fingerprint for event in traced(path, route)] for route in ("reference", "fast")}


def main(arguments: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: write_model(Path(folder), name) for name in MODELS}
        if "--bits" in arguments:
            known = json.loads(FINGERPRINTS.read_text(encoding="utf-8")) if FINGERPRINTS.exists() else {}
            known[machine(paths["tiny_llama"])] = fingerprints(paths["tiny_llama"])
            FINGERPRINTS.write_text(json.dumps(known, indent=0) + "\n", encoding="utf-8")
            return
        for name, path in paths.items():
            events = traced(path, "reference")
            rows = [f"{line(event)} {norm:.9g}" for event, norm in zip(events, norms(events), strict=True)]
            text = "\n".join([" ".join([*COLUMNS, "norm"]), *rows])
            (DATA / f"trace_{name}.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
