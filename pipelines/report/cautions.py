"""What to be careful about, and what the run cannot show because it is absent from it."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import numpy as np

from pipelines.report.blocks import Chapter, Code, Paragraph, Points, Prose, Quoted, Section, codes, count, quoted_list
from pipelines.report.facts import Column, Facts
from pipelines.stimuli.checks import find
from pipelines.stimuli.text_checks import text_findings
from pipelines.stored_stimuli import read_stored

STRONG_RUNGS: Final = ("activation reference", "probes", "interventions")
UNEVEN: Final = 3.0
"""A label whose largest class has this many times the prompts of its smallest is called uneven."""
SMALL: Final = 5
"""Classes of fewer prompts are called small."""
MENTIONED: Final = 3


def cautions(facts: Facts, further: Iterable[Prose] = ()) -> Chapter:
    """Warnings, the gravest first, then `further` ones; a sentence where there are none."""
    found = [
        *_failures(facts),
        *_trust(facts),
        *_acting(facts),
        *_leaks(facts),
        *_texts(facts),
        *_tokens(facts),
        *_labels(facts),
        *further,
    ]
    block = (
        Points(tuple(found), "warnings") if found else Paragraph(("Nothing that this page checks calls for caution.",))
    )
    told: Prose = (count(len(found), "warning") + " on this run: see ", Quoted("Warnings"), " below.") if found else ()
    section = Section("warnings", "Warnings", (block,))
    return Chapter(section, (told,) if told else (), {"warnings": [as_text(one) for one in found]})


def as_text(prose: Prose) -> str:
    """Prose without its markup."""
    return "".join(part if isinstance(part, str) else part.text for part in prose)


def _failures(facts: Facts) -> Iterator[Prose]:
    if n := len(facts.manifest.failed_samples):
        yield (
            f"{n} of {count(facts.manifest.samples, 'prompt')} failed and are missing here. If those that failed "
            "have something in common, every share on this page is biased; failures.jsonl in the run says why.",
        )


def _trust(facts: Facts) -> Iterator[Prose]:
    manifest = facts.manifest
    rung = str(manifest.origin.validation.get("rung"))
    if rung not in STRONG_RUNGS:
        yield (
            "Hidden states of this architecture with these types of weights were not compared with an independent "
            "implementation: the rung of validation is ", Code(rung), ". Compare them before publishing.",
        )  # fmt: skip
    guard = manifest.origin.guard
    if guard is None:
        yield ("The smoke guard was off: nothing in this run shows that the model predicts better than chance.",)
    elif not guard.get("passed", True):
        yield ("The model’s predictions on its own prompts are no better than chance.",)
    elif guard.get("nll", 0.0) >= guard.get("ln_vocab", math.inf):
        yield ("The model predicts its prompts no better than guessing would: they may be of a kind it never read.",)
    if manifest.origin.numerics.get("contract") == 1:
        yield (
            "Contract 1: states may differ by rounding (about 1e-6 of their size) from those of a run that computes "
            "other prompts beside these. Differences of that size mean nothing.",
        )
    for name, said in (
        ("unread_keys", "keys of the model’s file were not read"),
        ("unused_tensors", "tensors were not used"),
    ):
        if found := manifest.origin.model.get(name):
            yield (f"{len(found)} {said}: ", *quoted_list([str(one) for one in found], MENTIONED), ".")
    for one in manifest.origin.tokenizer.get("warnings", []):
        yield ("The tokenizer: ", Quoted(str(one)))


def _acting(facts: Facts) -> Iterator[Prose]:
    if facts.changed:
        yield ("The model was changed while it ran: answers and states are not the model’s own.",)


def _leaks(facts: Facts) -> Iterator[Prose]:
    revealed = Counter(name for row in facts.stimuli for name in row["reveals"])
    if revealed:
        named = codes([f"{name} ({n} of {len(facts.stimuli)})" for name, n in sorted(revealed.items())])
        yield (
            f"Prompts give the label{'s' * (len(revealed) > 1)} ", *named, " away: that it can be read off their "
            "states is no discovery by itself. What the state adds has to be shown against a baseline that sees "
            "only the text.",
        )  # fmt: skip


def _texts(facts: Facts) -> Iterator[Prose]:
    ids = {row["id"] for row in facts.stimuli}
    stored = read_stored(facts.run.directory, facts.manifest).stimuli
    stimuli = [stimulus for stimulus in stored if stimulus.id in ids]
    # Of two that say the same, the one that says more.
    found = [one for one in find(stimuli) if one.code not in ("same_ending", "invisible_marks")]
    for finding in [*found, *text_findings(stimuli)]:
        named: Prose = (": ", *quoted_list(finding.ids, MENTIONED)) if finding.ids else ()
        yield (Quoted(finding.message), *named, ".")


def _tokens(facts: Facts) -> Iterator[Prose]:
    tokens = [tuple(row["token_ids"]) for row in facts.stimuli]
    last = {found[-1] for found in tokens if found}
    if len(tokens) > 1 and len(last) == 1:
        ends = {row["prompt"][-1:] for row in facts.stimuli}
        spelt: Prose = (" (they end in ", Quoted(ends.pop()), ")") if len(ends) == 1 else ()
        yield (
            "All prompts end in the same token", *spelt, ": at layer 0 a capture of the last token sees the same "
            "embedding every time, and everything in it was moved there by attention.",
        )  # fmt: skip
    if repeated := len(tokens) - len(set(tokens)):
        yield (
            f"{count(repeated, 'prompt repeats', 'prompts repeat')} the very tokens of an earlier one. Ember’s own "
            "probes keep such prompts in one fold, or refuse the split; whoever splits otherwise must see to it.",
        )
    if merged := sum(bool(row["merged"]) for row in facts.answers):
        yield (
            f"{count(merged, 'expected text')} would merge with the end of the prompt if both were tokenised together.",
        )


def _labels(facts: Facts) -> Iterator[Prose]:
    for column in facts.tabulated():
        sizes = Counter(value for value in column.values if value is not None)
        largest, smallest = sizes.most_common()[0], sizes.most_common()[-1]
        if largest[1] >= UNEVEN * smallest[1]:
            share = f"{100 * largest[1] / sum(sizes.values()):.0f} %"
            yield (
                "The label ", Code(column.name), " is uneven: ", Quoted(largest[0]), f" has {largest[1]} prompts, ",
                Quoted(smallest[0]), f" {smallest[1]}. Always guessing the largest class is right for {share}.",
            )  # fmt: skip
        if small := [name for name, n in sizes.items() if n < SMALL]:
            yield (
                f"{count(len(small), 'class', 'classes')} of ", Code(column.name),
                f" {'has' if len(small) == 1 else 'have'} fewer than {SMALL} prompts: ",
                *quoted_list(small, MENTIONED), ".",
            )  # fmt: skip
    yield from _nested(facts.grouping())


def _nested(columns: Sequence[Column]) -> Iterator[Prose]:
    for fine in columns:
        found = [one.name for one in columns if len(fine.classes) > len(one.classes) and _decides(fine, one)]
        if found:
            yield (
                f"{'Labels that follow' if len(found) > 1 else 'A label that follows'} from ", Code(fine.name), ": ",
                *codes(found), ". What holds for one may be due to the other, and a test of it needs whole values of ",
                Code(fine.name), " held out.",
            )  # fmt: skip


def _decides(fine: Column, coarse: Column) -> bool:
    codes_a, codes_b = fine.codes, coarse.codes
    use = (codes_a >= 0) & (codes_b >= 0)
    pairs = len(np.unique(np.stack([codes_a[use], codes_b[use]]), axis=1).T) if use.any() else 0
    return pairs == len(np.unique(codes_a[use])) > 0


TRACE_LIMITS: Final[tuple[Prose, ...]] = (
    (
        "One state is put back at a time: what is stored twice shows at both places, what is spread over several "
        "states shows at none, and what was read before the patched layer cannot come back. A cell without effect "
        "is no proof of absence.",
    ),
    (
        "A corrupt prompt with one clean state is an evaluation that no text produces, and everything is relative "
        "to it.",
    ),
)
Holds = Literal["probes", "trace", "comparison"]
"""What a page may hold beside what every page does."""


def limits(facts: Facts, holds: frozenset[Holds] = frozenset(), further: Iterable[Prose] = ()) -> Chapter:
    """What this page does not show, from what is absent from the run and from what the page `holds`."""
    return _limits((*_absent(facts, holds), *further))


def limits_of_two(a: Facts, b: Facts) -> Chapter:
    """What a page of two runs does not show; what is so for one of them alone stands with its letter."""
    of_a, of_b = (tuple(_absent(facts, frozenset({"comparison"}))) for facts in (a, b))
    told = [one if one in of_b else ("A: ", *one) for one in of_a]
    return _limits((*told, *(("B: ", *one) for one in of_b if one not in of_a)))


def _limits(found: tuple[Prose, ...]) -> Chapter:
    return Chapter(
        Section("limits", "What this does not show", (Points(found, "limits"),)),
        (),
        {"limits": [as_text(p) for p in found]},
    )


def _absent(facts: Facts, holds: frozenset[Holds]) -> Iterator[Prose]:
    if "comparison" not in holds:
        model = facts.manifest.origin.model.get("name") or "this one"
        yield (
            "One model was run: nothing here is about language models in general, only about ",
            Quoted(str(model)),
            ".",
        )
    yield from _set(facts)
    if not facts.judged.any():
        yield ("No answers were judged: whether the model can do what its states hold is not known from this run.",)
    if facts.run.captures and not holds:
        yield ("No probe was run on this run’s states: what can be read off them, and where, is not shown.",)
    if "probes" in holds:
        yield (
            "A probe shows what can be read off a state, not what the model reads. That needs an intervention: see ",
            Code("ember pipeline causal-trace"), ".",
        )  # fmt: skip
    if "trace" in holds:
        yield from TRACE_LIMITS
    if not facts.changed and not holds:
        yield ("Nothing was changed in the model: what is seen together here is not shown to be cause and effect.",)
    if (
        facts.manifest.origin.generation
        and not facts.manifest.origin.generation.get("temperature")
        and facts.judged.any()
    ):
        yield (
            "Answers were the likeliest token at every step: a wrong answer does not show that the right one is "
            "unknown to the model, nor a right one that it was sure.",
        )
    yield ("The intervals tell how much other prompts of the same kind would vary, not what other kinds would give.",)


def _set(facts: Facts) -> Iterator[Prose]:
    templates = {row["template"] for row in facts.stimuli}
    if len(templates) == 1:
        yield (
            "All prompts follow one template or none is named: what depends on the wording cannot be told from the "
            "rest.",
        )
    if not facts.columns:
        yield ("The prompts have no labels: nothing can be told about kinds of prompts.",)
    if len(facts.stimuli) < 100:
        yield (f"There are only {count(len(facts.stimuli), 'prompt')}: small differences cannot be seen.",)
