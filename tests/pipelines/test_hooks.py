"""Hook plans compiled by hand: who is acted on, where, in which layers, with what, and how rows are shared."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ember.errors import EmberError
from ember.units import build_tree
from ember.work import ALL_STEPS, CaptureWork, InterventionWork
from pipelines.config.hooks import HooksConfig
from pipelines.errors import ConfigError
from pipelines.hook_tables import decode, encode
from pipelines.hooks import HookPlan, plan_hooks
from pipelines.plan import Plan, make_plan
from pipelines.running import run
from pipelines.sources import read_rows
from pipelines.unit_file import UnitFile, read_unit_file, write_unit_file
from tests.faults.rig import make_config

ITEMS: list[dict[str, Any]] = [
    {"id": "a", "prompt": "say one two", "labels": {"kind": "clean", "layer": "2", "at": "1"}, "target": "one"},
    {"id": "b", "prompt": "say one too", "labels": {"kind": "corrupt", "layer": "0", "at": "-1"}, "target": "one"},
    {"id": "c", "prompt": "say one two", "labels": {"kind": "corrupt", "layer": "2", "at": "0"}, "target": "one"},
]


def plan_of(folder: Path, hooks: dict[str, Any], **changes: Any) -> Plan:
    stimuli = {"items": ITEMS, "allow_leaks": True}
    return make_plan(make_config(folder, [], stimuli=stimuli, hooks=hooks, **changes))


def works(folder: Path, hooks: dict[str, Any], **changes: Any) -> tuple[Plan, UnitFile]:
    plan = plan_of(folder, hooks, **changes)
    return plan, read_unit_file(folder / write_unit_file(folder, plan))


def by_id(plan: Plan, per_sample: Any) -> dict[str, Any]:
    return {sample.stimulus.id: value for sample, value in zip(plan.samples, per_sample, strict=True)}


def test_captures(tmp_path: Path) -> None:
    captures = [
        {"name": "all", "site": "after_layer", "layers": {"from": 1, "to": -1}, "position": "all", "observe": "before"},
        {
            "name": "some",
            "site": "after_mlp",
            "layers": [-1, 0],
            "position": {"span": "mean"},
            "where": {"kind": "clean"},
        },
        {"name": "steps", "site": "after_logits", "position": "generated", "where": {"kind": ["corrupt", "other"]}},
        {"name": "one", "site": "after_layer", "layers": [1], "position": {"generated": 2}},
    ]
    plan, units = works(tmp_path, {"capture": captures}, generate={"max_tokens": 5})
    whole, some, steps, one = units.work(0, 3, 0).captures
    lengths = [len(sample.tokens) for sample in plan.samples]
    assert whole == CaptureWork("after_layer", (1, 2), tuple(tuple(range(n)) for n in lengths), False, "before")
    assert (some.layers, some.pooled, some.observe) == ((0, 2), True, "after")
    spans = by_id(plan, [sample.span_tokens for sample in plan.samples])
    assert by_id(plan, some.positions) == {"a": tuple(range(*spans["a"])), "b": (), "c": ()}
    assert (steps.layers, steps.step, steps.n_rows) == ((-1,), ALL_STEPS, 0)
    assert by_id(plan, steps.on_steps) == {"a": False, "b": True, "c": True}
    assert (one.step, one.on_steps) == (2, (True, True, True))
    assert [capture.n_rows for capture in plan.captures] == [sum(lengths), 1, 2 * 4, 3]
    unit = plan.captures[2].rows_of(0, 1)
    assert unit == (0 if plan.samples[0].stimulus.id == "a" else 4)


def test_choices_of_labels_become_one_operation_for_each_choice_of_layers(tmp_path: Path) -> None:
    act = {"operation": "scale", "strength": 3, "site": "after_layer", "layers": "{layer}", "position": "{at}"}
    plan, units = works(tmp_path, {"intervene": [act], "experiment": ["activation_stats"]})
    first, second = units.work(0, 3, 0).interventions
    last = {sample.stimulus.id: len(sample.tokens) - 1 for sample in plan.samples}
    assert (first.operation, first.site, first.strength, first.layers) == ("scale", "after_layer", 3.0, (0,))
    assert by_id(plan, first.positions) == {"a": (), "b": (last["b"],), "c": ()}
    assert second.layers == (2,)
    assert by_id(plan, second.positions) == {"a": (1,), "b": (), "c": (0,)}
    assert first.steps == second.steps == ()
    # of a part of the samples, the same
    (only,) = units.work(2, 3, 0).interventions
    assert only.positions == (first if first.positions[2] else second).positions[2:]


def test_the_order_of_the_list_is_the_order_of_the_operations(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.arange(64, dtype=np.float64))
    acts = [
        {"operation": "zero", "site": "after_mlp", "layers": "all", "position": "generated"},
        {"operation": "add", "site": "after_mlp", "layers": [1], "source": {"vector": "v.npy"}, "strength": -2},
        {
            "operation": "project_out",
            "site": "before_logits",
            "source": {"vector": "v.npy"},
            "where": {"kind": "clean"},
        },
    ]
    _, units = works(tmp_path, {"intervene": acts, "experiment": ["activation_stats"]}, generate={"max_tokens": 3})
    zero, add, project = units.work(0, 3, 0).interventions
    assert (zero.positions, zero.steps) == (((), (), ()), ((ALL_STEPS,),) * 3)
    assert (add.operation, add.strength, add.layers) == ("add", -2.0, (1,))
    np.testing.assert_array_equal(add.vector, np.arange(64, dtype=np.float32))
    assert (project.layers, sum(map(len, project.positions))) == ((-1,), 1)


@pytest.mark.parametrize(
    ("layers", "rows", "expected"), [([0, 2], 3, [0, 2]), ([0, 2], 2, [0, 1]), ("{layer}", 3, None)]
)
def test_rows_of_a_vector_file_belong_to_layers(tmp_path: Path, layers: Any, rows: int, expected: Any) -> None:
    values = np.arange(rows * 64, dtype=np.float32).reshape(rows, 64)
    np.save(tmp_path / "v.npy", values)
    act = {"operation": "add", "site": "after_mlp", "layers": layers, "source": {"vector": "v.npy"}}
    _, units = works(tmp_path, {"intervene": [act], "experiment": ["activation_stats"]})
    for work in units.work(0, 3, 0).interventions:
        np.testing.assert_array_equal(work.vector, values[list(work.layers) if expected is None else expected])


def test_a_capture_of_the_same_run_is_named_by_its_place(tmp_path: Path) -> None:
    captures = [
        {"name": "other", "site": "after_layer", "layers": [0], "observe": "after"},
        {"name": "early", "site": "after_attention", "layers": "all", "position": "all", "observe": "after"},
    ]
    acts = [
        {"operation": "add", "site": "after_mlp", "layers": [0, 1], "position": "all", "source": {"capture": "early"}},
        {"operation": "add", "site": "before_layer", "layers": [2], "source": {"capture": "other", "layer": 0}},
    ]
    _, units = works(tmp_path, {"capture": captures, "intervene": acts})
    same, earlier = units.work(0, 3, 0).interventions
    assert (same.capture, same.capture_layer) == (1, None)
    assert (earlier.capture, earlier.capture_layer) == (0, 0)


@pytest.mark.parametrize(
    ("capture", "act", "said"),
    [
        ({"layers": [1]}, {"layers": [0]}, r"has no layer 0; it has \[1\]"),
        ({"layers": "all"}, {"layers": [0], "source": {"capture": "c", "layer": 1}}, "not taken before"),
        ({"layers": "all"}, {"layers": [0]}, "not taken before the intervention at after_mlp of layer 0"),
        ({"site": "after_layer"}, {"layers": [0]}, "not taken before"),
        ({"layers": "all"}, {"layers": [0], "source": {"capture": "d"}}, "no capture is called 'd'; there are c"),
        ({"layers": "all"}, {"layers": [0], "source": {"capture": "c", "layer": 9}}, "layer 9 does not exist"),
        ({"position": "generated"}, {"layers": [0]}, "taken at generated steps"),
        ({"site": "before_logits"}, {"layers": [0]}, "not taken before"),
        ({"site": "after_logits"}, {"layers": [0]}, "not as wide"),
        (
            {"where": {"kind": "clean"}, "observe": "before"},
            {"layers": [0]},
            r"2 stimuli for which capture 'c', .* no fitting rows \(0 rows for 1 positions\): 'b', 'c'",
        ),
        (
            {"position": {"span": "all"}, "observe": "before"},
            {"layers": [0], "position": "all"},
            r"3 stimuli for which capture 'c'",
        ),
    ],
)
def test_captures_that_cannot_be_sources(
    tmp_path: Path, capture: dict[str, Any], act: dict[str, Any], said: str
) -> None:
    whole = {"name": "c", "site": "after_mlp", "observe": "after"} | capture
    change = {"operation": "replace", "site": "after_mlp", "source": {"capture": "c"}} | act
    with pytest.raises(ConfigError, match=said):
        plan_of(tmp_path, {"capture": [whole], "intervene": [change]}, generate={"max_tokens": 3})


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (
            {"layers": [7]},
            r"3 stimuli without the layers that hooks.intervene.0 asks for \(layers \[7\] do not exist",
        ),
        ({"layers": "{kind}"}, r"'a' \(layer 'clean' is no whole number\)"),
        ({"layers": [0], "position": {"index": 40}}, r"\(position index 40 does not exist in a prompt of .*'a'"),
        ({"layers": [0], "position": {"index": "{lost}"}}, r"\(it has no label 'lost'\): 'b', 'a', 'c'"),
        ({"layers": [0], "position": {"generated": "{layer}"}}, r"2 stimuli .*\(step 2 of 2\)"),
        ({"layers": [0], "where": {"kid": "clean"}}, r"hooks.intervene.0.where: no stimulus has a label 'kid'"),
        ({"layers": [0], "where": {"kind": "dirty"}}, "hooks.intervene.0.where: no stimulus fits"),
    ],
)
def test_places_that_do_not_exist_are_refused_by_id(tmp_path: Path, act: dict[str, Any], said: str) -> None:
    change = {"operation": "zero", "site": "after_mlp"} | act
    with pytest.raises(ConfigError, match=said):
        plan_of(tmp_path, {"intervene": [change], "experiment": ["activation_stats"]}, generate={"max_tokens": 3})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros(63, np.float32), "has 63 numbers in a row, after_mlp has 64"),
        (
            np.zeros((5, 64), np.float32),
            r"has 5 rows; expected one vector, or a row for each of the 3 layers .* 2 acted on",
        ),
        (np.zeros((1, 1, 64), np.float32), r"found shape \[1, 1, 64\]"),
        (np.zeros(64, np.float16), "found float16, expected one array of float32 or float64"),
        (np.zeros(64, np.int32), "found int32"),
        (np.full(64, np.nan), "64 of 64 numbers are not finite"),
        (np.full(64, 1e300), "64 of 64 numbers are not finite as float32"),
        (np.array([None] * 64), "is no .npy file of numbers"),
    ],
)
def test_vectors_that_cannot_be(tmp_path: Path, values: Any, said: str) -> None:
    np.save(tmp_path / "v.npy", values)
    act = {"operation": "add", "site": "after_mlp", "layers": [0, 1], "source": {"vector": "v.npy"}}
    with pytest.raises(ConfigError, match=said):
        plan_of(tmp_path, {"intervene": [act], "experiment": ["activation_stats"]})


@pytest.mark.parametrize("damage", ["absent", "empty", "short", "text", "npz"])
def test_files_that_are_no_vectors(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "v.npy"
    np.save(path, np.zeros(64, np.float32))
    body = path.read_bytes()
    if damage == "absent":
        path.unlink()
    elif damage == "npz":
        with path.open("wb") as file:
            np.savez(file, v=np.zeros(64, np.float32))
    else:
        path.write_bytes({"empty": b"", "short": body[:-8], "text": b"1, 2, 3"}[damage])
    act = {"operation": "add", "site": "after_mlp", "layers": [0, 1], "source": {"vector": "v.npy"}}
    with pytest.raises(ConfigError, match=r"v\.npy"):
        plan_of(tmp_path, {"intervene": [act], "experiment": ["activation_stats"]})


def test_a_header_that_promises_more_than_the_file_holds_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "v.npy"
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (2**40,)}
        np.lib.format.write_array_header_1_0(file, header)
    act = {"operation": "add", "site": "after_mlp", "layers": [0, 1], "source": {"vector": "v.npy"}}
    with pytest.raises(ConfigError, match=r"is no .npy file of numbers"):
        plan_of(tmp_path, {"intervene": [act], "experiment": ["activation_stats"]})


# --- experiments ------------------------------------------------------------------------------------------------------


def test_experiments_are_found_in_the_client(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from ember.hooks import Experiment\n"
        "class Mine(Experiment):\n"
        "    name = 'mine'\n"
        "    def __init__(self, depth=1): self.depth = depth\n"
    )
    listed = [{"use": "mine.py:Mine", "options": {"depth": 3}, "where": {"kind": "corrupt"}}, "activation_stats"]
    plan, units = works(tmp_path, {"experiment": listed})
    mine, stats = units.experiments
    assert (mine.spec, mine.options, mine.name, mine.mutates) == (
        f"{tmp_path}/mine.py:Mine",
        {"depth": 3},
        "mine",
        True,
    )
    assert mine.shown == "mine.py:Mine"
    assert by_id(plan, mine.on.tolist()) == {"a": False, "b": True, "c": True}
    assert (stats.mutates, stats.on.tolist()) == (False, [True] * 3)
    before = plan.hooks.sha256
    source = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(source + "# changed\n")
    assert plan_of(tmp_path, {"experiment": listed}).hooks.sha256 != before


def test_an_experiment_that_may_change_states_needs_observe(tmp_path: Path) -> None:
    captures = [{"site": "after_mlp"}]
    changing = {"use": "zero_layer_output", "options": {"spec": "1:mlp"}}
    with pytest.raises(ConfigError, match=r"hooks.capture.0: experiment 'zero_layer_output' may change hidden states"):
        plan_of(tmp_path, {"capture": captures, "experiment": [changing]})
    assert plan_of(tmp_path, {"capture": captures, "experiment": ["activation_stats"]}).captures[0].observe == "after"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("activation_stat", "hooks.experiment.0: experiment 'activation_stat' is unknown"),
        ({"use": "activation_stats", "options": {"x": 1}}, "hooks.experiment.0: "),
        ({"use": "absent.py:Mine"}, "hooks.experiment.0: "),
        ({"use": "activation_stats", "where": {"kind": "no"}}, "hooks.experiment.0.where: no stimulus fits"),
        (
            "zero_layer_output:5:mlp",
            "hooks.experiment.0: experiment 'zero_layer_output' does not fit the model: layer 5 does not exist: "
            "the model has 3 layers",
        ),
    ],
)
def test_experiments_that_cannot_be(tmp_path: Path, asked: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_of(tmp_path, {"experiment": [asked]})


# --- sharing and depth ------------------------------------------------------------------------------------------------


def shared(tmp_path: Path, hooks: dict[str, Any]) -> tuple[Plan, int]:
    plan = plan_of(tmp_path, hooks, generate={"max_tokens": 3})
    private = plan.hooks.private_from([len(sample.tokens) for sample in plan.samples])
    tree = build_tree([sample.tokens for sample in plan.samples], private)
    assert sum(unit.rows_shared for unit in plan.units) == len(tree.tokens)
    return plan, len(tree.tokens)


def test_rows_are_shared_up_to_the_first_token_changed(tmp_path: Path) -> None:
    look = {"capture": [{"site": "after_mlp", "observe": "after"}]}
    plan, base = shared(tmp_path, look)
    n = {sample.stimulus.id: len(sample.tokens) for sample in plan.samples}
    common = n["a"] + n["b"] + n["c"] - base  # a and c are the same prompt
    assert common > n["a"]

    def acting(position: Any, **more: Any) -> int:
        act = {"operation": "scale", "strength": 2, "site": "after_mlp", "layers": [0], "position": position} | more
        return shared(tmp_path, look | {"intervene": [act]})[1] - base

    assert acting("generated") == 0
    assert acting({"from_end": 0}, where={"kind": "clean"}) == 1
    assert acting({"index": 1}, where={"kind": "clean"}) == n["a"] - 1
    assert acting({"index": 1}, strength=1) == 0  # a factor of 1 changes nothing
    assert shared(tmp_path, look | {"experiment": ["activation_stats"]})[1] == sum(n.values())


def test_how_deep_the_model_is_run(tmp_path: Path) -> None:
    def depth(*captures: dict[str, Any], **changes: Any) -> int:
        return plan_of(tmp_path, {"capture": list(captures)}, **changes).layers_run

    assert depth({"site": "after_mlp", "layers": [0]}) == 1
    assert depth({"site": "before_layer", "layers": [1]}) == 1
    assert depth({"site": "before_layer", "layers": [0]}) == 0
    assert depth({"site": "after_layer", "layers": [0, 1]}, generate={"max_tokens": 1}) == 3
    assert depth({"site": "before_logits"}) == 3


FITTING = {
    "capture": [
        {"name": "c", "site": "after_layer", "layers": {"from": 0, "to": -1}, "position": "all", "observe": "after"},
        {"name": "s", "site": "after_logits", "position": {"generated": 1}, "observe": "before",
         "where": {"kind": "clean"}},
    ],
    "intervene": [
        {"operation": "zero", "site": "after_mlp", "layers": "{layer}", "position": "{at}"},
        {"operation": "add", "site": "after_mlp", "layers": [0, "{layer}"], "source": {"vector": "v.npy"}},
        {"operation": "replace", "site": "before_layer", "layers": [2], "source": {"capture": "c", "layer": 1},
         "position": "all"},
        {"operation": "restore", "site": "after_layer", "layers": {"from": 0, "to": "{layer}"}, "position": "all",
         "source": {"run": "source", "capture": "all", "stimulus": "{same}", "position": "same", "layer": "same"}},
    ],
    "experiment": [{"use": "zero_layer_output", "options": {"spec": "1:mlp"}, "where": {"kind": ["clean", "corrupt"]}}],
}  # fmt: skip
VALUES = (None, True, -1, 0, 7, 2**63, 0.5, "", "{at}", "{kind}", "{x}", "c", "all", "same", "a", "span", "mean")
KEYS = ("from", "to", "index", "span", "generated", "capture", "run", "vector", "kind")
JUNK = st.recursive(
    st.sampled_from(VALUES) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


@pytest.fixture(scope="module")
def fitting(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A plan in which everything that `FITTING` asks for is there, compiled in its folder."""
    folder = tmp_path_factory.mktemp("fitting")
    np.save(folder / "v.npy", np.ones((3, 64), np.float32))
    for item in ITEMS:
        item["labels"]["same"] = item["id"]
    look = [{"name": "all", "site": "after_layer", "position": "all"}]
    stimuli = {"items": ITEMS, "allow_leaks": True}
    run(make_config(folder, [], "source", stimuli=stimuli, hooks={"capture": look}), scheduler="serial")
    return plan_of(folder, FITTING, generate={"max_tokens": 5})


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(places(FITTING))), JUNK)
def test_any_value_anywhere_is_a_plan_or_a_refusal(fitting: Plan, path: tuple[Any, ...], junk: Any) -> None:
    tree = copy.deepcopy(FITTING)
    node: Any = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = junk
    assert fitting.config.source is not None
    base = fitting.config.source.parent
    try:
        config = HooksConfig.model_validate(tree, context={"base": base})
    except ValidationError:
        return
    card, samples = fitting.source.card, fitting.samples
    try:
        plan = plan_hooks(config, samples, card, fitting.max_tokens, fitting.source.file.sha256)
    except EmberError:
        return
    arrays, told = encode(plan.tables)
    for act in decode(arrays, json.loads(json.dumps(told))).interventions:
        act.works(0, len(samples), read_rows)
    assert plan.record(config) is not None


def test_a_plan_of_nothing_has_no_record() -> None:
    assert HookPlan(()).record(HooksConfig()) is None


def test_the_unit_file_gives_back_interventions(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones((3, 64), np.float32))
    acts = [
        {
            "operation": "add",
            "site": "after_mlp",
            "layers": "{layer}",
            "position": "{at}",
            "source": {"vector": "v.npy"},
        },
        {"operation": "zero", "site": "after_mlp", "layers": [0, 1], "position": {"generated": 0}},
    ]
    plan, units = works(tmp_path, {"intervene": acts, "experiment": ["activation_stats"]}, generate={"max_tokens": 3})
    for table, planned in zip(units.interventions, plan.hooks.interventions, strict=True):
        for i in range(3):
            assert [table.layers[i], table.positions[i], table.steps[i]] == [
                planned.layers[i],
                planned.positions[i],
                planned.steps[i],
            ]
    assert all(isinstance(work, InterventionWork) for work in units.work(0, 3, 0).interventions)


def test_compiling_needs_no_file(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {"experiment": ["activation_stats"]})
    empty = plan_hooks(HooksConfig(), plan.samples, plan.source.card, 0, str)
    assert empty == HookPlan(())
    assert empty.private_from([3, 4, 5]) is None
