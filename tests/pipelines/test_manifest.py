"""Hashes as pure functions of records, and the manifest as a file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.canonical import canonical_json, explain_difference, plain, sha256_of
from pipelines.errors import VerifyError
from pipelines.manifest import (
    Inputs,
    build_manifest,
    manifest_json,
    read_manifest,
    sample_order_sha256,
    semantic_hash,
    stimuli_sha256,
    write_manifest,
)
from pipelines.parts import PartFile
from tests.foundry.fake_run import FakeRun, make_run, make_samples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
INPUTS = Inputs("c", "p", "s", "o", "m", "t", 1)
PART = PartFile("activations", "activations/part-00000.parquet", 3, 10, "aa", "bb", 0, 3)


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return make_run(tmp_path, units=(3, 2))


# --- canonical JSON ---------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(JSON)
def test_canonical_json_gives_back_the_record(record: Any) -> None:
    text = canonical_json(record)
    assert json.loads(text) == record
    assert canonical_json(json.loads(text)) == text


def test_canonical_json_is_sorted_and_exact() -> None:
    assert canonical_json({"b": 0.1 + 0.2, "a": [1, "كتب"]}) == '{"a":[1,"كتب"],"b":0.30000000000000004}'
    assert canonical_json({"x": np.float32(0.5), "y": np.arange(2)}) == '{"x":0.5,"y":[0,1]}'
    assert sha256_of({"a": 1, "b": 2}) == sha256_of({"b": 2, "a": 1})
    # sha256 of `{"a":1}`, from sha256sum.
    assert sha256_of({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_canonical_json_refuses_what_json_has_not(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"x": number})


@pytest.mark.parametrize("record", [{1: 2}, {"x": object()}, {"x": b"bytes"}, {"x": {1, 2}}, {"x": Path("p")}])
def test_what_has_no_canonical_form_is_refused(record: Any) -> None:
    with pytest.raises(TypeError):
        canonical_json(record)


# --- differences ------------------------------------------------------------------------------------------------------


def test_differences_are_named_by_key_path() -> None:
    old = {"generate": {"max_tokens": 8}, "layers": [0, 1], "capture": [{"site": "a"}], "gone": 1, "same": {"x": 1.5}}
    new = {
        "generate": {"max_tokens": 16},
        "layers": [0, 1, 2],
        "capture": [{"site": "b"}],
        "new": None,
        "same": {"x": 1.5},
    }
    assert explain_difference(old, new) == [
        'capture[0].site: was "a", is "b"',
        "generate.max_tokens: was 8, is 16",
        "gone: was 1, is absent",
        "layers: was [0, 1], is [0, 1, 2]",
        "new: was absent, is null",
    ]


def test_long_lists_of_other_lengths_are_told_by_number_and_first_difference() -> None:
    old = [{"root": f"ك ت {i}"} for i in range(40)]
    assert explain_difference({"roots": old}, {"roots": old[:3] + old[4:]}) == [
        "roots: had 40 entries, has 39",
        'roots[3].root: was "ك ت 3", is "ك ت 4"',
    ]


def test_differences_see_types_and_shorten_long_values() -> None:
    assert explain_difference({"a": 1}, {"a": True}) == ["a: was 1, is true"]
    assert explain_difference({"a": 1}, {"a": 1.0}) == ["a: was 1, is 1.0"]
    (line,) = explain_difference({"text": "x" * 500}, {"text": ""})
    assert len(line) < 100
    assert explain_difference(INPUTS, replace(INPUTS, model_sha256="z")) == ['model_sha256: was "m", is "z"']


@settings(deadline=None)
@given(JSON, JSON)
def test_no_difference_means_the_same_hash(old: Any, new: Any) -> None:
    assert explain_difference(old, old) == []
    assert (explain_difference(old, new) == []) == (canonical_json(old) == canonical_json(new))


# --- hashes -----------------------------------------------------------------------------------------------------------


def test_input_hash_changes_with_every_input() -> None:
    changed = {replace(INPUTS, **{name: 2 if name == "numerics_version" else "x"}).input_hash for name in plain(INPUTS)}
    assert len(changed | {INPUTS.input_hash}) == 9


def test_stimuli_hash_is_over_the_users_order() -> None:
    stimuli = [sample.stimulus for sample in make_samples(7)]
    base = stimuli_sha256(stimuli)
    assert stimuli_sha256(stimuli[::-1]) == base
    for change in (
        {"prompt": "كتب."},
        {"labels": {"root": "r1"}},
        {"labels": {"root": "r1", "pattern": ""}},
        {"expected": None},
        {"id": "other"},
        {"reveals": ()},
        {"target": None},
        {"original": "كتب"},
        {"expect_mode": "prefix"},
    ):
        assert stimuli_sha256([stimuli[0], replace(stimuli[1], **change), *stimuli[2:]]) != base


def test_sample_order_hash_is_over_the_plan() -> None:
    assert sample_order_sha256([2, 0, 1]) != sample_order_sha256([0, 1, 2])
    assert sample_order_sha256(np.array([2, 0, 1]).tolist()) == sample_order_sha256([2, 0, 1])


def test_semantic_hash_is_of_content_not_of_files() -> None:
    base = semantic_hash("i", [PART], [])
    assert semantic_hash("i", [replace(PART, sha256="zz", bytes=99)], []) == base
    other = replace(PART, path="activations/part-00001.parquet")
    assert semantic_hash("i", [PART, other], []) == semantic_hash("i", [other, PART], [])
    for changed in (
        semantic_hash("j", [PART], []),
        semantic_hash("i", [replace(PART, content_sha256="cc")], []),
        semantic_hash("i", [PART, other], []),
        semantic_hash("i", [PART], [1]),
    ):
        assert changed != base


# --- the file ---------------------------------------------------------------------------------------------------------


def test_it_reads_back_as_written(run: FakeRun) -> None:
    manifest = build_manifest(
        run.inputs, run.origin, samples=5, parts=run.parts, splits=["00001"], failed_samples=[4, 2]
    )
    write_manifest(run.directory, manifest)
    assert read_manifest(run.directory) == manifest
    assert manifest.status == "partial"
    assert manifest.failed_samples == (2, 4)


def test_it_has_the_fields_of_the_contract(run: FakeRun) -> None:
    text = (run.directory / "manifest.json").read_text()
    found = json.loads(text)
    assert text == json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert found["schema_version"] == "ember.manifest/v1"
    assert found["status"] == "complete"
    assert sorted(found) == [
        "attention", "captures", "config_sha256", "dtype", "failed_samples", "generation", "guard", "hooks",
        "hooks_sha256", "input_hash", "layout", "model", "model_sha256", "name", "numerics", "numerics_version",
        "output_format", "parts", "plan_sha256", "sample_order_sha256", "samples", "schema_version", "scoring",
        "semantic_hash", "splits", "status", "stimuli", "stimuli_sha256", "tensor_contract", "tokenizer",
        "tokenizer_sha256", "validation",
    ]  # fmt: skip
    assert str(run.directory) not in text


def test_the_same_run_gives_the_same_manifest(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name, units=(3, 2))
    assert (tmp_path / "a/manifest.json").read_bytes() == (tmp_path / "b/manifest.json").read_bytes()


def test_order_in_which_parts_came_leaves_no_trace(run: FakeRun) -> None:
    one = build_manifest(run.inputs, run.origin, samples=5, parts=run.parts)
    two = build_manifest(run.inputs, run.origin, samples=5, parts=run.parts[::-1])
    assert manifest_json(one) == manifest_json(two)


def test_writing_leaves_nothing_else(run: FakeRun) -> None:
    run.finish()
    assert sorted(path.name for path in run.directory.iterdir()) == [
        ".ember", "activations", "generations", "logits", "manifest.json", "stimuli.parquet",
    ]  # fmt: skip


def _tampered(run: FakeRun, change: dict[str, Any]) -> None:
    path = run.directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"schema_version": "ember.manifest/v9"},
            "schema_version is 'ember.manifest/v9', expected 'ember.manifest/v1'",
        ),
        ({"samples": "5"}, "samples: Input should be a valid integer"),
        ({"parts": {}}, "parts"),
        ({"parts": [{"table": "activations"}]}, r"parts.0.path: Field required"),
        ({"captures": [1]}, "origin.captures.0"),
        ({"status": "fine"}, "status"),
        ({"colour": "red"}, "fields that this version does not know: colour"),
    ],
)
def test_a_manifest_that_is_none_is_refused(run: FakeRun, change: dict[str, Any], message: str) -> None:
    _tampered(run, change)
    with pytest.raises(VerifyError, match=message):
        read_manifest(run.directory)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1}', "\x00\xff", "[" * 100_000])
def test_a_file_that_is_no_manifest_is_refused(run: FakeRun, text: str) -> None:
    (run.directory / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(VerifyError, match=r"manifest\.json"):
        read_manifest(run.directory)


def test_a_missing_field_is_named(run: FakeRun) -> None:
    path = run.directory / "manifest.json"
    found = json.loads(path.read_text())
    del found["model_sha256"]
    path.write_text(json.dumps(found))
    with pytest.raises(VerifyError, match=r"inputs\.model_sha256: Field required"):
        read_manifest(run.directory)


def test_an_unfinished_run_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match=r"absent.*`ember pipeline run CONFIG` again"):
        read_manifest(tmp_path)


def test_a_manifest_that_is_a_link_is_not_followed(run: FakeRun, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = run.directory / "manifest.json"
    moved = tmp_path_factory.mktemp("else") / "m.json"
    path.rename(moved)
    path.symlink_to(moved)
    with pytest.raises(VerifyError, match="not a plain file"):
        read_manifest(run.directory)
