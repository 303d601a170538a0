"""What is settled before the first fit: the run verified, problems made, matrices chosen, where results go."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pipelines.canonical import sha256_of
from pipelines.errors import ConfigError
from pipelines.probes.config import ProbeConfig
from pipelines.probes.problems import (
    Problem,
    Refusal,
    Stimuli,
    check_size,
    choose_captures,
    make_problems,
    read_stimuli,
)
from pipelines.probes.tasks import BASELINES, ProbeTask, Source, make_task, text_beside
from pipelines.reading import Run, load
from pipelines.state import STATE_DIR

VERSION: Final = 3
"""Goes up when the same plan gives other numbers."""
FOLDER: Final = "probes"


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep over one run, before anything is computed."""

    config: ProbeConfig
    run: Run
    untrained: Run | None
    out: Path
    stimuli: Stimuli
    problems: list[Problem]
    refusals: list[Refusal]
    sources: list[Source]

    @property
    def plan(self) -> dict[str, Any]:
        """What decides the numbers, as plain data."""
        told = self.config.model_dump(
            mode="json", by_alias=True, exclude={"name", "runs", "run", "output", "untrained"}
        )
        hashes = {"semantic_hash": self.run.manifest.semantic_hash, "version": VERSION}
        if self.untrained is not None:
            hashes["untrained_semantic_hash"] = self.untrained.manifest.semantic_hash
        return told | hashes

    @property
    def plan_sha256(self) -> str:
        """The hash that stands for the plan and the run."""
        return sha256_of(self.plan)

    @property
    def folder(self) -> Path:
        """Where tasks put their results."""
        return self.out / STATE_DIR / self.plan_sha256[:16]

    def _home(self, source: Source) -> Path:
        other = source.features == "untrained" and self.untrained is not None
        return self.untrained.directory if other and self.untrained else self.run.directory

    @property
    def tasks(self) -> list[ProbeTask]:
        """One task for each matrix."""
        config = self.config
        return [
            make_task(self._home(source), self.folder, source, config.probes, config.strengths)
            for source in self.sources
        ]


def settle(config: ProbeConfig, directory: Path) -> Sweep:
    """Verify a run and settle what the plan asks of it; raises what the run or the plan, named, is refused with."""
    try:
        return _settle(config, directory)
    except ConfigError as error:
        if config.source is None:
            raise
        raise ConfigError(f"{config.source}: {error}") from error


def _settle(config: ProbeConfig, directory: Path) -> Sweep:
    run = load(directory, verify=True, partial=config.partial)
    captures = choose_captures(config, run)
    stimuli = read_stimuli(config, run, [capture for capture, _ in captures])
    for capture, _ in captures:
        check_size(capture.width, len(stimuli.samples))
    problems, refusals = make_problems(config, stimuli)
    states = [
        Source("states", capture.name, capture.site, layer, capture.position, capture.width)
        for capture, layers in captures
        for layer in layers
    ]
    untrained = _open_untrained(config, run)
    peers = [replace(source, features="untrained") for source in states] if untrained else []
    # those of the last token are there whatever was captured
    texts = dict.fromkeys(text_beside(one, name) for one in (Source("states"), *states) for name in BASELINES)
    sources = [*texts, *states, *peers]
    return Sweep(config, run, untrained, _out(config, directory), stimuli, problems, refusals, sources)


def _open_untrained(config: ProbeConfig, run: Run) -> Run | None:
    """Open the run of the untrained copy; raises ConfigError unless it is of the same stimuli, tokens and captures."""
    if config.untrained is None:
        return None
    other = load(config.untrained, verify=True)
    mine, theirs = run.manifest, other.manifest
    different = [
        what
        for what, same in (
            ("stimuli", mine.inputs.stimuli_sha256 == theirs.inputs.stimuli_sha256),
            ("order of stimuli", mine.inputs.sample_order_sha256 == theirs.inputs.sample_order_sha256),
            ("tokenizer", mine.inputs.tokenizer_sha256 == theirs.inputs.tokenizer_sha256),
            ("captures", mine.origin.captures == theirs.origin.captures),
        )
        if not same
    ]
    if different:
        raise ConfigError(
            f"untrained: {other.directory} has other {', '.join(different)} than {run.directory}; run the same config "
            "on the copy that `ember untrained` writes"
        )
    if mine.inputs.model_sha256 == theirs.inputs.model_sha256:
        raise ConfigError(f"untrained: {other.directory} is a run of the same model; expected its untrained copy")
    return other


def _out(config: ProbeConfig, directory: Path) -> Path:
    if config.output is None:
        return directory / FOLDER
    return config.output.path / directory.resolve().name if len(config.runs) > 1 else config.output.path
