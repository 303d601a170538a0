"""Filtering, de-duplicating and sampling a stimulus set; each step says how many there were before and after it.

Steps keep the order of the source. A sample ranks ids by a hash, so it depends neither on the order nor on a library's
random numbers, and what is drawn stays drawn when other stimuli are added around it, unless they rank before it.
"""

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pipelines.errors import ConfigError
from pipelines.settings import closest
from pipelines.stimuli.drafts import Draft, fail
from pipelines.stimuli.record import Stimulus
from pipelines.stimuli.select_config import SampleConfig, SelectConfig

Step = dict[str, Any]


def admitted(drafts: list[Draft], config: SelectConfig | None) -> tuple[list[Draft], list[Step]]:
    """Return the drafts that fit `where`, and the steps so far.

    Raises ConfigError for a label or value that no draft has, and where none is left.
    """
    steps: list[Step] = [{"step": "read", "after": len(drafts)}]
    if config is None or config.where is None:
        return drafts, steps
    _refuse_unknown(drafts, config.where)
    wanted = {name: frozenset(values) for name, values in config.where.items()}
    kept = [draft for draft in drafts if all(draft.labels.get(name) in values for name, values in wanted.items())]
    if not kept:
        raise ConfigError("stimuli.select.where: no stimulus fits all of it, though each value occurs; ask for less")
    told = {name: list(values) for name, values in config.where.items()}
    return kept, [*steps, {"step": "where", "before": len(drafts), "after": len(kept), "labels": told}]


def _refuse_unknown(drafts: Sequence[Draft], where: dict[str, tuple[str, ...]]) -> None:
    values: dict[str, set[str]] = defaultdict(set)
    for draft in drafts:
        for name, value in draft.labels.items():
            values[name].add(value)
    problems = [
        f"stimuli.select.where: no stimulus has a label {name!r}{closest(name, sorted(values))}"
        for name in where
        if name not in values
    ]
    problems += [
        f"stimuli.select.where.{name}: no stimulus has the value {value!r}{closest(value, sorted(values[name]))}"
        for name, wanted in where.items()
        for value in wanted
        if name in values and value not in values[name]
    ]
    fail(problems)


def chosen(stimuli: Sequence[Stimulus], config: SelectConfig | None) -> tuple[Sequence[Stimulus], list[Step]]:
    """De-duplicate and sample as the config says, and number what is left; returns it with the steps taken."""
    steps: list[Step] = []
    kept = stimuli
    if config is not None and config.deduplicate is not None:
        kept, step = _distinct(kept, folded=config.deduplicate == "folded")
        steps.append(step)
    if config is not None and config.sample is not None:
        kept, step = _sampled(kept, config.sample)
        steps.append(step)
    if kept is not stimuli:
        kept = [replace(stimulus, source_index=index) for index, stimulus in enumerate(kept)]
    return kept, steps


def fold(text: str) -> str:
    """Fold a text for comparison: NFC, case, and white space made equal."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _distinct(stimuli: Sequence[Stimulus], *, folded: bool) -> tuple[list[Stimulus], Step]:
    first: dict[Any, Stimulus] = {}
    other_labels = 0
    for stimulus in stimuli:
        kept = first.setdefault(_key(stimulus, folded=folded), stimulus)
        other_labels += kept.labels != stimulus.labels
    step = {
        "step": "deduplicate",
        "by": "folded" if folded else "text",
        "before": len(stimuli),
        "after": len(first),
        "left_out_with_other_labels": other_labels,
    }
    return list(first.values()), step


def _key(stimulus: Stimulus, *, folded: bool) -> Any:
    target, expected = stimulus.target, stimulus.expected
    if not folded:
        return stimulus.prompt, target and (target.start, target.end), expected
    data = stimulus.prompt.encode()
    # Where the target begins is told by what stands before it, since folding moves bytes.
    place = target and (fold(data[: target.start].decode()), fold(target.text))
    return fold(stimulus.prompt), place, None if expected is None else fold(expected)


def _sampled(stimuli: Sequence[Stimulus], config: SampleConfig) -> tuple[list[Stimulus], Step]:
    told = {key: value for key, value in config.model_dump().items() if value is not None}
    step = {"step": "sample", **told, "before": len(stimuli)}
    if config.group is not None:
        names = _drawn((_label(s, config.group, "group") for s in stimuli), config)
        kept = [stimulus for stimulus in stimuli if stimulus.labels[config.group] in names]
    else:
        kept = _drawn_stimuli(stimuli, config)
    return kept, step | {"after": len(kept)}


def _drawn_stimuli(stimuli: Sequence[Stimulus], config: SampleConfig) -> list[Stimulus]:
    by_value: dict[str, list[str]] = defaultdict(list)
    for stimulus in stimuli:
        value = "" if config.per is None else stimulus.labels.get(config.per)
        if value is not None:
            by_value[value].append(stimulus.id)
    if not by_value:
        known = sorted({name for stimulus in stimuli for name in stimulus.labels})
        hint = closest(config.per or "", known)
        raise ConfigError(f"stimuli.select.sample.per: no stimulus has a label {config.per!r}{hint}")
    ids = {name for value, names in by_value.items() for name in _drawn(names, config, value)}
    return [stimulus for stimulus in stimuli if stimulus.id in ids]


def _drawn(names: Iterable[str], config: SampleConfig, what: str = "") -> set[str]:
    """Return the `count` names that rank first; fewer than that are refused."""
    distinct = set(names)
    if len(distinct) < config.count:
        of = f" of {config.per} {what!r}" if what else " groups" if config.group else " stimuli"
        raise ConfigError(
            f"stimuli.select.sample.count: found {config.count}, but there are {len(distinct)}{of}; ask for fewer"
        )
    ranked = sorted(distinct, key=lambda name: hashlib.sha256(f"{config.seed}:{name}".encode()).digest())
    return set(ranked[: config.count])


def _label(stimulus: Stimulus, name: str, key: str) -> str:
    if name not in stimulus.labels:
        hint = closest(name, sorted(stimulus.labels))
        raise ConfigError(f"stimuli.select.sample.{key}: stimulus {stimulus.id!r} has no label {name!r}{hint}")
    return stimulus.labels[name]
