"""What is written once all pieces are through: failures, the manifest, and the times, which are no part of it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ember.sites import SITES
from ember.validation import rung_of
from ember.validation.ladder import NONE
from pipelines import guard
from pipelines.canonical import plain
from pipelines.config.selectors import write_position
from pipelines.data_card import write_card
from pipelines.errors import RunError
from pipelines.identity import RunIdentity
from pipelines.manifest import AttentionRecord, CaptureRecord, Manifest, Origin, build_manifest, write_manifest
from pipelines.parts import PartFile
from pipelines.pieces import split_pieces
from pipelines.plan import Plan
from pipelines.receipts import Receipt
from pipelines.scoring import generation_record, scoring_record
from pipelines.standing_files import replace_file
from pipelines.state import RUNTIME
from pipelines.tasks import EngineRecord

FAILURES: Final = "failures.jsonl"


@dataclass(frozen=True, slots=True)
class Timing:
    """One session: when, where and how fast. Kept outside the run's identity."""

    started: str
    """UTC, ISO 8601."""
    seconds: float
    host: str
    pid: int
    command: tuple[str, ...]
    scheduler: str
    workers: int
    units: int
    """Pieces computed in this session."""
    seconds_of_units: float
    """How long units ran: without start and end."""
    tokens_per_second: float
    """Token rows of prompts, before sharing, and new tokens, while units ran."""
    outcome: str


def write_outcome(
    run_dir: Path, plan: Plan, identity: RunIdentity, engine: EngineRecord, stimuli: PartFile, done: Sequence[Receipt]
) -> Manifest:
    """Write `failures.jsonl`, if any, the data card, and then the manifest.

    Raises RunError if a sample has no receipt or two.
    """
    ordered = sorted(done, key=lambda receipt: receipt.start)
    _check_cover(ordered, len(plan.samples))
    failed = write_failures(run_dir, plan, ordered)
    manifest = build_manifest(
        identity.inputs,
        make_origin(plan, identity, engine, ordered),
        samples=len(plan.samples),
        parts=[stimuli, *(part for receipt in ordered for part in receipt.parts)],
        failed_samples=failed,
        splits=split_pieces(receipt.piece for receipt in ordered),
    )
    write_card(run_dir, manifest, sorted({name for sample in plan.samples for name in sample.stimulus.labels}))
    write_manifest(run_dir, manifest)
    return manifest


def write_failures(run_dir: Path, plan: Plan, done: Iterable[Receipt]) -> list[int]:
    """Write a line for each prompt without a result and return their sample indices; without any, remove the file."""
    lines = []
    failures = [(receipt, failure) for receipt in done for failure in receipt.failures]
    for receipt, failure in failures:
        stimulus = plan.samples[failure.sample_index].stimulus
        told = {"stimulus_id": stimulus.id, "source_index": stimulus.source_index, "piece": receipt.piece}
        lines.append(json.dumps(asdict(failure) | told, ensure_ascii=False, sort_keys=True) + "\n")
    path = run_dir / FAILURES
    if lines:
        replace_file(run_dir, path, "".join(lines))
    else:
        path.unlink(missing_ok=True)
    return [failure.sample_index for _, failure in failures]


def add_timing(run_dir: Path, timing: Timing) -> None:
    """Add a session to `.ember/runtime.json`."""
    path = run_dir / RUNTIME
    try:
        sessions = json.loads(path.read_bytes())["sessions"]
    except (OSError, ValueError, KeyError):
        sessions = []
    replace_file(run_dir, path, json.dumps({"sessions": [*sessions, asdict(timing)]}, indent=1) + "\n")


def make_origin(plan: Plan, identity: RunIdentity, engine: EngineRecord, done: Sequence[Receipt]) -> Origin:
    """Say where the tensors of a run came from."""
    card = plan.source.card
    measured = guard.measure(done, card.vocab_size)
    numerics: dict[str, Any] = plain(engine.numerics)
    return Origin(
        name=plan.config.name,
        dtype=plan.config.output.dtype,
        captures=tuple(
            CaptureRecord(
                planned.name,
                planned.site,
                planned.layers,
                position_text(wanted.position),
                card.hidden_size if SITES[planned.site].width == "hidden" else card.vocab_size,
                planned.observe,
                dict(wanted.where),
            )
            for planned, wanted in zip(plan.captures, plan.config.hooks.capture, strict=True)
        ),
        tensor_contract=plain(engine.contract),
        model=plain(card.record()),
        tokenizer=plain(plan.source.tokenizer.record()),
        numerics=numerics | {"versions": numerics.get("versions", {}) | {"ember": identity.ember}},
        validation=_shown(plan, numerics["route"], smoke=measured is not None and measured.passed),
        guard=dict(measured.record) if measured else None,
        attention=tuple(
            AttentionRecord(planned.name, planned.layers, position_text(wanted.position), dict(wanted.where))
            for planned, wanted in zip(plan.hooks.attention, plan.config.hooks.attention, strict=True)
        ),
        hooks=plan.hooks.record(plan.config.hooks),
        generation=generation_record(plan.config.generate, plan.config.score),
        scoring=scoring_record(plan.config.score, plan.scores),
        stimuli=plan.stimuli_record,
    )


def _shown(plan: Plan, route: str, *, smoke: bool) -> dict[str, Any]:
    """Say which rung of the ladder the package's data show for this family, these types and this route.

    Where they show nothing, the run's own smoke guard may.
    """
    card = plan.source.card
    shown = rung_of(card.architecture, card.quant_types, route).record()
    return shown | {"rung": "smoke"} if smoke and shown["rung"] == NONE else shown


def position_text(position: Any) -> str:
    """Write a position in one word or as compact JSON."""
    written = write_position(position)
    return written if isinstance(written, str) else json.dumps(written)


def _check_cover(ordered: Sequence[Receipt], samples: int) -> None:
    at = 0
    for receipt in ordered:
        if receipt.start != at:
            first, last = sorted((at, receipt.start))
            raise RunError(f"samples {first} to {last} have no receipt, or two; run the same command again")
        at = receipt.end
    if at != samples:
        raise RunError(f"samples {at} to {samples} have no receipt; run the same command again")
