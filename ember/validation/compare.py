"""A model against a recording: every recorded site of every layer, the highest logit, the greedy continuation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ember.errors import InputError
from ember.model import Model
from ember.sites import NO_LAYER, SITES
from ember.tolerances import TOLERANCES, Tolerance
from ember.validation.figures import allowance, cosine, disagreement
from ember.validation.recording import Recording
from ember.work import Floats, UnitWork

TINY_WIDTH: Final = 256
"""Models up to this hidden size are held to the tolerance of the tiny goldens."""
CONTRIBUTIONS: Final = ("after_attention", "after_mlp")


@dataclass(frozen=True, slots=True)
class SiteFigures:
    """One site of one layer over all prompts."""

    site: str
    layer: int
    """-1 for the logits sites."""
    worst: float
    """max|d| / rms of the reference's row, of the prompt that is farthest off."""
    prompt: int
    """That prompt."""
    cosine: float
    """Least over the prompts."""
    agrees: bool
    """Whether every prompt is within its bound."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How often a choice of the model was the reference's."""

    same: int
    total: int
    too_close: int
    """Choices that differ where the reference's lead is within the bound: rounding decides there."""

    @property
    def agrees(self) -> bool:
        """Whether every difference is one that rounding decides."""
        return self.same + self.too_close == self.total

    def __str__(self) -> str:
        return f"{self.same}/{self.total}" + (f" and {self.too_close} too close to call" if self.too_close else "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing a model with a recording gave."""

    bounds: Mapping[str, tuple[float, ...]]
    """Per site and prompt, the largest max|d| / rms that passes: the tolerance and what long prompts are allowed."""
    lengths: tuple[int, ...]
    figures: tuple[SiteFigures, ...]
    top1: Tally
    """One choice a prompt."""
    greedy: Tally | None
    """One choice a step, up to and including the first that differs; None where no continuation was recorded."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Sites compared, in firing order."""
        return tuple(site for site in SITES if any(figure.site == site for figure in self.figures))

    @property
    def agrees(self) -> bool:
        """Whether everything is within its bound."""
        tallies = [self.top1] if self.greedy is None else [self.top1, self.greedy]
        return all(figure.agrees for figure in self.figures) and all(tally.agrees for tally in tallies)

    @property
    def rung(self) -> str | None:
        """The rung of the ladder that this comparison reaches; None where it fails."""
        if not self.agrees:
            return None
        return "activation reference" if self.sites == tuple(SITES) else "golden logits"

    def problems(self) -> list[str]:
        """Name what is out of bounds, the first layer first, since later ones inherit its error."""
        found = [
            f"{figure.site}{'' if figure.layer == NO_LAYER else f' of layer {figure.layer}'}: "
            f"max|d|/rms {figure.worst:.2e} on prompt {figure.prompt}, "
            f"bound {self.bounds[figure.site][figure.prompt]:.1e}"
            for figure in sorted(self.figures, key=lambda f: (f.layer == NO_LAYER, f.layer))
            if not figure.agrees
        ]
        for name, tally in (("highest logit", self.top1), ("greedy ids", self.greedy)):
            if tally is not None and not tally.agrees:
                found.append(f"{name}: {tally} are the reference's")
        return found


def compare(model: Model, recording: Recording) -> Comparison:
    """Run the recorded prompts and measure. Raises InputError for a recording of another shape of model."""
    expected = recording.sites()
    _check(model, expected)
    lengths = tuple(map(len, recording.prompts))
    bounds = {site: _bounds(model, recording, site) for site in expected}
    captured = model.capture(tokens=recording.prompts, site=list(expected), layers="all")
    figures = [
        figure for site, values in expected.items() for figure in _figures(site, captured[site], values, bounds[site])
    ]
    logits = expected["after_logits"]
    slack = [2 * bound * _rms(row) for bound, row in zip(bounds["after_logits"], logits, strict=True)]
    top1 = _top1(captured["after_logits"], logits, slack)
    return Comparison(bounds, lengths, tuple(figures), top1, _greedy(model, recording, slack))


def _bounds(model: Model, recording: Recording, site: str) -> tuple[float, ...]:
    exact = recording.about.get("angles") == "float64"
    bound = tolerance_for(model.hidden_size, site).bound
    return tuple(bound + (0.0 if exact else allowance(len(prompt))) for prompt in recording.prompts)


def tolerance_for(hidden_size: int, site: str) -> Tolerance:
    """Return the row of the tolerance table that a site of a model of this width is held to."""
    if hidden_size <= TINY_WIDTH:
        return TOLERANCES["golden_site"]
    return TOLERANCES["real_model_contribution" if site in CONTRIBUTIONS else "real_model_layer"]


def _check(model: Model, expected: dict[str, Floats]) -> None:
    for site, values in expected.items():
        width = model.hidden_size if SITES[site].width == "hidden" else model.vocab_size
        wanted = (model.n_layers, width) if SITES[site].per_layer else (width,)
        if values.shape[1:] != wanted:
            raise InputError(
                f"{site} is recorded as {list(values.shape[1:])} a prompt, but {model.file.path} gives {list(wanted)}: "
                "the recording is of another model"
            )


def _figures(site: str, ours: Floats, theirs: Floats, bounds: tuple[float, ...]) -> Iterator[SiteFigures]:
    """Yield the figures of each layer of a site: [P, layers, D] each, or [P, D] for the logits sites."""
    if not SITES[site].per_layer:
        ours, theirs = ours[:, None], theirs[:, None]
    apart, turned = disagreement(ours, theirs), cosine(ours, theirs)  # [P, layers]
    share = apart / np.array(bounds)[:, None]
    for index in range(apart.shape[1]):
        prompt = int(share[:, index].argmax())
        yield SiteFigures(
            site,
            index if SITES[site].per_layer else NO_LAYER,
            float(apart[prompt, index]),
            prompt,
            float(turned[:, index].min()),
            bool(share[prompt, index] < 1),
        )


def _rms(row: Floats) -> float:
    return float(np.sqrt((row.astype(np.float64) ** 2).mean()))


def _top1(ours: Floats, theirs: Floats, slack: list[float]) -> Tally:
    same = ours.argmax(-1) == theirs.argmax(-1)
    second, first = np.partition(theirs, -2, axis=-1)[:, -2:].T
    close = ~same & (first - second < slack)
    return Tally(int(same.sum()), len(same), int(close.sum()))


def _greedy(model: Model, recording: Recording, slack: list[float]) -> Tally | None:
    """Count the steps that agree; behind the first that differs the contexts are not the same any more."""
    if recording.greedy is None:
        return None
    same = close = total = 0
    for prompt, (ids, margins) in enumerate(zip(*recording.greedy, strict=True)):
        steps = int((ids >= 0).sum())  # -1: this prompt was not continued
        if not steps:
            continue
        unit = UnitWork((np.array(recording.prompts[prompt], np.int32),), max_tokens=steps)
        given = model.run_unit(unit).produced[0].token_ids
        for step in range(steps):
            total += 1
            if given[step] == ids[step]:
                same += 1
                continue
            close += bool(margins[step] < slack[prompt])
            break
    return Tally(same, total, close)
