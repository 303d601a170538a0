"""What `ember pipeline lint` sees in texts and labels, beside what `checks.find` tells before every run."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pipelines.stimuli.checks import INVISIBLE, Finding, prompts_that
from pipelines.stimuli.normalisers import BIDI_MARKS, TATWEEL
from pipelines.stimuli.record import Stimulus
from pipelines.stimuli.selecting import fold

COMPOSED: Final = frozenset("\u0622\u0623\u0624\u0625\u0626")
COMBINING: Final = frozenset("\u0653\u0654\u0655")
"""Madda and hamza as marks of their own, above and below."""
OTHER_INVISIBLE: Final = INVISIBLE - frozenset(BIDI_MARKS) - {TATWEEL}
CLASSES: Final = 50
"""A label of more values is no class, but a name."""
MAJORITY: Final = 0.8
"""From this share on a probe that always says the commonest value looks good."""
NO_VALUE: Final = frozenset({"nan", "na", "n/a", "none", "null", "-", "_"})
"""What tables write where there is no value, in small letters; an empty text is told beside them."""
SHOWN: Final = 3


def text_findings(stimuli: Sequence[Stimulus]) -> list[Finding]:
    """List marks in another order than NFC, two encodings of hamza, tatweel, bidi and other invisible marks."""
    found = [
        _holding(stimuli, "tatweel", "hold tatweel (U+0640), which cuts words into other tokens", frozenset(TATWEEL)),
        _holding(stimuli, "bidi_marks", "hold bidirectional marks, which are characters of the text", set(BIDI_MARKS)),
        _holding(stimuli, "invisible_marks", "hold joiners, zero-width spaces or the like", OTHER_INVISIBLE),
        _matching(
            stimuli,
            "mark_order",
            "have Arabic marks in another order than NFC, as shadda before its vowel; other sources have that order",
            _reordered,
        ),
        _hamza(stimuli),
        _expected(stimuli),
    ]
    return [finding for finding in found if finding]


def _matching(stimuli: Sequence[Stimulus], code: str, said: str, test: Callable[[str], bool]) -> Finding | None:
    ids = tuple(stimulus.id for stimulus in stimuli if test(stimulus.prompt))
    return Finding(code, prompts_that(len(ids), said), ids) if ids else None


def _holding(stimuli: Sequence[Stimulus], code: str, said: str, marks: "frozenset[str] | set[str]") -> Finding | None:
    placed = [(s, at) for s in stimuli if (at := _first(s.prompt, marks)) is not None]
    if not placed:
        return None
    stimulus, at = placed[0]
    where = f"U+{ord(stimulus.prompt[at]):04X} at byte {len(stimulus.prompt[:at].encode())} of {stimulus.id!r}"
    return Finding(code, f"{prompts_that(len(placed), said)}: {where}", tuple(s.id for s, _ in placed))


def _first(text: str, marks: "frozenset[str] | set[str]") -> int | None:
    return next((at for at, character in enumerate(text) if character in marks), None)


def _reordered(text: str) -> bool:
    """Whether NFC changes the order of marks, and not only their composition."""
    # Decomposed one by one, characters keep the order of their marks.
    return unicodedata.normalize("NFD", text) != "".join(unicodedata.normalize("NFD", one) for one in text)


def _hamza(stimuli: Sequence[Stimulus]) -> Finding | None:
    apart = tuple(s.id for s in stimuli if COMBINING.intersection(s.prompt))
    if not apart or not any(COMPOSED.intersection(s.prompt) for s in stimuli):
        return None
    said = f"the set mixes two encodings of hamza and madda: marks of their own in {len(apart)} prompts, else composed"
    return Finding("mixed_hamza", said, apart)


def _expected(stimuli: Sequence[Stimulus]) -> Finding | None:
    ids = tuple(s.id for s in stimuli if s.expected and not unicodedata.is_normalized("NFC", s.expected))
    said = f"{len(ids)} expected texts are not in NFC: equal to the eye may be unequal in `exact`; see score.normalize"
    return Finding("expected_not_nfc", said, ids) if ids else None


def label_findings(stimuli: Sequence[Stimulus]) -> list[Finding]:
    """List labels whose classes are uneven, single, written in two ways, or no values at all but words for none."""
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for stimulus in stimuli:
        for name, value in stimulus.labels.items():
            values[name][value].append(stimulus.id)
    return [finding for name, ids in sorted(values.items()) for finding in _of_label(name, ids)]


def _of_label(name: str, ids: dict[str, list[str]]) -> Iterator[Finding]:
    counts = Counter({value: len(found) for value, found in ids.items()})
    yield from _written_twice(name, ids)
    yield from _no_values(name, ids)
    total, classes = counts.total(), len(counts)
    (common, most), *_ = counts.most_common(1)
    if classes == 1:
        said = f"the label {name!r} has one value, {common!r}: nothing can be decoded from it"
        yield Finding("one_class", said, (), "note")
        return
    if classes > CLASSES or classes == total:
        return
    if most / total >= MAJORITY:
        said = f"{most} of {total} stimuli have {name} {common!r}: always saying that is {most / total:.0%} right"
        yield Finding("imbalance", said, ())
    rare = [value for value, count in counts.items() if count == 1]
    if rare:
        shown = ", ".join(map(repr, rare[:SHOWN])) + (", …" if len(rare) > SHOWN else "")
        said = (
            f"{len(rare)} of {classes} values of {name!r} stand on one stimulus only ({shown}): no fold can test them"
        )
        yield Finding("single_class", said, tuple(ids[value][0] for value in rare))


def _no_values(name: str, ids: dict[str, list[str]]) -> Iterator[Finding]:
    """Values that say that there is none: for a probe each is a class like any other."""
    found = [value for value in ids if not value.strip() or value.strip().lower() in NO_VALUE]
    if not found:
        return
    holding = tuple(one for value in found for one in ids[value])
    count = f"{len(holding)} stimuli have" if len(holding) > 1 else "1 stimulus has"
    said = (
        f"{count} {', '.join(map(repr, found))} as the label {name!r}, which a probe takes for a class; where it means "
        "that there is no value, list it in `columns.missing`, or leave the label out"
    )
    yield Finding("no_value", said, holding)


def _written_twice(name: str, ids: dict[str, list[str]]) -> Iterator[Finding]:
    alike: dict[str, list[str]] = defaultdict(list)
    for value in ids:
        alike[fold(value)].append(value)
    groups = [values for values in alike.values() if len(values) > 1]
    if groups:
        # One finding for a label, as forms in a treebank begin many a sentence in capitals.
        shown = "; ".join(", ".join(map(repr, values)) for values in groups[:SHOWN]) + ("; …" * (len(groups) > SHOWN))
        count = f"{len(groups)} groups of values" if len(groups) > 1 else "values"
        said = f"{count} of the label {name!r} differ in white space, letter case or normal form only: {shown}"
        rare = (min(values, key=lambda value: len(ids[value])) for values in groups)
        yield Finding("label_spelling", said, tuple(one for value in rare for one in ids[value]))
