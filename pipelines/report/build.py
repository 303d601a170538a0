"""Putting a report together from what the chapters say."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ember.errors import EmberError, InputError
from pipelines.comparison import compare
from pipelines.report.blocks import Chapter, Figure, Prose, Quoted, Section, count
from pipelines.report.facts import Facts, read_facts


@dataclass(frozen=True, slots=True)
class Report:
    """A finished report."""

    html: str
    figures: dict[str, bytes]
    """File names and their bytes: `norms.png`, `norms.svg`, …"""
    record: dict[str, Any]
    """The numbers in it, as plain data."""


def make_report(run: str | Path, other: str | Path | None = None, *, probes: str | Path | None = None) -> Report:
    """Report on the run or causal trace in the directory `run`, or compare the runs `run` and `other`.

    Probes of the run are taken from the folder `probes`, by default the one in the run's directory, if there are any.
    Every file is checked first. Raises InputError for what is no directory, RunError for an unfinished run, VerifyError
    for a damaged one, EmberError where matplotlib is absent.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise EmberError(
            'a report has figures, which need matplotlib, and it is not installed; run `pip install "ember[analysis]"`'
        )
    if probes is not None and other is not None:
        raise InputError("probes belong to one run: leave them out where two are compared")
    if other is not None:
        return _two(Path(run), Path(other))
    from pipelines.report.traces import is_trace

    return _trace(Path(run)) if is_trace(Path(run)) else _one(Path(run), None if probes is None else Path(probes))


def _one(directory: Path, folder: Path | None) -> Report:
    from pipelines.report.arrangement import arrangement
    from pipelines.report.behaviour import behaviour
    from pipelines.report.cautions import cautions, limits
    from pipelines.report.likelihoods import likelihoods
    from pipelines.report.probe_results import read_probes
    from pipelines.report.probing import probe_limits, probe_warnings, probing
    from pipelines.report.provenance import provenance
    from pipelines.report.states import states

    facts = read_facts(directory)
    probed = read_probes(facts, folder)
    chapters = [
        provenance(facts), behaviour(facts), likelihoods(facts), probing(probed) if probed else None, states(facts),
        arrangement(facts),
        cautions(facts, probe_warnings(probed) if probed else ()),
        limits(facts, frozenset({"probes"}), probe_limits(probed)) if probed else limits(facts),
    ]  # fmt: skip
    return _finished(("Ember report: ", Quoted(facts.manifest.origin.name)), _subtitle(facts), chapters)


def _trace(directory: Path) -> Report:
    from pipelines.report.cautions import cautions, limits
    from pipelines.report.provenance import provenance
    from pipelines.report.traces import read_trace, traced

    trace = read_trace(directory)
    facts = trace.baseline
    chapters = [
        provenance(facts),
        traced(trace),
        cautions(facts),
        limits(facts, frozenset({"trace"})),
    ]
    name = facts.manifest.origin.name.removesuffix("-baseline")
    return _finished(("Ember report: causal trace ", Quoted(name)), _subtitle(facts), chapters)


def _two(a: Path, b: Path) -> Report:
    from pipelines.report.cautions import cautions, limits_of_two
    from pipelines.report.comparing import answers, common_answers, differences, outputs, parted
    from pipelines.report.probe_results import read_probes
    from pipelines.report.probes_compared import probes_compared
    from pipelines.report.provenance import provenance

    found = compare(a, b)
    facts = [read_facts(side, verified=True) for side in (a, b)]
    common = common_answers(*facts)
    one, other = (read_probes(side) for side in facts)
    made = [_renamed(provenance(side), letter) for side, letter in zip(facts, "AB", strict=True)]
    # That nothing could be compared is what a reader has to know first.
    chapters = [
        *([*made, differences(found)] if found.comparable else [differences(found), *made]),
        answers(facts[0], common) if common else None, outputs(found),
        probes_compared(one, other, found) if one and other else None, parted(found),
        *(_renamed(cautions(side), letter) for side, letter in zip(facts, "AB", strict=True)),
        limits_of_two(*facts),
    ]  # fmt: skip
    names = [Quoted(one.manifest.origin.name) for one in facts]
    title: Prose = ("Ember report: ", names[0], " (A) and ", names[1], " (B)")
    return _finished(title, ("Two runs compared; prompts are matched by id.",), chapters)


def _renamed(chapter: Chapter, letter: str) -> Chapter:
    section = Section(
        f"{chapter.section.id}-{letter.lower()}", f"{chapter.section.title}: {letter}", chapter.section.blocks
    )
    return Chapter(section, tuple((f"{letter}: ", *told) for told in chapter.summary), chapter.record)


def _subtitle(facts: Facts) -> Prose:
    model = facts.manifest.origin.model
    return (
        Quoted(str(model.get("name") or "a model without a name")),
        f" · {model.get('architecture')}, {model.get('n_layers')} layers · {count(len(facts.stimuli), 'prompt')}",
    )


def _finished(title: Prose, subtitle: Prose, chapters: Sequence[Chapter | None]) -> Report:
    from pipelines.report.page import Page, render

    there = [chapter for chapter in chapters if chapter is not None]
    sections = tuple(chapter.section for chapter in there)
    summary = tuple(told for chapter in there for told in chapter.summary)
    ember = version("ember")
    figures = [block for section in sections for block in section.blocks if isinstance(block, Figure)]
    files = {f"{one.name}.{kind}": data for one in figures for kind, data in (("png", one.png), ("svg", one.svg))}
    record = {chapter.section.id: chapter.record for chapter in there}
    return Report(render(Page(title, subtitle, summary, sections, ember)), files, record)
