"""A causal trace from one end to the other: two runs, and what is made from them.

    <dir>/baseline      a run: clean and corrupt prompts, states at all positions, the answer scored after both
    <dir>/patches.jsonl the stimuli of the second run
    <dir>/patched       a run: the corrupt prompt with one state of the clean one put back, for every place and layer
    <dir>/effects.parquet, summary.json, heat-map.png, heat-map.svg

Both runs are ordinary ones: they go on where they stopped, and `ember pipeline verify` checks them.
"""

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipelines import placing
from pipelines.causal_trace.config import TraceConfig, load_trace
from pipelines.causal_trace.effects import Panel, average, find_effects
from pipelines.causal_trace.effects_table import effects_parquet
from pipelines.causal_trace.pairs import Pair, align_pairs, read_pairs
from pipelines.causal_trace.runs import BASELINE, PATCHED, PATCHES, baseline_config, patch_lines, patched_config
from pipelines.causal_trace.summary import TraceSummary, summarise
from pipelines.errors import IdentityError, RunError
from pipelines.plan import make_plan
from pipelines.progress import Reporter, Silent
from pipelines.reading import load
from pipelines.running import run
from pipelines.state import STATE_DIR
from pipelines.tasks import ENGINE

EFFECTS: Final = "effects.parquet"
SUMMARY: Final = "summary.json"
PICTURES: Final = ("heat-map.png", "heat-map.svg")
OWN: Final = (BASELINE, PATCHED, PATCHES, EFFECTS, SUMMARY, *PICTURES, STATE_DIR)


def run_trace(
    config: TraceConfig | str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    cluster: Any = None,
    reporter: Reporter | None = None,
    opener: str = ENGINE,
) -> TraceSummary:
    """Run a causal trace, or go on with it, and return what came out; arguments are those of `pipelines.run`.

    Raises ConfigError for pairs that cannot be compared, RunError and its kin, and whatever a run raises.
    """
    config = config if isinstance(config, TraceConfig) else load_trace(config)
    folder = config.output.path
    reporter = reporter or Silent()
    options: dict[str, Any] = {"workers": workers, "scheduler": scheduler, "cluster": cluster, "opener": opener}
    _refuse_foreign(folder)
    configs = read_pairs(config)
    baseline = baseline_config(config, configs)
    plan = make_plan(baseline)
    pairs, layers = align_pairs(configs, plan, config.align), plan.captures[0].layers
    outcome = run(baseline, reporter=reporter, **options)
    if outcome.failed:
        raise RunError(
            f"prompts of {outcome.directory} failed, {outcome.failed} in all (see failures.jsonl): their states "
            "cannot be put back; remove their pairs, or run the same command again to retry them"
        )
    lines = list(patch_lines(config, pairs, layers))
    _place_patches(folder, "".join(lines).encode())
    run(patched_config(config, pairs), reporter=_WithoutNotes(reporter), **options)
    return _conclude(config, pairs, layers, len(lines))


class _WithoutNotes:
    """A reporter of the second run: that its prompts repeat each other is what it is for."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.begin, self.step, self.end = reporter.begin, reporter.step, reporter.end

    def say(self, line: str) -> None:
        """Show a line that is no note on the stimuli."""
        if not line.startswith("note: "):
            self._reporter.say(line)


def _conclude(config: TraceConfig, pairs: Sequence[Pair], layers: Sequence[int], planned: int) -> TraceSummary:
    folder = config.output.path
    scores = [_scores(folder / which) for which in (BASELINE, PATCHED)]
    effects, controls = find_effects(pairs, config.sites, layers, *scores)
    panels = average(effects)
    pictures, notes = _draw(config, pairs, panels)
    files = {EFFECTS: effects_parquet(effects), **pictures}
    summary = summarise(folder, effects, controls, panels, planned=planned, files=(*files, SUMMARY), notes=notes)
    files[SUMMARY] = (json.dumps(summary.record, ensure_ascii=False, indent=1) + "\n").encode()
    for name, data in files.items():
        placing.write_over(folder, name, data, "trace")
    return summary


def _scores(run_dir: Path) -> dict[str, float]:
    """Log-probability of the expected text by stimulus id, from a run whose every file is as its manifest says."""
    table = load(run_dir, verify=True, partial=True).generations.select(["stimulus_id", "expected_log_probability"])
    pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {name: value for name, value in pairs if np.isfinite(value)}


def _draw(config: TraceConfig, pairs: Sequence[Pair], panels: Sequence[Panel]) -> tuple[dict[str, bytes], list[str]]:
    if not panels:
        return {}, ["no heat map: no patch has a result"]
    try:
        from pipelines.causal_trace.heat_map import draw, picture
    except ImportError:
        return {}, ['no heat map: it needs matplotlib 3.11 or newer; run `pip install "ember[analysis]"`']
    caption = (
        "Each cell: one state of the clean prompt's evaluation put back into the evaluation of the corrupt prompt, at "
        "one layer and one token; by how much that raises the log-probability of the clean answer, in % of the "
        "difference between the two prompts (sums over pairs). Column all: all tokens at "
        "once. Bold: tokens in which the prompts differ."
    )
    rtl = reads_right_to_left([pair.config.clean for pair in pairs])
    side = " Prompts are read from right to left." if rtl else ""
    figure = draw(panels, f"{config.name}: {Path(config.model.path).name}", caption + side, right_to_left=rtl)
    return {name: picture(figure, name.rpartition(".")[2]) for name in PICTURES}, []


def reads_right_to_left(texts: Sequence[str]) -> bool:
    """Whether most letters of `texts` are of a script that is written from right to left."""
    kinds = [unicodedata.bidirectional(character) for text in texts for character in text]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"output.dir {folder} is a file; choose another folder")
    found = sorted(path.name for path in folder.iterdir() if path.name not in OWN) if folder.is_dir() else []
    if found:
        shown = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise IdentityError(f"{folder} holds what no causal trace writes ({shown}); choose another output.dir")


def _place_patches(folder: Path, data: bytes) -> None:
    """Write the stimuli of the second run; what is there already must be the same once that run has begun."""
    path = folder / PATCHES
    if path.is_file() and path.read_bytes() == data:
        return
    if (folder / PATCHED).exists():
        raise IdentityError(
            f"{folder / PATCHED} holds patches of other pairs, sites, layers or alignment; undo the change to go on "
            "with it, or give the new trace an output.dir of its own"
        )
    placing.write_over(folder, PATCHES, data, "trace")
