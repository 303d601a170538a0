"""What sarf-nano reads, and what is kept from it: prompts about roots and patterns, each with the form it asks for.

Everything is decided by hashes and lists, so the corpus and its held-out parts are the same on every machine. The split
file `ember/assets/sarf-nano.split.json` states them; `python -m tests.foundry.sarf.corpus` writes it again.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from pipelines.stimuli.morphology import Form, MorphologyError, apply
from pipelines.stimuli.patterns import PATTERNS
from pipelines.stimuli.roots import nonce_roots, real_roots
from pipelines.stimuli.templates import MEASURE_LETTERS, Template, fill, parse_template

ROOT: Final = Path(__file__).parents[3]
SPLIT_FILE: Final = ROOT / "ember/assets/sarf-nano.split.json"
CONFIG: Final = ROOT / "configs/roots.yaml"

MORE_TEMPLATES: Final = {
    "on_measure": "{root} على وزن {pattern}:",
    "what_measure": "ما وزن {pattern} من {root}؟",
    "what_name": "ما {pattern_name} من {root}؟",
    "name_of": "{pattern_name} من {root}:",
}
"""Templates beside those of configs/roots.yaml. Which of all show a pattern's measure, and which only its name, is read
off their slots."""

FORM_VIII: Final = ("past_viii", "masdar_viii", "active_viii")
_NONCE_SEED: Final = 20
_INVENTED: Final = {  # how many invented roots of each build are read
    "C C C": 320, "w C C": 20, "C w C": 25, "C y C": 25, "C C w": 25, "C C y": 25, "C C ʾ": 20, "ʾ C C": 20,
    "zdḏṣḍṭẓ C C": 40, "C C =": 90, "zdḏṣḍṭẓ C =": 15,
}  # fmt: skip
_KEPT_INVENTED: Final = ("fǧḍ", "kzf", "škf")  # those of configs/roots.yaml
_KEPT_ROOTS, _KEPT_PAIRS, _KEPT_NAMES = 0.15, 0.10, 0.97


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt, the form that continues it (after a space), and where both come from."""

    prompt: str
    form: Form
    pattern: str
    template: str


@dataclass(frozen=True, slots=True)
class Split:
    """Which roots are read, and what is kept from the reader.

    `read` roots, `unseen` roots (in no prompt at all), `unseen_pairs` of a read root and a pattern (in no prompt), and
    `unnamed` roots, which are read in form VIII only with the measure spelt out, never with its name.
    """

    read: tuple[str, ...]
    unseen: tuple[str, ...]
    unseen_pairs: frozenset[tuple[str, str]]
    unnamed: frozenset[str]


def share(*parts: str) -> float:
    """A number in [0, 1) that depends on the strings alone."""
    return int.from_bytes(hashlib.sha256(":".join(parts).encode()).digest()[:6]) / 2**48


def changes_in_form8(root: str) -> bool:
    """Tell whether form VIII of this root is not the plain outline with the radicals put in."""
    return any(formed is not None and formed.rules for formed in (form(root, pattern) for pattern in FORM_VIII))


@cache
def form(root: str, pattern: str) -> Form | None:
    """The form of a root in a pattern of the table; None if no stated rule covers it."""
    try:
        return apply(root, PATTERNS[pattern].slots)
    except MorphologyError:
        return None


def make_split() -> Split:
    """Decide anew what is read and what is kept."""
    roots = [*real_roots(), *_invented(avoid=_KEPT_INVENTED)]
    unseen = list(_KEPT_INVENTED)
    unseen += [root for root in roots if share("root", root) < _KEPT_ROOTS]
    read = [root for root in roots if root not in unseen]
    pairs = {(root, name) for root in read for name in PATTERNS if share("pair", root, name) < _KEPT_PAIRS}
    unnamed = {root for root in read if changes_in_form8(root) and share("name", root) < _KEPT_NAMES}
    return Split(tuple(read), tuple(unseen), frozenset(pairs), frozenset(unnamed))


def _invented(avoid: tuple[str, ...]) -> list[str]:
    groups = [nonce_roots(n, seed=_NONCE_SEED, avoid=avoid, letters=letters) for letters, n in _INVENTED.items()]
    return list(dict.fromkeys(root for group in groups for root in group))


def load_split() -> Split:
    """Read the split file."""
    stored = json.loads(SPLIT_FILE.read_text(encoding="utf-8"))
    pairs = frozenset((root, name) for name, roots in stored["unseen_pairs"].items() for root in roots)
    return Split(tuple(stored["read"]), tuple(stored["unseen"]), pairs, frozenset(stored["unnamed"]))


def write_split(split: Split) -> None:
    """Write the split file: sorted where order says nothing."""
    by_pattern = {name: sorted(root for root, other in split.unseen_pairs if other == name) for name in PATTERNS}
    stored: dict[str, Any] = {
        "about": "roots in the transliteration of pipelines.stimuli.translit; see tests/foundry/sarf/corpus.py",
        "patterns": {name: pattern.slots for name, pattern in PATTERNS.items()},
        "form8": list(FORM_VIII),
        "read": split.read,
        "unseen": split.unseen,
        "unseen_pairs": by_pattern,
        "unnamed": sorted(split.unnamed),
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in stored.items())
    SPLIT_FILE.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


@lru_cache(maxsize=1)
def templates() -> dict[str, str]:
    """All prompt templates by name: those of configs/roots.yaml and the others."""
    configured = _config()["stimuli"]["templates"]
    return {name: template["text"] for name, template in configured.items()} | MORE_TEMPLATES


def names_only(template: str) -> bool:
    """Tell whether a template shows a pattern's name and not its measure."""
    return "{pattern}" not in templates()[template]


def words() -> list[str]:
    """The words of all prompts, without slots, roots and measures, in order of appearance."""
    texts = [*templates().values(), *(pattern.title for pattern in PATTERNS.values())]
    found = [word.strip(":؟") for text in texts for word in text.split() if "{" not in word]
    return list(dict.fromkeys(found))


def example(root: str, pattern: str, template: str) -> Example | None:
    """The prompt of a root and pattern in a template; None if they have no form."""
    made = form(root, pattern)
    if made is None:
        return None
    values = {"root": " ".join(made.root_ar), "pattern": _measure(pattern), "pattern_name": PATTERNS[pattern].title}
    return Example(fill(_parsed(template), values).text, made, pattern, template)


@cache
def _measure(pattern: str) -> str:
    return apply(MEASURE_LETTERS, PATTERNS[pattern].slots).surface


@cache
def _parsed(template: str) -> Template:
    return parse_template(templates()[template])


def examples(roots: Iterable[str], patterns: Iterable[str], names: Iterable[str]) -> Iterator[Example]:
    """All examples of roots x patterns x templates that have a form."""
    made = (example(root, pattern, name) for root in roots for pattern in patterns for name in names)
    return (one for one in made if one is not None)


def training_set(split: Split) -> list[Example]:
    """Everything that is read."""
    return [one for one in examples(split.read, PATTERNS, templates()) if is_read(one, split)]


def is_read(one: Example, split: Split) -> bool:
    """Tell whether the split lets this example be read."""
    root = one.form.root
    if root in split.unseen or (root, one.pattern) in split.unseen_pairs:
        return False
    return not (root in split.unnamed and one.pattern in FORM_VIII and names_only(one.template))


def held_out_sets(split: Split) -> dict[str, list[Example]]:
    """The sets on which sarf-nano is measured, from easy to hard; templates are those of configs/roots.yaml."""
    measure, name = "by_measure", "by_name"
    real = set(real_roots())
    read = [root for root in split.read if root in real]
    weak = [root for root in split.unseen if changes_in_form8(root)]
    unnamed = [root for root in read if root in split.unnamed]
    pairs = [(root, pattern) for root, pattern in sorted(split.unseen_pairs) if root in real]
    return {
        "seen_by_measure": [one for one in examples(read, PATTERNS, [measure]) if is_read(one, split)],
        "seen_by_name": [one for one in examples(read, PATTERNS, [name]) if is_read(one, split)],
        "unseen_pairs_by_measure": [one for pair in pairs if (one := example(*pair, measure))],
        "unseen_pairs_by_name": [one for pair in pairs if (one := example(*pair, name))],
        "unseen_roots_by_measure": list(examples(split.unseen, PATTERNS, [measure])),
        "unseen_roots_by_name": list(examples(split.unseen, PATTERNS, [name])),
        "form8_unnamed_by_name": list(examples(unnamed, FORM_VIII, [name])),
        "form8_unseen_by_measure": list(examples(weak, FORM_VIII, [measure])),
        "form8_unseen_by_name": list(examples(weak, FORM_VIII, [name])),
    }


@lru_cache(maxsize=1)
def _config() -> Any:
    return yaml.safe_load(CONFIG.read_text(encoding="utf-8"))


if __name__ == "__main__":
    write_split(make_split())
    print(f"wrote {SPLIT_FILE}")
