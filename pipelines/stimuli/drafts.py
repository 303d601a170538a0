"""From drafts to stimuli: the steps that are the same wherever a prompt came from.

A draft becomes a stimulus once its text is settled (as given, or normalised as asked), its target is found, and its id
is unique. Every problem is collected, so that one error lists them all with their ids.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.errors import ConfigError
from pipelines.stimuli.normalisers import Normaliser, normalised
from pipelines.stimuli.packed import PackedStimuli, Packer
from pipelines.stimuli.record import ExpectMode, Stimulus, Target

MAX_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Draft:
    """A prompt as its source gave it."""

    where: str
    """`file:line` or a key of the config, for messages."""
    id: str
    prompt: str
    labels: dict[str, str]
    template: str | None = None
    reveals: tuple[str, ...] = ()
    target: str | None = None
    places: tuple[tuple[int, int], ...] | None = None
    """Byte spans of the target in the prompt, where the template knows them; None: search."""
    occurrence: int | None = None
    expected: str | None = None
    problem: str = ""
    """Why this draft cannot become a stimulus; it is refused unless a filter leaves it out."""


def fail(problems: Iterable[str]) -> None:
    """Raise ConfigError listing the first problems and counting the rest; return if there are none."""
    listed = list(problems)
    if not listed:
        return
    more = len(listed) - MAX_LISTED
    lines = listed[:MAX_LISTED] + ([f"… and {more} more problems of this kind"] if more > 0 else [])
    raise ConfigError("\n".join(lines))


def finish(drafts: list[Draft], expect_mode: ExpectMode, steps: Sequence[Normaliser] = ()) -> PackedStimuli:
    """Turn drafts into stimuli, in order, their texts normalised by `steps`.

    Raises ConfigError listing empty prompts, ids given twice, and targets that are absent, ambiguous or torn by a step.
    """
    fail(f"{draft.where}: {draft.problem}" for draft in drafts if draft.problem)
    problems = [f"{d.where}: stimulus {d.id!r}: the prompt is empty; give it a text" for d in drafts if not d.prompt]
    problems += [
        f"{d.where}: stimulus {d.id!r}: found the expected text {d.expected!r}, expected more than white space"
        for d in drafts
        if d.expected is not None and not d.expected.strip()
    ]
    fail(problems + _twice(drafts) + _bad_ids(drafts))
    return _all(drafts, expect_mode, steps)


def _all(drafts: list[Draft], expect_mode: ExpectMode, steps: Sequence[Normaliser]) -> PackedStimuli:
    packer = Packer()
    problems: list[str] = []
    for index, draft in enumerate(drafts):
        try:
            packer.add(_stimulus(index, draft, expect_mode, steps))
        except ConfigError as error:
            problems.append(f"{draft.where}: stimulus {draft.id!r}: {error}")
    fail(problems)
    return packer.done()


def _twice(drafts: list[Draft]) -> list[str]:
    first: dict[str, Draft] = {}
    return [
        f"{draft.where}: stimulus {draft.id!r}: this id is already used at {first[draft.id].where}; ids must be unique"
        for draft in drafts
        if first.setdefault(draft.id, draft) is not draft
    ]


def _bad_ids(drafts: list[Draft]) -> list[str]:
    return [
        f"{draft.where}: found the id {draft.id!r}, expected visible text on one line"
        for draft in drafts
        if not draft.id.strip() or any(unicodedata.category(ch) in ("Cc", "Zl", "Zp") for ch in draft.id)
    ]


def _stimulus(index: int, draft: Draft, expect_mode: ExpectMode, steps: Sequence[Normaliser]) -> Stimulus:
    target = find_target(draft)
    prompt, expected = draft.prompt, draft.expected
    if steps:
        prompt = normalised(draft.prompt, steps)
        target = _normalised(draft.prompt, target, steps) if target and prompt != draft.prompt else target
        expected = None if expected is None else normalised(expected, steps)
        _refuse_emptied(prompt, target, expected)
    return Stimulus(
        source_index=index,
        id=draft.id,
        prompt=prompt,
        labels=draft.labels,
        template=draft.template,
        reveals=draft.reveals,
        target=target,
        expected=expected,
        expect_mode=expect_mode,
        original=None if prompt == draft.prompt else draft.prompt,
    )


def find_target(draft: Draft) -> Target | None:
    """Locate the draft's target in the bytes of its prompt.

    Places that the template knows count first, else a byte search, overlapping occurrences included. Raises ConfigError
    for a target that is absent, and for one with several occurrences unless `occurrence` chooses.
    """
    if draft.target is None:
        if draft.occurrence is not None:
            raise ConfigError("found `occurrence` without a target; give the target's text or remove it")
        return None
    if not draft.target:
        raise ConfigError("the target is empty, expected a text that occurs in the prompt")
    places = draft.places or occurrences(draft.prompt.encode(), draft.target.encode())
    if not places:
        raise ConfigError(f"the target {draft.target!r} does not occur in the prompt {draft.prompt!r}")
    chosen = draft.occurrence
    if chosen is None and len(places) > 1:
        raise ConfigError(
            f"the target {draft.target!r} occurs {len(places)} times in the prompt {draft.prompt!r} (parts of other "
            f"words included); choose one with `occurrence`, counted from 1"
        )
    if chosen is not None and chosen > len(places):
        raise ConfigError(f"found occurrence {chosen}, but the target {draft.target!r} occurs {len(places)} times")
    start, end = places[(chosen or 1) - 1]
    return Target(draft.target, start, end)


def occurrences(text: bytes, wanted: bytes) -> tuple[tuple[int, int], ...]:
    """Every place of `wanted`; valid UTF-8 never matches inside a character."""
    found: list[tuple[int, int]] = []
    at = text.find(wanted)
    while at >= 0:
        found.append((at, at + len(wanted)))
        at = text.find(wanted, at + 1)
    return tuple(found)


def _normalised(original: str, target: Target, steps: Sequence[Normaliser]) -> Target:
    """The same target after normalising the whole prompt; refused where that joins its edge with a neighbour."""
    data = original.encode()
    pieces = (data[: target.start], data[target.start : target.end], data[target.end :])
    before, text, after = (normalised(piece.decode(), steps) for piece in pieces)
    if before + text + after != normalised(original, steps):
        how = "NFC" if list(steps) == ["nfc"] else f"normalising ({', '.join(steps)})"
        raise ConfigError(
            f"{how} joins the edge of the target {target.text!r} with the text beside it; change the target"
        )
    start = len(before.encode())
    return Target(text, start, start + len(text.encode()))


def _refuse_emptied(prompt: str, target: Target | None, expected: str | None) -> None:
    texts = {"prompt": prompt, "target": target and target.text, "expected text": expected and expected.strip()}
    emptied = [name for name, text in texts.items() if text == ""]
    if emptied:
        raise ConfigError(f"normalising leaves nothing of the {emptied[0]}; leave this stimulus out, or the normaliser")
