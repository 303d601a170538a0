"""Whatever stands in a config, the answer is a run or a list of places, never a traceback."""

import copy
import json
import re

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipelines.config import load_configs
from pipelines.errors import ConfigError
from pipelines.stimuli import build_set
from pipelines.stimuli.checks import find

FULL = {
    "schema": "ember.pipeline/v1",
    "name": "x",
    "model": {"path": "m.gguf", "sha256": "0" * 64},
    "tokenizer": {"add_bos": "file", "parse_special": False, "normalize": "nfc"},
    "stimuli": {
        "generate": "root_pattern",
        "roots": ["كتب", {"root": "drs", "gloss": "study", "labels": {"k": "strong"}}],
        "patterns": {"a": "1A2i3", "b": {"pattern": "ma12uu3", "title": "اسم المفعول", "labels": {"f": "I"}}},
        "templates": {"t": {"text": "{root} {pattern}:", "reveals": ["root", "pattern"], "script": "bare"}},
        "script": "vocalised",
        "target": "{root}",
        "occurrence": 1,
        "expect": " {surface}",
        "expect_mode": "exact",
        "on_unformable": "drop",
        "allow_leaks": False,
    },
    "hooks": {"capture": [{"name": "c", "site": "after_layer", "layers": [0, -1], "position": {"span": "mean"}}]},
    "generate": {"max_tokens": 8},
    "engine": {"route": "auto", "numerics": "f32", "unit_rows": 9, "blas_threads": 1},
    "run": {"workers": 2, "memory_per_worker": "2GiB", "scheduler": "local"},
    "output": {"dir": "o", "dtype": "float32"},
    "guard": {"positions": 256, "allow_chance": False},
}
ITEMS = FULL | {
    "stimuli": {
        "items": [
            {
                "prompt": "الكتاب كتاب",
                "id": "i",
                "labels": {"a": "b"},
                "template": "t",
                "reveals": ["a"],
                "target": "كتاب",
                "occurrence": 2,
                "expected": "x",
            },
            "two",
        ],
        "reveals": [],
        "expect_mode": "prefix",
        "allow_leaks": True,
    }
}

ACTING = ITEMS | {
    "hooks": {
        "capture": [
            {
                "name": "c",
                "site": "after_layer",
                "layers": {"from": 0, "to": -1},
                "observe": "after",
                "where": {"a": "b"},
            },
            {
                "name": "s",
                "site": "after_logits",
                "position": {"generated": 1},
                "observe": "before",
                "where": {"a": ["b"]},
            },
        ],
        "intervene": [
            {"operation": "zero", "site": "after_mlp", "layers": "{a}", "position": {"index": "{a}"}},
            {"operation": "scale", "site": "before_logits", "strength": 0.5, "position": "generated"},
            {"operation": "add", "site": "after_mlp", "layers": ["{a}", 1], "source": {"vector": "v.npy"}},
            {"operation": "replace", "site": "after_mlp", "layers": "all", "source": {"capture": "c", "layer": 0}},
            {
                "operation": "restore",
                "site": "after_layer",
                "layers": {"from": "{a}", "to": 3},
                "position": {"span": "all", "occurrence": 2},
                "source": {"run": "r", "capture": "c", "stimulus": "{a}", "position": {"from_end": 0}, "layer": -1},
                "where": {"a": ["b", "c"]},
            },
        ],
        "experiment": ["activation_stats", {"use": "x.py:X", "options": {"n": [1, None]}, "where": {"a": "b"}}],
    },
}


def places(tree, path=()):
    """Every path in a tree, the root excepted."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def replaced(tree, path, value):
    tree = copy.deepcopy(tree)
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return tree


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["auto", "all", "{root}", "{x}", "no", "1A2i3", "كتب", "hf://x", "", 2**63, -1, 0, 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
PLACES = [(tree, path) for tree in (FULL, ITEMS, ACTING) for path in places(tree)]


def outcome(folder, tree):
    """The message of the refusal, or None: load, build and look at the stimuli."""
    path = folder / "x.yaml"
    path.write_text(json.dumps(tree, ensure_ascii=True), encoding="utf-8")
    try:
        for config in load_configs(path):
            found = build_set(config)
            find(found.stimuli, found.dropped)
    except ConfigError as error:
        return str(error)
    return None


def test_the_trees_are_good(tmp_path):
    assert outcome(tmp_path, FULL) is None
    assert outcome(tmp_path, ITEMS) is None
    assert outcome(tmp_path, ACTING) is None
    assert outcome(tmp_path, {k: v for k, v in FULL.items() if k != "model"} | {"models": ["a", "b"]}) is None


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), junk)
@example((FULL, ("stimuli", "roots")), [{"root": "كتب", "labels": {"\x1b": ""}}])
@example((ITEMS, ("stimuli", "items", 0, "occurrence")), 10**400)
@example((FULL, ("output", "dir")), "\x00")
def test_any_value_anywhere(tmp_path, place, value):
    tree, path = place
    said = outcome(tmp_path, replaced(tree, path, value))
    if said is not None:
        assert all(
            re.match(r".*x\.yaml:\d+: |stimuli|the label|declare|take|… and", line) for line in said.splitlines()
        ), said


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), st.text(max_size=6))
def test_any_key_anywhere(tmp_path, place, key):
    tree, path = place
    node = tree
    for part in path:
        node = node[part]
    if isinstance(node, dict):
        outcome(tmp_path, replaced(tree, path, {**node, key: 1}))
