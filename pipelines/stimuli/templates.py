"""Prompt templates: text with slots, filled in one pass so that what fills a slot is never read as a slot again.

A slot is a name in braces; a literal brace is doubled. Filling remembers where each slot landed, in bytes, because a
target's place comes from the template and not from a search.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.settings import closest, refuse
from pipelines.stimuli.morphology import Form, apply
from pipelines.stimuli.record import Script

SLOTS: Final = ("root", "pattern", "pattern_name", "surface", "bare", "translit")
REVEALED_BY: Final = {"root": "root", "pattern": "pattern", "pattern_name": "pattern"}
"""Which label a slot spells out in the prompt."""
MEASURE_LETTERS: Final = ("ف", "ع", "ل")
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: literal stretches and slots in turn."""

    literals: tuple[str, ...]
    """One more than slots; the text before, between and after them."""
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filled:
    """A template's text, and where each of its slots landed."""

    text: str
    spans: tuple[tuple[str, int, int], ...]
    """(slot, first byte, one past the last byte) in the text's UTF-8, in order."""

    def span_of(self, slot: str) -> list[tuple[int, int]]:
        """All places of one slot."""
        return [(start, end) for name, start, end in self.spans if name == slot]


def parse_template(text: str, known: Sequence[str] | None = SLOTS) -> Template:
    """Split a template into literals and slots, whose names are among `known`; None: any that is not empty.

    Raises `settings.refuse`'s error for a bad brace or slot.
    """
    literals, slots = [""], []
    at = 0
    for piece in _PIECE.finditer(text):
        literals[-1] += text[at : piece.start()]
        at = piece.end()
        if piece[0] in ("{{", "}}"):
            literals[-1] += piece[0][0]
            continue
        slots.append(_slot(piece, text, known))
        literals.append("")
    literals[-1] += text[at:]
    return Template(tuple(literals), tuple(slots))


def _slot(piece: re.Match[str], text: str, known: Sequence[str] | None) -> str:
    name = piece[1]
    if name is None:
        raise refuse(f"found a lone {piece[0]!r} in {text!r}: double it to show a brace")
    if known is None and not name.strip():
        raise refuse(f"found an empty slot in {text!r}: write a name between the braces")
    if known is not None and name not in known:
        listed = ", ".join(f"{{{slot}}}" for slot in known)
        raise refuse(f"found the slot {{{name}}}, expected one of {listed}{closest(name, list(known))}")
    return name


def fill(template: Template, values: dict[str, str]) -> Filled:
    """Put `values` into the slots."""
    text, spans = template.literals[0], []
    at = len(text.encode())
    for slot, literal in zip(template.slots, template.literals[1:], strict=True):
        size = len(values[slot].encode())
        spans.append((slot, at, at + size))
        text += values[slot] + literal
        at += size + len(literal.encode())
    return Filled(text, tuple(spans))


def slot_values(form: Form, title: str, script: Script) -> dict[str, str]:
    """Return what each slot shows for a form, in a script; `title` is the pattern's name.

    {root} is the radicals with spaces between, {pattern} the measure on ف ع ل. {bare} and {translit} do not depend on
    the script. Raises MorphologyError when the measure itself has no form.
    """
    measure = apply(MEASURE_LETTERS, form.pattern)
    return {
        "root": " ".join(form.root if script == "translit" else form.root_ar),
        "pattern": _written(measure, script),
        "pattern_name": title,
        "surface": _written(form, script),
        "bare": form.bare,
        "translit": form.translit,
    }


def _written(form: Form, script: Script) -> str:
    return {"vocalised": form.surface, "bare": form.bare, "translit": form.translit}[script]


def target_places(
    text: str, known: Sequence[str] | None, filled: Filled, values: dict[str, str]
) -> tuple[str, tuple[tuple[int, int], ...] | None]:
    """Fill the target's text, and tell its places in a filled prompt where it is one slot that the prompt has too."""
    template = parse_template(text, known)
    places = filled.span_of(template.slots[0]) if template.literals == ("", "") else []
    return fill(template, values).text, tuple(places) or None
