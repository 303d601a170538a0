"""How fast this machine runs a model: what `ember bench` measures, each figure beside the ceiling that holds it.

Prefill is the extraction of every layer's last token from prompts of one template. Its ceiling is the matrix products
of the model's own shapes on the same rows and nothing else; that of decoding is reading all weights once an evaluation.
Everything is measured in turns in one process, so that a busy moment of the machine hits all figures alike.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import threadpoolctl

from ember.capture import Captures
from ember.errors import InputError
from ember.gguf import GGUFFile
from ember.model import Model
from ember.trace import measure_peak
from ember.units import build_tree
from ember.work import Floats, UnitWork

PROMPT_TOKENS: Final = 28
LOCKSTEP: Final = (1, 16, 64)
"""How many prompts are continued at once."""
STEPS: Final = 32
"""Tokens that a continuation has at most; a slow model ends earlier."""
LEAST_STEPS: Final = 4
RUN_SECONDS: Final = 0.7
"""What one run of a figure should take; how much work that is, is found from the machine's matrix multiply."""
FEWEST: Final = 8
MOST: Final = 200
"""Prompts of a prefill, where the caller leaves their number to this module."""
_WORDS: Final = "Question: say which consonants are the root of the word, and what its pattern means in grammar. "
_MEMORY_FLOATS: Final = 32 << 20
"""128 MB are more than a processor's caches hold."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity, measured several times."""

    values: tuple[float, ...]
    unit: str

    @property
    def median(self) -> float:
        """The value that counts."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """How far apart the values lie, as a share of the median."""
        return (max(self.values) - min(self.values)) / self.median

    def record(self) -> dict[str, Any]:
        """Return plain data."""
        return {"median": self.median, "least": min(self.values), "most": max(self.values), "unit": self.unit}


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured of one model in this process."""

    prompts: int
    tokens: int
    rows: int
    """Token rows after sharing prefixes."""
    figures: dict[str, Figure]
    shares: dict[str, float]
    """Figures as a share of what holds them."""
    first_seconds: float
    """The first evaluation, which loads kernels and decodes resident weights."""
    private_bytes: int | None
    """Memory that this process has to itself after prefill and decoding; None where the system does not say."""

    @property
    def rows_per_second(self) -> float:
        """Prefill speed in rows after sharing."""
        return self.figures["prefill"].median * self.rows / self.tokens

    def lockstep_speed(self, prompts: int) -> float:
        """Tokens a second when so many prompts are continued at once, by the nearest smaller number measured."""
        count = max((one for one in LOCKSTEP if one <= prompts), default=LOCKSTEP[0])
        return self.figures[f"decode_{count}"].median


class Products:
    """The matrix products of a model's layers on random values: the ceiling of a prefill on this BLAS.

    In the last layer only `last_rows` go through what no other row needs, as when last tokens are captured.
    """

    def __init__(self, file: GGUFFile, rows: int, last_rows: int) -> None:
        rng = np.random.default_rng(0)
        sizes = {shape for _, _, shape in layer_matrices(file)}
        self._weights: dict[tuple[int, ...], Floats] = {s: rng.standard_normal(s, np.float32) for s in sizes}
        self._inputs: dict[int, Floats] = {k: rng.standard_normal((rows, k), np.float32) for _, k in sizes}
        self._outputs: dict[int, Floats] = {n: np.empty((rows, n), np.float32) for n, _ in sizes}
        self._work = product_rows(file, rows, last_rows)

    def run(self) -> None:
        """Multiply once."""
        for (n, k), rows in self._work:
            np.matmul(self._inputs[k][:rows], self._weights[n, k].T, out=self._outputs[n][:rows])


def product_rows(file: GGUFFile, rows: int, last_rows: int) -> list[tuple[tuple[int, int], int]]:
    """Shape of every matrix of the layers in turn, and how many rows it multiplies."""
    shapes = layer_matrices(file)
    last = max(layer for layer, _, _ in shapes)
    return [(shape, last_rows if layer == last and not _makes_keys(name) else rows) for layer, name, shape in shapes]


def product_flops(file: GGUFFile, rows: int, last_rows: int) -> float:
    """Floating-point operations of `Products`: two for each value of a weight and row."""
    return float(sum(2 * count * n * k for (n, k), count in product_rows(file, rows, last_rows)))


def layer_matrices(file: GGUFFile) -> list[tuple[int, str, tuple[int, int]]]:
    """Layer, name and shape [out, in] of every matrix in the layers of a file."""
    found = [(name.split("."), info.shape) for name, info in file.tensors.items() if name.startswith("blk.")]
    return [(int(parts[1]), parts[2], (shape[0], shape[1])) for parts, shape in found if len(shape) == 2]


def _makes_keys(name: str) -> bool:
    return name in ("attn_k", "attn_v", "attn_qkv")


def template_prompts(model: Model, count: int) -> list[list[int]]:
    """Make `count` prompts of one length: three sevenths of the tokens in common, then some of each one's own."""
    length = min(PROMPT_TOKENS, model.context_length - _steps(model))
    head, own = 3 * length // 7, max(1, length // 7)
    text = model.tokenizer.encode_ids([_WORDS])[0].tolist()
    common = (text * math.ceil(length / len(text)))[: length - own]
    rng = np.random.default_rng(0)
    plain = np.array([token for token in range(model.vocab_size) if _is_plain(model, token)])
    fillers = rng.choice(plain, (count, own)).tolist()
    return [common[:head] + filler + common[head:] for filler in fillers]


def _is_plain(model: Model, token: int) -> bool:
    return token < model.tokenizer.vocab_size and not model.tokenizer.is_special(token)


def _steps(model: Model) -> int:
    if model.context_length < 2 * LEAST_STEPS:
        raise InputError(
            f"{model.file.path}: its context of {model.context_length} tokens is too short to be timed; "
            f"expected at least {2 * LEAST_STEPS}"
        )
    return min(STEPS, model.context_length // 2)


class _StepClock:
    """Told every new token (see `ember.engine.choosing.Listener`): when each step ended, and whether it is enough."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self._enough = False

    def __call__(self, _prompt: int, _token: int, token_ids: list[int]) -> bool:
        if len(token_ids) > len(self.stamps):
            # decided once a step: all prompts end with the same one
            self.stamps.append(time.perf_counter())
            self._enough = len(self.stamps) > LEAST_STEPS and self.stamps[-1] - self.stamps[0] > RUN_SECONDS
        return self._enough


def decode_speed(model: Model, prompts: Sequence[Sequence[int]], steps: int) -> float:
    """Tokens a second of greedy lockstep decoding, the prompts' own evaluation not counted."""
    clock = _StepClock()
    model.run_unit(UnitWork(tuple(np.array(one, np.int32) for one in prompts), max_tokens=steps), listener=clock)
    return len(prompts) * (len(clock.stamps) - 1) / (clock.stamps[-1] - clock.stamps[0])


def measure_reading(threads: int) -> float:
    """Bytes a second at which this process reads memory: BLAS dot products of more than the caches hold."""
    x = np.ones(_MEMORY_FLOATS, np.float32)
    with threadpoolctl.threadpool_limits(threads, "blas"):
        np.dot(x, x)
        started = time.perf_counter()
        np.dot(x, x)
        return x.nbytes / (time.perf_counter() - started)


def decoded_from(model: Model) -> int:
    """Bytes of weights that one decode evaluation reads: as the file holds them on the fast route, else as float32."""
    tensors = model.file.tensors
    head = tensors.get("output.weight") or tensors["token_embd.weight"]
    read = [info for name, info in tensors.items() if name.startswith("blk.") and len(info.shape) == 2]
    if model.route == "fast":
        return sum(info.nbytes for info in (*read, head))
    return sum(4 * math.prod(info.shape) for info in (*read, head))


def private_bytes() -> int | None:
    """RssAnon + RssShmem of this process: mapped files are not in it."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "RssAnon" not in fields:
        return None
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


def measure(model: Model, prompts: int | None = None, repeats: int = 3) -> Bench:
    """Time prefill, decoding and their ceilings in turns, `repeats` times.

    `prompts`: how many the prefill has; None: as many as take about a second. Raises InputError.
    """
    if prompts is not None and (isinstance(prompts, bool) or prompts < 1):
        raise InputError(f"prompts {prompts!r}: expected an integer of at least 1")
    work = _Work(model, prompts)
    first = work.warm_up()
    private = private_bytes()  # before the ceilings take memory of their own
    work.prepare_ceilings()
    found: dict[str, list[float]] = {name: [] for name in work.runs}
    for _ in range(repeats):
        for name, (run, _unit) in work.runs.items():
            found[name].append(run())
    figures = {name: Figure(tuple(values), work.runs[name][1]) for name, values in found.items()}
    count, tokens = len(work.prompts), work.tokens
    return Bench(count, tokens, work.rows, figures, work.shares(figures), first, private)


class _Work:
    """What is timed, by name, with the unit of what each run gives."""

    def __init__(self, model: Model, prompts: int | None) -> None:
        self._model, self._steps, self._threads = model, _steps(model), model.numerics()["blas_threads"]
        count = prompts or _fitting(model, measure_peak(self._threads).flops_per_second)
        self._made = template_prompts(model, max(count, *LOCKSTEP))
        self.prompts = self._made[:count]
        self.tokens = sum(map(len, self.prompts))
        self.rows = len(build_tree([np.array(one, np.int32) for one in self.prompts]).tokens)
        self._products: Products | None = None
        self.runs: dict[str, tuple[Callable[[], float], str]] = {
            "peak": (lambda: measure_peak(self._threads).flops_per_second, "FLOP/s"),
            "prefill": (self._prefill, "tok/s"),
            "products": (self._ceiling, "tok/s"),
            "reading": (lambda: measure_reading(self._threads), "B/s"),
            **{f"decode_{size}": (partial(self._decode, size), "tok/s") for size in LOCKSTEP},
        }

    def warm_up(self) -> float:
        """Run what loads kernels, decodes weights and takes memory; returns the seconds of the first evaluation."""
        first = _timed(lambda: self._capture(self.prompts[:FEWEST]))
        self._capture(self.prompts)
        decode_speed(self._model, self._made[: LOCKSTEP[-1]], 2)
        return first

    def prepare_ceilings(self) -> None:
        """Make the matrices whose products are timed alone."""
        self._products = Products(self._model.file, self.rows, len(self.prompts))
        self._products.run()

    def shares(self, figures: dict[str, Figure]) -> dict[str, float]:
        """Return speeds as shares of their ceilings."""
        median = {name: figure.median for name, figure in figures.items()}
        flops = median["prefill"] * product_flops(self._model.file, self.rows, len(self.prompts)) / self.tokens
        return {
            "prefill_of_products": median["prefill"] / median["products"],
            "prefill_of_peak": flops / median["peak"],
            "decode_1_of_reading": median["decode_1"] * decoded_from(self._model) / median["reading"],
        }

    @property
    def _ready(self) -> Products:
        assert self._products is not None, "prepare_ceilings makes them"
        return self._products

    def _capture(self, prompts: Sequence[Sequence[int]]) -> Captures:
        return self._model.capture(tokens=prompts, site="after_layer", layers="all")

    def _prefill(self) -> float:
        return self.tokens / _timed(lambda: self._capture(self.prompts))

    def _ceiling(self) -> float:
        with threadpoolctl.threadpool_limits(self._threads, "blas"):
            return self.tokens / _timed(self._ready.run)

    def _decode(self, size: int) -> float:
        return decode_speed(self._model, self._made[:size], self._steps)


def _timed(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _fitting(model: Model, flops_per_second: float) -> int:
    """Prompts whose prefill takes about `RUN_SECONDS` at three quarters of the peak."""
    values = sum(shape[0] * shape[1] for _, _, shape in layer_matrices(model.file))
    rows = RUN_SECONDS * 0.75 * flops_per_second / (2 * values)
    return int(min(MOST, max(FEWEST, rows // (PROMPT_TOKENS * 4 / 7))))


def run_seconds(plan: dict[str, Any], bench: Bench) -> float:
    """Estimate how long a planned run takes (the record of `ember pipeline plan`), with the speeds measured here.

    Rows and tokens by the speed of this process, shared by the plan's workers; starting up as the plan has it. What
    experiments and interventions cost is not in it.
    """
    rows = plan["rows_shared"] + plan["rows_scored"]
    steps = max(0, plan["max_tokens"] - 1)
    together = max(1, plan["prompts"] // plan["units"])
    work = rows / bench.rows_per_second + plan["prompts"] * steps / bench.lockstep_speed(together)
    told = plan["time"]
    start = told["seconds"] - told["prefill_seconds"] - told["decode_seconds"]
    return float(start + work / max(1, min(plan["workers"]["count"], plan["units"])))
