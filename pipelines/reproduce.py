"""Making a finished run anew from its directory alone, and saying what differs first: tokens, then values, then bits.

    found = reproduce("outputs/roots", model="model.gguf")
    found.level                 # "nothing", "bits", "values", "tokens"

The config is the run's own, with the route and the units that were resolved then; the stimuli are those that it
stored, so that the files they came from are not needed. Only the model's file is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from ember.sites import SITES
from ember.tolerances import TOLERANCES
from pipelines.canonical import plain
from pipelines.comparison import Comparison, compare
from pipelines.comparison.attention import ATTENTION
from pipelines.comparison.matching import read_samples
from pipelines.comparison.records import CaptureComparison, ColumnComparison, LayerComparison
from pipelines.config import RunConfig, config_sha256, load_config
from pipelines.errors import VerifyError
from pipelines.export_files import refuse_inside
from pipelines.parts import STIMULI_PATH
from pipelines.progress import Reporter
from pipelines.reading import Run, load
from pipelines.running import run as run_config
from pipelines.standing_files import CONFIG
from pipelines.stored_stimuli import read_stored

Level = Literal["nothing", "bits", "values", "tokens"]
"""What differs first, the coarsest last: each implies that what is finer may differ too."""
BOUND: Final = TOLERANCES["fast_vs_reference"].bound
"""max|d| / rms of a row up to which only bits differ: what two right computations of one model may be apart."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came out of a run made anew."""

    original: str
    directory: str
    """Where the new run lies."""
    level: Level
    first: str
    """The first difference, in words; empty if there is none."""
    causes: tuple[str, ...]
    """What made the two runs different: model, tokenizer, numerics, …"""
    semantic_hash: str
    """Of the original; the new run's is another also where only what made it differs, and nothing that it holds."""
    semantic_hash_now: str
    comparison: Comparison | None
    """None where the semantic hashes agree, so that there is nothing to compare."""

    @property
    def exit_status(self) -> int:
        """0 if every bit came out as it was, else 1."""
        return 0 if self.level == "nothing" else 1

    @property
    def record(self) -> dict[str, Any]:
        """The outcome as plain data."""
        told: dict[str, Any] = plain(replace(self, comparison=None))
        return told | {"comparison": self.comparison.record if self.comparison else None}

    def lines(self) -> list[str]:
        """Say it in words."""
        said = {
            "nothing": "reproduced: every token, value and bit is the same",
            "bits": f"bits differ, values agree within {BOUND:g} of a row's rms",
            "values": "values differ",
            "tokens": "tokens differ",
        }
        causes = [f"cause       {line}" for line in self.causes] if self.level != "nothing" else []
        first = [f"first       {self.first}"] if self.first else []
        return [f"A  {self.original}", f"B  {self.directory}", "", *causes, *first, said[self.level]]


def reproduce(
    run_dir: str | Path,
    model: str | None = None,
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    reporter: Reporter | None = None,
) -> Reproduction:
    """Make the run in `run_dir` anew in the directory `out` (by default RUN-reproduced), and compare the two.

    `model` is the path of the model's file (by default that of the config); another file than the run's own is named
    as the cause of what differs. A reproduction that was interrupted goes on. Raises InputError, RunError and its kin
    for a run that is unfinished or damaged, and whatever a run may raise.
    """
    original = load(run_dir, verify=True, partial=True)
    config = _config(original)
    target = Path(out) if out is not None else original.directory.absolute().with_name(_beside(original.directory))
    refuse_inside(target, original.directory)
    section = config.model.model_copy(update={"path": model or config.model.path, "sha256": None})
    output = config.output.model_copy(update={"dir": str(target)})
    config = config.model_copy(update={"model": section, "output": output})
    stimuli = read_stored(original.directory, original.manifest)
    run_config(config, workers=workers, scheduler=scheduler, reporter=reporter, stimuli=stimuli)
    return compare_runs(original, load(target, partial=True))


def _beside(run_dir: Path) -> str:
    return f"{run_dir.absolute().name}-reproduced"


def _config(run: Run) -> RunConfig:
    path = run.directory / CONFIG
    config = load_config(path)
    if config_sha256(config) != run.manifest.inputs.config_sha256:
        raise VerifyError(
            f"{path} is not the config that the manifest was made with: it was edited, or belongs to another run; "
            "put the run's own back"
        )
    return config


def compare_runs(original: Run, again: Run) -> Reproduction:
    """Compare a run with its reproduction."""
    old, new = original.manifest.semantic_hash, again.manifest.semantic_hash
    where = str(original.directory), str(again.directory)
    if old == new:
        return Reproduction(*where, "nothing", "", (), old, new, None)
    found = compare(original.directory, again.directory)
    level, first = _first(original, again, found)
    causes = tuple(line for lines in found.differences.values() for line in lines)
    return Reproduction(*where, level, first, causes, old, new, found)


def _first(original: Run, again: Run, found: Comparison) -> tuple[Level, str]:
    """Name the first difference; "nothing" only where both runs lost the same samples and all parts hold the same."""
    if _held(original) == _held(again):
        return "nothing", ""
    return next(_differences(original, again, found))


def _held(run: Run) -> tuple[tuple[int, ...], dict[tuple[str, int, int], tuple[int, str]]]:
    """Samples that failed, and what each part holds, by its path and range of samples."""
    parts = run.manifest.parts
    held = {(part.path, part.sample_start, part.sample_end): (part.rows, part.content_sha256) for part in parts}
    return run.manifest.failed_samples, held


def _differences(original: Run, again: Run, found: Comparison) -> Iterator[tuple[Level, str]]:
    """Differences, the coarsest first; at least one where the two runs do not hold the same."""
    unlike, alone = _parts(original, again)
    if (said := _tokens(original, again)) is not None:
        yield "tokens", said
    layers = sorted(_layers(found), key=_order)
    for capture, layer in layers:
        if layer.not_finite or (layer.max_relative or 0.0) > BOUND:
            yield "values", _told(capture, layer)
    yield from (("values", said) for said in _other_values(found))
    if STIMULI_PATH in unlike:
        yield "values", f"{STIMULI_PATH} does not hold the same"
    for capture, layer in layers:
        if layer.identical < layer.rows:
            yield "bits", _told(capture, layer)
    yield from (("bits", _column(column)) for column in _columns(found))
    if unlike:
        yield "values", f"{unlike[0]} does not hold the same, in columns that are not compared one by one"
    if alone:
        yield "bits", f"{alone[0]} is in one of the two alone: samples were computed in other units"


def _tokens(a: Run, b: Run) -> str | None:
    """Say where the prompts' tokens part first, in the order of the original's samples."""
    one, other = read_samples(a), read_samples(b)
    number = {name: i for i, name in enumerate(other.ids)}
    for i, name in enumerate(one.ids):
        if name not in number:
            return f"stimulus {name!r} is not in the new run"
        mine, theirs = one.tokens_of(i), other.tokens_of(number[name])
        if not np.array_equal(mine, theirs):
            shared = min(len(mine), len(theirs))
            apart = np.flatnonzero(mine[:shared] != theirs[:shared])
            at = int(apart[0]) if len(apart) else shared
            return f"stimulus {name!r}, token {at}: {_token(mine, at)} was, {_token(theirs, at)} is"
    return None


def _token(tokens: Any, at: int) -> str:
    return str(tokens[at]) if at < len(tokens) else "no token"


def _layers(found: Comparison) -> Iterator[tuple[CaptureComparison, LayerComparison]]:
    yield from ((capture, layer) for capture in (*found.captures, *found.attention) for layer in capture.layers)


def _order(pair: tuple[CaptureComparison, LayerComparison]) -> tuple[int, int]:
    """In the order of computing: by layer, then by site; the two sites after all layers last."""
    capture, layer = pair
    number = layer.layer if layer.layer >= 0 else 2**31
    sites = list(SITES)
    sites.insert(sites.index("after_attention"), ATTENTION)
    return number, sites.index(capture.site)


def _told(capture: CaptureComparison, layer: LayerComparison) -> str:
    at = f"layer {layer.layer}, " if layer.layer >= 0 else ""
    apart = layer.rows - layer.identical
    worst = layer.worst
    far = f"at most {layer.max_relative:.3g} of a row's rms" if layer.max_relative is not None else "not finite"
    head = f", head {worst.head}" if worst and worst.head is not None else ""
    place = f" (stimulus {worst.stimulus_id!r}, position {worst.position}{head})" if worst else ""
    return f"capture {capture.capture!r}, {capture.site}, {at}{apart} of {layer.rows} rows, {far}{place}"


def _other_values(found: Comparison) -> Iterator[str]:
    texts = found.generations
    if texts is not None and texts.partings:
        first = texts.partings[0]
        where = f"the continuation of {first.stimulus_id!r} at step {first.step}"
        yield f"{where}: {first.text_a!r} was, {first.text_b!r} is"
    bound = TOLERANCES["log_probability"].bound
    for column in _columns(found):
        if column.max_difference is None or column.max_difference > bound:
            yield _column(column)
    if found.findings is not None and found.findings.same < found.findings.compared:
        yield f"what experiments found in {found.findings.first_apart[0]!r}"
    stimuli = found.stimuli
    for lost, where in ((stimuli.first_failed_only_a, "original"), (stimuli.first_failed_only_b, "new run")):
        if lost:
            yield f"stimulus {lost[0]!r} failed in the {where} alone"
    if found.one_sided:
        yield "rows that only one of the two runs has; see `ember pipeline compare`"


def _columns(found: Comparison) -> tuple[ColumnComparison, ...]:
    return found.answers.columns if found.answers else ()


def _column(column: ColumnComparison) -> str:
    far = "" if column.max_difference is None else f", up to {column.max_difference:g} apart"
    return f"{column.column} of {column.apart} stimuli, {column.first!r} the first{far}"


def _parts(original: Run, again: Run) -> tuple[list[str], list[str]]:
    """Paths of parts that both have and that hold something else, and of those that one run alone has."""
    (_, mine), (_, theirs) = _held(original), _held(again)
    unlike = [path for path, *_ in sorted(key for key in mine.keys() & theirs.keys() if mine[key] != theirs[key])]
    return unlike, [path for path, *_ in sorted(mine.keys() ^ theirs.keys())]
