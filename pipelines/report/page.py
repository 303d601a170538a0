"""Sections as one HTML file that needs nothing but itself. Everything is escaped unless this module made it."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from pipelines.report import charts
from pipelines.report.blocks import Figure, Prose, Section
from pipelines.report.plain_text import language_of, pieces, visible

TEMPLATES: Final = "pipelines.report"
WORDS: Final = (
    ("run", "one set of prompts given to one model, with everything that was kept of it in one directory"),
    (
        "prompt, stimulus",
        "a text that was given to the model; a stimulus is a prompt with its labels and what was expected",
    ),
    ("token", "a piece of text that the model reads or writes at once: a word, a part of one, or a letter"),
    ("label", "what is known about a prompt beforehand, such as the root of its word"),
    ("layer, site", "the model computes in layers; a site is a place inside a layer where states were taken"),
    ("hidden state", "the vector that the model holds for one token at one site of one layer"),
    ("95 % interval", "would hold the true share in 95 of 100 repetitions, if its idea of what varies is right"),
    ("hash, sha256", "a fingerprint of a file or of data: equal for equal content"),
)


@dataclass(frozen=True, slots=True)
class Page:
    """What stands on a page."""

    title: Prose
    subtitle: Prose
    summary: tuple[Prose, ...]
    sections: tuple[Section, ...]
    ember: str
    """Version."""


def render(page: Page) -> str:
    """Return the page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(shown=shown, plain=plain, inline=inline, language=language_of)
    told = environment.get_template("page.html.j2").render(
        page=page, words=WORDS, style=Markup(_read("style.css")), figures=_figures(page.sections)
    )
    return "\n".join(line.rstrip() for line in told.splitlines() if line.strip()) + "\n"


def _read(name: str) -> str:
    return resources.files(TEMPLATES).joinpath("templates", name).read_text(encoding="utf-8")


def _figures(sections: Sequence[Section]) -> dict[str, int]:
    names = [block.name for section in sections for block in section.blocks if isinstance(block, Figure)]
    return {name: number for number, name in enumerate(names, start=1)}


def shown(text: str) -> Markup:
    """Escape text of anybody, with names in the place of characters that cannot be seen."""
    return Markup("").join(
        Markup('<span class="hidden-character">{}</span>').format(piece) if named else escape(piece)
        for piece, named in pieces(text)
    )


def plain(prose: Prose | str) -> str:
    """Prose without markup, for attributes and the title."""
    parts = (prose,) if isinstance(prose, str) else prose
    return visible("".join(_isolated(part) for part in parts))


def _isolated(part: Any) -> str:
    return part if isinstance(part, str) else str(part.text)


def inline(figure: Figure) -> Markup:
    """Return a figure's SVG; it holds only paths that matplotlib drew."""
    return Markup(charts.inline_svg(figure.svg, figure.name, recolour=not figure.paper))
