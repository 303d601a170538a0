"""Which rows a probe learns from and which it is judged on; a split that would say nothing is refused with the reason.

Groups (prompts, roots, patterns, …) are never torn: each goes to one fold whole. With several ways of grouping, such as
root and pattern, a row is tested where all of its groups are held out, and learnt from where none is. Strengths are
chosen on the other folds of the same partition, so that the inner folds keep groups apart as the outer ones do. Of two
folds (two templates) none is left for that: there strengths are chosen on parts of the one that is learnt from, among
which only prompts are kept apart.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ember.errors import InputError
from pipelines.probes.design import Rows
from pipelines.probes.lbfgs import Doubles
from pipelines.probes.targets import Codes, generator

Key = tuple[int, ...]
"""A fold for each way of grouping."""
Excluded = tuple[frozenset[int], ...]
"""Folds left out of a training set, for each way."""

SHOWN: Final = 3
PARTS: Final = 3
"""Parts of the one training fold among which strengths are compared where there are two folds."""


class SplitRefused(InputError):
    """A split that cannot be made for a label; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows grouped in one way."""

    field: str
    names: tuple[str, ...]
    codes: Codes


@dataclass(frozen=True, slots=True)
class Inner:
    """A comparison of strengths: rows to learn from and rows to judge on, both outside the test set."""

    name: object
    """The same for the same rows to learn from."""
    learn: Rows
    judge: Rows


@dataclass(frozen=True, slots=True)
class Folds:
    """A partition of rows."""

    assigned: Codes
    """[ways, rows] the fold of each row's group."""
    count: int
    within: Codes | None = None
    """[rows] parts inside folds, where there are only two folds; a small fold may have fewer of them than PARTS."""

    @property
    def keys(self) -> list[Key]:
        """Every test set that has rows."""
        ways = len(self.assigned)
        return [key for key in itertools.product(range(self.count), repeat=ways) if len(self.test_rows(key))]

    def test_rows(self, key: Key) -> Rows:
        """Rows whose groups are all in the folds of `key`."""
        return np.flatnonzero((self.assigned == np.array(key)[:, None]).all(axis=0))

    def training_rows(self, excluded: Excluded) -> Rows:
        """Rows none of whose groups is in an excluded fold."""
        kept = np.ones(self.assigned.shape[1], np.bool_)
        for folds, out in zip(self.assigned, excluded, strict=True):
            kept &= ~np.isin(folds, list(out))
        return np.flatnonzero(kept)

    def inner(self, key: Key) -> list[Inner]:
        """Comparisons of strengths for the test set `key`: on every test set that shares no fold with it."""
        if self.within is not None:
            training = self.training_rows(outside(key))
            parts = self.within[training]
            there = np.unique(parts).tolist()
            return [Inner((key, part), training[parts != part], training[parts == part]) for part in there]
        others = [other for other in self.keys if all(a != b for a, b in zip(key, other, strict=True))]
        named = [(outside(key, other), self.test_rows(other)) for other in others]
        return [Inner(excluded, self.training_rows(excluded), judge) for excluded, judge in named]


def outside(*keys: Key) -> Excluded:
    """Folds that a training set for the given test sets leaves out."""
    return tuple(frozenset(folds) for folds in zip(*keys, strict=True))


def make_folds(
    codes: Codes, classes: Sequence[str], groupings: Sequence[Grouping], prompts: Grouping, *, count: int, seed: int
) -> Folds:
    """Assign groups to folds so that classes are spread evenly.

    `prompts` groups rows whose prompts have the same tokens. Raises SplitRefused.
    """
    for grouping in groupings:
        groups = len(np.unique(grouping.codes))
        if groups < count:
            raise SplitRefused(
                f"{count} folds need at least {count} groups; there {_are(groups, 'different ' + grouping.field)}"
            )
    _refuse_unlearnable(codes, classes, groupings)
    assigned = [_assign(codes, grouping.codes, count, seed, grouping.field) for grouping in groupings]
    within = _within(assigned[0], codes, prompts.codes, seed) if count == 2 and len(groupings) == 1 else None
    folds = Folds(np.array(assigned), count, within)
    _check(folds, codes, classes, groupings, prompts)
    return folds


def _within(folds: Codes, codes: Codes, prompts: Codes, seed: int) -> Codes:
    """[rows] parts, dealt inside each fold: dealt over both, they may leave the smaller fold without some of them."""
    found = np.empty(len(folds), np.int64)
    for fold in np.unique(folds):
        here = np.flatnonzero(folds == fold)
        found[here] = _assign(codes[here], prompts[here], PARTS, seed, "within")
    return found


def _are(n: int, what: str) -> str:
    return f"is 1 {what}" if n == 1 else f"are {n} {what}s"


def _refuse_unlearnable(codes: Codes, classes: Sequence[str], groupings: Sequence[Grouping]) -> None:
    """Refuse classes that live in one group only: held out, they are in no training set."""
    for grouping in groupings:
        pairs = np.unique(np.stack([codes, grouping.codes]), axis=1)
        groups = np.bincount(pairs[0], minlength=len(classes))
        alone = [name for name, number in zip(classes, groups, strict=True) if number == 1]
        if len(alone) == len(classes):
            raise SplitRefused(
                f"every class occurs in one {grouping.field} only: with it held out, no training fold has the class "
                "that is to be told"
            )
        if alone:
            raise SplitRefused(
                f"{_some(alone)} {'occurs' if len(alone) == 1 else 'occur'} in one {grouping.field} only, and so in "
                f"no training fold when that is held out; leave {'it' if len(alone) == 1 else 'them'} out with "
                f"`exclude`, or add stimuli"
            )


def _check(
    folds: Folds, codes: Codes, classes: Sequence[str], groupings: Sequence[Grouping], prompts: Grouping
) -> None:
    keys = folds.keys
    tested: set[int] = set()
    learnt: set[int] = set()
    for key in keys:
        test, training = folds.test_rows(key), folds.training_rows(outside(key))
        _check_prompts(prompts, test, training, groupings)
        here = set(np.unique(codes[test]).tolist())
        tested |= here
        learnt |= here & set(np.unique(codes[training]).tolist())
        inner = folds.inner(key)
        if len(inner) < (1 if folds.within is None else 2):
            raise SplitRefused(
                "a training fold leaves nothing to choose strengths on: it needs two parts that share no prompt, or "
                "another fold; add stimuli, or use more folds"
            )
        for learn in (training, *(one.learn for one in inner)):
            if len(np.unique(codes[learn])) < 2:
                raise SplitRefused(
                    "a training fold (strengths are chosen inside it) is left with fewer than two classes; "
                    "add stimuli, or use more folds"
                )
    if missing := sorted(tested - learnt):
        raise SplitRefused(
            f"{_some([classes[code] for code in missing])}: absent from every training fold where it is tested; "
            "leave it out with `exclude`, or add stimuli"
        )


def _check_prompts(prompts: Grouping, test: Rows, training: Rows, groupings: Sequence[Grouping]) -> None:
    shared = np.intersect1d(prompts.codes[test], prompts.codes[training])
    if len(shared):
        fields = " and ".join(grouping.field for grouping in groupings)
        raise SplitRefused(
            f"the same prompt stands in training and test, so what is held out would be known: "
            f"{_some([prompts.names[code] for code in shared.tolist()])} (and stimuli with the same tokens); "
            f"give every prompt one {fields}, or remove repeated prompts"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name) for name in names[:SHOWN]) + more


def _assign(codes: Codes, groups: Codes, count: int, seed: int, field: str) -> Codes:
    """Return the fold of each row: whole groups, classes spread as evenly as groups let them."""
    random = generator(seed, "folds", field)
    names, group = np.unique(groups, return_inverse=True)
    table = np.zeros((len(names), int(codes.max()) + 1))
    np.add.at(table, (group, codes), 1)
    order = random.permutation(len(names))
    pure = (table > 0).sum(axis=1).max() == 1 and table.sum(axis=1).max() == table.sum(axis=1).min()
    fold_of = _deal(table, order, count) if pure else _spread(table, order, count)
    return fold_of[group]


def _deal(table: Doubles, order: Rows, count: int) -> Codes:
    """Deal groups of one class and one size like cards, class after class."""
    by_class = order[np.argsort(table[order].argmax(axis=1), kind="stable")]
    found = np.empty(len(table), np.int64)
    found[by_class] = np.arange(len(table)) % count
    return found


def _spread(table: Doubles, order: Rows, count: int) -> Codes:
    """Give groups, the most lopsided first, to the fold where classes stay most even; then where rows are fewest."""
    shares = table / np.maximum(table.sum(axis=0), 1)
    ordered = order[np.argsort(-table[order].std(axis=1), kind="stable")]
    held, sizes = np.zeros((count, table.shape[1])), np.zeros(count)
    found = np.empty(len(table), np.int64)
    for group in ordered.tolist():
        trials = held[None] + np.eye(count)[:, :, None] * shares[group]
        spread = trials.std(axis=1).mean(axis=1).round(12)
        fold = int(np.lexsort((sizes, spread))[0])
        held[fold] += shares[group]
        sizes[fold] += table[group].sum()
        found[group] = fold
    return found
