"""What is suspicious about a stimulus set, seen from its texts alone.

`leaks` are refused (a label that the prompt gives away without saying so), `find` only reports. Neither changes a text.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pipelines.settings import closest
from pipelines.stimuli.normalisers import PRESENTATION_FORMS
from pipelines.stimuli.packed import PackedStimuli, pack
from pipelines.stimuli.record import Dropped, Stimulus
from pipelines.stimuli.selecting import fold

INVISIBLE: Final = frozenset(
    "\u00ad\u034f\u061c\u0640\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
"""Bidi marks and isolates, joiners, tatweel, soft hyphen, zero-width spaces, a byte order mark inside a text."""
_ANY_INVISIBLE: Final = re.compile(f"[{''.join(sorted(INVISIBLE))}]")
LETTER_PAIRS: Final = (("\u064a", "\u06cc", "yeh"), ("\u0643", "\u06a9", "kaf"))
"""Arabic and Persian code points of one letter: a set that has both mixes two encodings."""
OF_ONE: Final = {"end": "ends", "are": "is", "hold": "holds", "have": "has"}
"""Verbs of findings, as one prompt has them."""
FEW: Final = 2
"""Labels that only some stimuli have are told one by one up to this number."""
SHORTEST_LEAK: Final = 2
"""Label values of fewer characters are met by chance everywhere and are not searched for."""


Severity = Literal["error", "warning", "note"]
"""error: a run is refused; warning: results may be misread; note: worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of trouble and the stimuli that have it."""

    code: str
    message: str
    ids: tuple[str, ...]
    severity: Severity = "warning"


def leaks(stimuli: Sequence[Stimulus]) -> list[str]:
    """Say which labels prompts give away without declaring it in `reveals`: by their text, or by their template."""
    return [finding.message for finding in leak_findings(stimuli)]


def leak_findings(stimuli: Sequence[Stimulus]) -> list[Finding]:
    """As `leaks`, with the stimuli that do."""
    packed = pack(stimuli)
    return _spelt_labels(packed) + _template_labels(packed)


def unknown_reveals(stimuli: Sequence[Stimulus]) -> list[str]:
    """Say which names in `reveals` are no labels: a misspelt one would declare nothing."""
    packed = pack(stimuli)
    known = packed.label_names
    declared = sorted({name for kind in packed.kinds for name in kind.reveals})
    return [
        f"stimuli: `reveals` names {name!r}, which is no label{closest(name, known)}"
        for name in declared
        if name not in known
    ]


def _spelt_labels(stimuli: PackedStimuli) -> list[Finding]:
    if all(set(kind.labels) <= set(kind.reveals) for kind in stimuli.kinds):
        return []
    spelt: dict[str, list[Stimulus]] = defaultdict(list)
    for stimulus in stimuli:
        prompt = stimulus.prompt.casefold()
        for name, value in stimulus.labels.items():
            if name not in stimulus.reveals and has_word(prompt, value.casefold()):
                spelt[name].append(stimulus)
    return [
        Finding(
            "leak_in_text",
            f"the label {name!r} stands in the text of {len(found)} prompts, such as {found[0].id!r} "
            f"({found[0].labels[name]!r} in {found[0].prompt!r})",
            _ids(found),
            "error",
        )
        for name, found in spelt.items()
    ]


def has_word(text: str, word: str) -> bool:
    """Whether `word` occurs in `text` with no letter, digit or mark touching its ends."""
    at = text.find(word) if len(word) >= SHORTEST_LEAK else -1
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(word) : at + len(word) + 1]
        if not _joins(before) and not _joins(after):
            return True
        at = text.find(word, at + 1)
    return False


def _joins(character: str) -> bool:
    return character != "" and unicodedata.category(character)[0] in "LNM"


def _template_labels(stimuli: PackedStimuli) -> list[Finding]:
    """Labels that the template alone decides: every template has one value, and the values differ."""
    if all(kind.template is None for kind in stimuli.kinds):
        return []
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for stimulus in stimuli:
        if stimulus.template is not None:
            for name in stimulus.labels.keys() - set(stimulus.reveals):
                values[name][stimulus.template].add(stimulus.labels[name])
    return [
        Finding(
            "leak_by_template",
            f"the label {name!r} follows from the template alone "
            f"({', '.join(sorted(by_template))} have one value each)",
            (),
            "error",
        )
        for name, by_template in sorted(values.items())
        if len(set().union(*by_template.values())) > 1 and all(len(found) == 1 for found in by_template.values())
    ]


def find(stimuli: Sequence[Stimulus], dropped: Sequence[Dropped] = ()) -> list[Finding]:
    """List what deserves a look before a run; empty for a clean set."""
    packed = pack(stimuli)
    simple = [
        _matching(
            packed, "trailing_space", "end in white space, which most models never see before a continuation", _spaced
        ),
        _matching(packed, "not_nfc", "are not in NFC: the same text may exist in two encodings", _not_nfc),
        _matching(packed, "presentation_forms", "hold Arabic presentation forms instead of letters", _has_forms),
    ]
    whole = [_same_text(packed), _nearly_same(packed), _same_ending(packed), _invisible(packed), _dropped(dropped)]
    lists = [*_mixed_letters(packed), *_uneven_labels(packed)]
    return [finding for finding in [*whole, *simple, *lists] if finding]


def _matching(stimuli: PackedStimuli, code: str, said: str, test: Callable[[str], bool]) -> Finding | None:
    ids = _whose(stimuli, test)
    return Finding(code, prompts_that(len(ids), said), ids) if ids else None


def prompts_that(n: int, said: str) -> str:
    """`2 prompts hold …`, `1 prompt holds …`; `said` begins with its verb as many have it."""
    verb, rest = said.split(" ", 1)
    return f"1 prompt {OF_ONE[verb]} {rest}" if n == 1 else f"{n} prompts {said}"


def _whose(stimuli: PackedStimuli, test: Callable[[str], bool]) -> tuple[str, ...]:
    """Ids of the stimuli whose prompt passes a test."""
    return tuple(stimuli.ids[at] for at, prompt in enumerate(stimuli.prompts) if test(prompt))


def _ids(stimuli: Iterable[Stimulus]) -> tuple[str, ...]:
    return tuple(stimulus.id for stimulus in stimuli)


def _spaced(prompt: str) -> bool:
    return prompt[-1].isspace()


def _not_nfc(prompt: str) -> bool:
    return not unicodedata.is_normalized("NFC", prompt)


def _has_forms(prompt: str) -> bool:
    return PRESENTATION_FORMS.search(prompt) is not None


def _same_ending(stimuli: PackedStimuli) -> Finding | None:
    """One last character everywhere: `position: last` then captures the same token each time, and not the word."""
    endings = {prompt[-1] for prompt in stimuli.prompts}
    if len(stimuli) < 2 or len(endings) > 1:
        return None
    (last,) = endings
    said = f"all {len(stimuli)} prompts end in {last!r} (U+{ord(last):04X}): `position: last` captures that, not a word"
    return Finding("same_ending", said, ())


def _groups(stimuli: PackedStimuli, key: Callable[[str], str]) -> list[list[int]]:
    """Places of stimuli whose prompts have the same key, group by group; those that stand alone are left out."""
    first: dict[str, int] = {}
    groups: dict[int, list[int]] = {}
    for at, prompt in enumerate(stimuli.prompts):
        home = first.setdefault(key(prompt), at)
        if home != at:
            groups.setdefault(home, [home]).append(at)
    return [groups[home] for home in sorted(groups)]


def _same_text(stimuli: PackedStimuli) -> Finding | None:
    groups = _groups(stimuli, lambda prompt: prompt)
    many = "1 text stands" if len(groups) == 1 else f"{len(groups)} texts stand"
    said = f"{many} under several ids: a split by id would put one text on both sides"
    return Finding("duplicate_text", said, _ids_of(stimuli, groups)) if groups else None


def _nearly_same(stimuli: PackedStimuli) -> Finding | None:
    groups = [group for group in _groups(stimuli, fold) if len({stimuli.prompts[at] for at in group}) > 1]
    many = "1 group of texts differs" if len(groups) == 1 else f"{len(groups)} groups of texts differ"
    said = f"{many} in white space, letter case or normal form only"
    return Finding("near_duplicate", said, _ids_of(stimuli, groups)) if groups else None


def _ids_of(stimuli: PackedStimuli, groups: Iterable[Sequence[int]]) -> tuple[str, ...]:
    return tuple(stimuli.ids[at] for group in groups for at in group)


def _invisible(stimuli: PackedStimuli) -> Finding | None:
    found = _whose(stimuli, lambda prompt: _ANY_INVISIBLE.search(prompt) is not None)
    if not found:
        return None
    first, mark = next((at, mark) for at, text in enumerate(stimuli.prompts) if (mark := _ANY_INVISIBLE.search(text)))
    name = unicodedata.name(mark[0], "unnamed")
    said = (
        f"hold invisible or stretching marks, such as U+{ord(mark[0]):04X} {name} at character {mark.start()} of "
        f"{stimuli.ids[first]!r}"
    )
    return Finding("invisible_marks", prompts_that(len(found), said), found)


def _mixed_letters(stimuli: PackedStimuli) -> list[Finding]:
    findings = []
    for arabic, persian, name in LETTER_PAIRS:
        rare = tuple(stimuli.ids[at] for at, prompt in enumerate(stimuli.prompts) if persian in prompt)
        if rare and any(arabic in prompt for prompt in stimuli.prompts):
            said = (
                f"the set mixes two code points of {name}: U+{ord(persian):04X} in {len(rare)} prompts, "
                f"U+{ord(arabic):04X} in others"
            )
            findings.append(Finding(f"mixed_{name}", said, rare))
    return findings


def _uneven_labels(stimuli: PackedStimuli) -> list[Finding]:
    """Labels that only some stimuli have: misspelt, or added halfway; many of them are features, as of a treebank."""
    lacking = {name: stimuli.lacking(name) for name in stimuli.label_names}
    findings = [
        Finding("uneven_label", f"{len(ids)} of {len(stimuli)} stimuli have no label {name!r}", tuple(ids))
        for name, ids in lacking.items()
        if ids
    ]
    if len(findings) <= FEW:
        return findings
    shown = "; ".join(finding.message for finding in findings[:FEW])
    return [Finding("uneven_label", f"{len(findings)} labels stand on some stimuli only: {shown}; …", (), "note")]


def _dropped(dropped: Sequence[Dropped]) -> Finding | None:
    if not dropped:
        return None
    said = f"{len(dropped)} crossings have no form by the stated rules and are left out, such as {dropped[0].reason}"
    return Finding("dropped", said, tuple(item.id for item in dropped))
