"""The prefix tree and the cutting of units."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ember.units import build_tree, cut_units, default_unit_rows, plan_order, shared_prefix

PROMPTS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=12).map(lambda ids: np.array(ids, np.int32)),
    min_size=1,
    max_size=12,
)


@given(PROMPTS)
def test_a_row_is_one_history_and_every_history_has_one_row(prompts) -> None:
    tree = build_tree(prompts)
    histories = {}
    for p, prompt in enumerate(prompts):
        path = tree.path(p)
        assert tree.tokens[path].tolist() == prompt.tolist()
        assert tree.positions[path].tolist() == list(range(len(prompt)))
        assert (np.diff(path) > 0).all()  # a history stands before its row
        for position in range(len(prompt)):
            history = tuple(prompt[: position + 1].tolist())
            assert histories.setdefault(history, tree.row_of(p, position)) == tree.row_of(p, position)
            assert tree.owners[tree.row_of(p, position)] <= p
    assert len(set(histories.values())) == len(histories) == len(tree.tokens)


@given(PROMPTS, st.integers(1, 30))
def test_units_cover_all_prompts_and_hold_no_more_rows_than_allowed(prompts, unit_rows) -> None:
    ordered = [prompts[i] for i in plan_order(prompts)]
    units = cut_units(ordered, unit_rows)
    assert [i for start, end in units for i in range(start, end)] == list(range(len(ordered)))
    for start, end in units:
        rows = len(build_tree(ordered[start:end]).tokens)
        assert rows <= unit_rows or end - start == 1


@given(PROMPTS, st.integers(1, 30), st.data())
def test_private_rows_and_continuations_are_shared_with_nobody_and_counted(prompts, unit_rows, data) -> None:
    ordered = [prompts[i] for i in plan_order(prompts)]
    private = [data.draw(st.integers(0, len(p))) for p in ordered]
    more = [(i, [7, 8, i % 2][: data.draw(st.integers(1, 3))]) for i in range(len(ordered)) if data.draw(st.booleans())]
    tree = build_tree(ordered, private, more)
    assert tree.n_prompts == len(ordered)
    assert tree.ends.tolist() == [tree.row_of(i, len(p) - 1) for i, p in enumerate(ordered)]
    users: dict[int, set[int]] = {}
    for path, base in enumerate(tree.bases.tolist()):
        for row in tree.path(path).tolist():
            users.setdefault(row, set()).add(base)
    for i, prompt in enumerate(ordered):
        assert all(users[row] == {i} for row in tree.path(i)[private[i] :].tolist())
        assert tree.tokens[tree.path(i)].tolist() == prompt.tolist()
    for number, (base, tokens) in enumerate(more):
        path = tree.path(len(ordered) + number)
        assert tree.tokens[path].tolist() == [*ordered[base].tolist(), *tokens[:-1]]
        assert path[: len(ordered[base])].tolist() == tree.path(base).tolist()
        assert all(users[row] == {base} for row in path[len(ordered[base]) :].tolist())
    extra = [max((len(tokens) - 1 for base, tokens in more if base == i), default=0) for i in range(len(ordered))]
    for start, end in cut_units(ordered, unit_rows, private, extra):
        mine = [(base - start, tokens) for base, tokens in more if start <= base < end]
        rows = len(build_tree(ordered[start:end], private[start:end], mine).tokens)
        assert rows <= unit_rows or end - start == 1


def test_plan_order_is_by_tokens_and_keeps_equal_prompts_in_their_order() -> None:
    prompts = [np.array(ids, np.int32) for ids in ([2, 1], [1, 9], [2, 1], [1])]
    assert plan_order(prompts) == [3, 1, 0, 2]


def test_shared_prefix_and_default_unit() -> None:
    a, b = np.array([1, 2, 3], np.int32), np.array([1, 2, 4, 5], np.int32)
    assert shared_prefix(a, b) == 2
    assert shared_prefix(a, a) == 3
    assert [default_unit_rows(n) for n in (0, 1, 17, 65_536, 10**7)] == [512, 512, 512, 4096, 4096]
