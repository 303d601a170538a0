"""The work that is timed: 200 templated prompts of about 28 tokens that share their first dozen."""

import itertools
import random
from collections.abc import Sequence

_ROOTS = (
    *("ktb", "drs", "qrʾ", "fhm", "ʿlm", "ḥml", "jls", "ḫrj", "dḫl", "šrb"),
    *("ʾkl", "smʿ", "nẓr", "ḏhb", "rjʿ", "ṭlb", "fth", "ġlq", "ṣnʿ", "lʿb"),
)
_PATTERNS = ("1a2a3a", "1ā2i3", "ma12ū3", "ta1a22a3", "in1a2a3", "i1ta2a3", "ista12a3", "ma12a3", "1i2ā3", "1a2ī3")
_TEMPLATE = (
    "Question: say which consonants are the root of the word {form}, "
    "and what its pattern means in the grammar of Arabic verbs."
)


def texts(count: int = 200) -> list[str]:
    """Make `count` <= 200 distinct prompts in a fixed, shuffled order: finding what they share is part of the work."""
    forms = [_form(root, pattern) for root in _ROOTS for pattern in _PATTERNS]
    random.Random(0).shuffle(forms)
    return [_TEMPLATE.format(form=form) for form in forms[:count]]


def rows_after_sharing(prompts: Sequence[Sequence[int]]) -> int:
    """Count the nodes of the prompts' prefix tree: what has to be computed when nothing is computed twice."""
    ordered = sorted(map(tuple, prompts))
    rows = len(ordered[0])
    for previous, current in itertools.pairwise(ordered):
        common = next((n for n, (a, b) in enumerate(zip(previous, current, strict=False)) if a != b), len(previous))
        rows += len(current) - common
    return rows


def common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Count the first tokens that all prompts share."""
    columns = zip(*prompts, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _form(root: str, pattern: str) -> str:
    return "".join(root[int(character) - 1] if character.isdigit() else character for character in pattern)


def few_shot(prompts: Sequence[list[int]], length: int = 200) -> list[list[int]]:
    """Put the same `length` tokens before each prompt: other prompts' tokens, one after the other."""
    examples = list(itertools.chain.from_iterable(prompts))
    repeated = (examples * -(-length // len(examples)))[:length]
    return [[*repeated, *prompt] for prompt in prompts]


def unshared(prompts: Sequence[list[int]]) -> list[list[int]]:
    """Put a token of its own before each prompt, so that no two begin alike."""
    return [[1000 + number, *prompt] for number, prompt in enumerate(prompts)]


def long_prompts(count: int, length: int, vocabulary: int = 32_000) -> list[list[int]]:
    """Draw prompts of one length that share nothing."""
    drawn = random.Random(0)
    return [[100 + n, *(drawn.randrange(vocabulary) for _ in range(length - 1))] for n in range(count)]
