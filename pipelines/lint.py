"""What is suspicious about a config's stimuli, as texts and as the model's tokens; nothing is run or changed.

report = lint(load_config("configs/roots.yaml"))
report.findings[0].ids
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipelines.config import RunConfig
from pipelines.errors import ConfigError
from pipelines.plan import open_source
from pipelines.plan_checks import refuse_unfit
from pipelines.stimuli import build_set
from pipelines.stimuli.checks import Finding, find, leak_findings
from pipelines.stimuli.record import Stimulus
from pipelines.stimuli.text_checks import CLASSES, label_findings, text_findings
from pipelines.tokenized import Tokenized, tokenize

if TYPE_CHECKING:
    from ember.tokenizer import Tokenizer

SHOWN: Final = 10
"""Ids that a finding lists; the others are counted."""
LENGTH_GAIN: Final = 0.2
"""A label is called explained by length where knowing it is right this much more often than the commonest value."""
RANKS: Final = {"error": 0, "warning": 1, "note": 2}
_OWN: Final = ("invisible_marks", "same_ending")
"""Findings of `checks.find` that are told here in more detail."""


@dataclass(frozen=True, slots=True)
class LintReport:
    """What was looked at, and what was found."""

    name: str
    stimuli: int
    record: dict[str, Any]
    """Where the stimuli came from and what was done to them."""
    tokens: dict[str, Any]
    """Tokens of prompts and of targets, and of the targets of each template: least, mean, most; bytes a token."""
    labels: dict[str, Any]
    """Of each label how many values it has, and on how many stimuli the rarest and the commonest of them stand."""
    findings: tuple[Finding, ...]
    """Errors first, then warnings, then notes."""

    def count(self, severity: str) -> int:
        """Findings of one severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def strict_status(self) -> int:
        """Exit status where findings count: 1 with an error or warning."""
        return 1 if self.count("error") or self.count("warning") else 0

    @property
    def plain(self) -> dict[str, Any]:
        """The report as plain data; ids are bounded."""
        counts = {f"{severity}s": self.count(severity) for severity in RANKS}
        told = {"name": self.name, "stimuli": self.stimuli, **self.record}
        told |= {"tokens": self.tokens, "labels": self.labels}
        return told | counts | {"findings": [_record(finding) for finding in self.findings]}

    def lines(self) -> list[str]:
        """Say it in words."""
        head = f"{self.name}: {self.stimuli} stimuli; " + ", ".join(f"{self.count(s)} {s}s" for s in RANKS)
        return [
            head,
            *self._token_lines(),
            *self._label_lines(),
            *(line for finding in self.findings for line in _lines(finding)),
        ]

    def _token_lines(self) -> list[str]:
        return [
            f"{what:9} {told['min']} to {told['max']} tokens ({told['mean']} on average), "
            f"{told['bytes_per_token']} bytes a token"
            for what, told in self.tokens.items()
        ]

    def _label_lines(self) -> list[str]:
        told = [
            f"{name} {one['values']} ({one['rarest']})"
            if one["rarest"] == one["commonest"]
            else f"{name} {one['values']} ({one['rarest']} to {one['commonest']})"
            for name, one in self.labels.items()
        ]
        more = f"; … ({len(told)} labels)" if len(told) > SHOWN else ""
        return [f"labels    values of each, and stimuli a value: {'; '.join(told[:SHOWN])}{more}"] if told else []


def _record(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "stimuli": len(finding.ids),
        "ids": list(finding.ids[:SHOWN]),
    }


def _lines(finding: Finding) -> list[str]:
    ids = finding.ids[:SHOWN]
    more = f", … ({len(finding.ids)} in all)" if len(finding.ids) > len(ids) else ""
    return [
        f"{finding.severity:9} [{finding.code}] {finding.message}",
        *([f"          in {', '.join(map(repr, ids))}{more}"] if ids else []),
    ]


def lint(config: RunConfig) -> LintReport:
    """Look through the stimuli of a run.

    Raises ConfigError for stimuli that cannot be made at all, GGUFError and its kin for a model that cannot be read.
    """
    section = config.stimuli.model_copy(update={"allow_leaks": True})
    found = build_set(config.model_copy(update={"stimuli": section}))
    source = open_source(config)
    parse_special = config.tokenizer.parse_special
    samples = tokenize(found.stimuli, source.tokenizer, parse_special=parse_special)
    # What the config allows is no error any more, but still what a probe may read.
    allowed = config.stimuli.allow_leaks
    findings = [replace(one, severity="warning") if allowed else one for one in leak_findings(found.stimuli)]
    try:
        refuse_unfit(samples, source.card, config.generate.max_tokens if config.generate else 0)
    except ConfigError as error:
        findings.append(Finding("unfit", str(error), (), "error"))
    findings += [finding for finding in find(found.stimuli, found.dropped) if finding.code not in _OWN]
    findings += [*text_findings(found.stimuli), *label_findings(found.stimuli)]
    findings += token_findings(samples, source.tokenizer, parse_special=parse_special)
    ordered = sorted(findings, key=lambda finding: RANKS[finding.severity])
    counts = _label_counts(found.stimuli)
    return LintReport(config.name, len(found.stimuli), found.record, _token_counts(samples), counts, tuple(ordered))


def _label_counts(stimuli: Sequence[Stimulus]) -> dict[str, Any]:
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for stimulus in stimuli:
        for name, value in stimulus.labels.items():
            values[name][value] += 1
    return {
        name: {"values": len(found), "rarest": min(found.values()), "commonest": max(found.values())}
        for name, found in sorted(values.items())
    }


def token_findings(samples: Sequence[Tokenized], tokenizer: "Tokenizer", *, parse_special: bool) -> list[Finding]:
    """List what only tokens show: one last token, equal ids, control spellings, torn targets, telling lengths."""
    found = [
        _same_last(samples, tokenizer),
        _same_tokens(samples),
        None if parse_special else _control(samples, tokenizer),
        _torn(samples),
        *_explained_by_length(samples),
    ]
    return [finding for finding in found if finding]


def _same_last(samples: Sequence[Tokenized], tokenizer: "Tokenizer") -> Finding | None:
    last = {int(sample.tokens[-1]) for sample in samples if len(sample.tokens)}
    if len(samples) < 2 or len(last) != 1:
        return None
    (token,) = last
    shown = f"{tokenizer.decode([token])!r} ({token})"
    said = f"all prompts end in the same token {shown}: `position: last` never is the word itself"
    return Finding("same_last_token", said, ())


def _same_tokens(samples: Sequence[Tokenized]) -> Finding | None:
    groups: dict[bytes, list[str]] = defaultdict(list)
    for sample in samples:
        target = sample.span_tokens or (-1, -1)
        groups[sample.tokens.tobytes() + str(target).encode()].append(sample.stimulus.id)
    alike = [ids for ids in groups.values() if len(ids) > 1]
    said = f"{len(alike)} prompts stand there several times, token by token and with the same target"
    return Finding("same_tokens", said, tuple(name for ids in alike for name in ids)) if alike else None


def _control(samples: Sequence[Tokenized], tokenizer: "Tokenizer") -> Finding | None:
    spelt = {s.stimulus.id: found for s in samples if (found := tokenizer.control_spellings(s.stimulus.prompt))}
    if not spelt:
        return None
    first, found = next(iter(spelt.items()))
    said = f"{len(spelt)} prompts spell control tokens, which are read as plain text ({first!r}: {', '.join(found)})"
    return Finding("control_spelling", said, tuple(spelt))


def _torn(samples: Sequence[Tokenized]) -> Finding | None:
    """Targets whose first or last token also holds bytes of their neighbours, other than a space before them."""
    ids = tuple(sample.stimulus.id for sample in samples if _expanded(sample))
    said = f"{len(ids)} targets share a token with the text beside them: a state there is not the target's alone"
    return Finding("torn_target", said, ids, "note") if ids else None


def _expanded(sample: Tokenized) -> bool:
    target, span = sample.stimulus.target, sample.span_tokens
    if target is None or span is None:
        return False
    data = sample.stimulus.prompt.encode()
    before = data[sample.offsets[span[0], 0] : target.start]
    after = data[target.end : sample.offsets[span[1] - 1, 1]]
    return bool(before.strip() or after)


def _explained_by_length(samples: Sequence[Tokenized]) -> list[Finding]:
    """Labels that the number of tokens tells: of the target where there is one, else of the prompt."""
    names = sorted({name for sample in samples for name in sample.stimulus.labels})
    return [finding for name in names if (finding := _length(name, samples))]


def _length(name: str, samples: Sequence[Tokenized]) -> Finding | None:
    pairs = [(_size(sample), sample.stimulus.labels[name]) for sample in samples if name in sample.stimulus.labels]
    counts = Counter(value for _, value in pairs)
    if not 2 <= len(counts) <= CLASSES or len(counts) * 2 > len(pairs):
        return None
    by_length: dict[int, Counter[str]] = defaultdict(Counter)
    for size, value in pairs:
        by_length[size][value] += 1
    told = sum(values.most_common(1)[0][1] for values in by_length.values()) / len(pairs)
    guessed = counts.most_common(1)[0][1] / len(pairs)
    if told - guessed < LENGTH_GAIN:
        return None
    said = (
        f"the number of tokens alone tells the label {name!r} for {told:.0%} of the stimuli "
        f"(always saying the commonest value: {guessed:.0%})"
    )
    return Finding("length_tells_label", said, ())


def _size(sample: Tokenized) -> int:
    span = sample.span_tokens
    return span[1] - span[0] if span else len(sample.tokens)


def _token_counts(samples: Sequence[Tokenized]) -> dict[str, Any]:
    named: dict[str, list[tuple[int, int]]] = {"prompts": [], "targets": []}
    for sample in samples:
        stimulus, span = sample.stimulus, sample.span_tokens
        named["prompts"].append((len(sample.tokens), len(stimulus.prompt.encode())))
        if span and stimulus.target:
            size = (span[1] - span[0], stimulus.target.end - stimulus.target.start)
            named["targets"].append(size)
            if stimulus.template is not None:
                named.setdefault(f"targets of {stimulus.template}", []).append(size)
    single = len(named) == 3
    return {what: _spread(pairs) for what, pairs in named.items() if pairs and not (single and " of " in what)}


def _spread(pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    tokens, sizes = np.array(pairs).T
    return {
        "min": int(tokens.min()),
        "mean": round(float(tokens.mean()), 2),
        "max": int(tokens.max()),
        "bytes_per_token": round(float(sizes.sum() / max(1, tokens.sum())), 2),
    }
