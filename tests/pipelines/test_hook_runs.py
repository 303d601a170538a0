"""Runs with hooks on the built-in model: baseline, changed, restored; steps; experiments and failures; sources."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ember
import pipelines
from ember.models import llama
from ember.sites import SITES
from pipelines.config import load_config
from pipelines.content import hash_file
from pipelines.errors import ConfigError, IdentityError, VerifyError
from pipelines.manifest import build_manifest, read_manifest, write_manifest
from pipelines.placing import sha256_file
from pipelines.plan import make_plan
from pipelines.reading import Run
from pipelines.receipts import read_all
from pipelines.running import run
from pipelines.verify import check, verify
from tests.faults.rig import ROOT, failures, manifest, tables
from tests.foundry.hook_runs import CAPTURE, LABELS, PROMPTS, SHARING, ZERO, make, same
from tests.foundry.tiny import tiny_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hooks")


@pytest.fixture(scope="module")
def baseline(folder: Path) -> Path:
    return make(folder, "baseline", {})


def texts(run_dir: Path) -> list[Any]:
    return [tuple(row) for row in pipelines.load(run_dir).generations["token_ids"].to_pylist()]


# --- baseline, changed, restored --------------------------------------------------------------------------------------


def test_what_was_put_back_is_the_baseline_bit_for_bit(folder: Path, baseline: Path) -> None:
    changed = make(folder, "changed", {"intervene": [ZERO]})
    assert verify(changed).sound
    assert not all(same(baseline, changed).values())
    # the change is where it was asked for
    loaded = pipelines.load(changed)
    for layer in range(5):
        where: dict[str, Any] = {"site": "after_layer", "layer": layer, "capture": "after_layer"}
        rows, values = loaded.rows(**where).to_pylist(), loaded.matrix(**where)
        zeros = {(r["stimulus_id"], r["position"]) for r, v in zip(rows, values, strict=True) if not v.any()}
        assert zeros == {(name, int(at["at"])) for name, at in LABELS.items() if int(at["layer"]) == layer}
    put_back = ZERO | {"operation": "restore", "source": {"run": str(baseline)}}
    restored = make(folder, "restored", {"intervene": [ZERO, put_back]})
    assert verify(restored).sound
    assert all(same(baseline, restored).values())
    assert texts(restored) == texts(baseline)
    told = manifest(restored)["hooks"]["interventions"][1]
    assert told["operation"] == "restore"
    assert told["source"]["semantic_hash"] == manifest(baseline)["semantic_hash"]
    assert told["source"]["input_hash"] == manifest(baseline)["input_hash"]
    assert (told["samples"], told["layers"], told["position"]) == (6, "{layer}", {"index": "{at}"})


@pytest.mark.slow
def test_so_it_is_where_rows_are_shared_if_the_blas_keeps_bits(tmp_path: Path) -> None:
    """In a process with the machine's own choice of kernels."""
    program = (
        "import sys, json, pathlib, ember\n"
        "from tests.foundry.hook_runs import SHARING, restore\n"
        "keeps = ember.open('builtin:sarf-nano', threads=1).keeps_bits\n"
        "print(json.dumps([keeps, restore(pathlib.Path(sys.argv[1]), SHARING)]))\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPENBLAS_")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    keeps, found = json.loads(done.stdout)
    if not keeps:
        pytest.skip("this machine's BLAS does not keep a row's bits in other company (contract 1)")
    assert found == {"changed": False, "restored": True}


def test_strength_0_changes_no_bit(folder: Path, baseline: Path) -> None:
    np.save(folder / "v.npy", np.full(128, 3.0))
    site = {"site": "after_mlp", "layers": "all", "position": "all"}
    acts = [
        {"operation": "add", "strength": 0, "source": {"vector": "v.npy"}} | site,
        {"operation": "interpolate", "strength": 0, "source": {"vector": "v.npy"}} | site,
        {"operation": "project_out", "strength": 0, "source": {"vector": "v.npy"}} | site | {"position": "generated"},
        {"operation": "scale", "strength": 1} | site,
    ]
    void = make(folder, "void", {"intervene": acts})
    assert all(same(baseline, void).values())
    assert texts(void) == texts(baseline)


def test_operations_do_what_they_say(folder: Path) -> None:
    vector = np.random.default_rng(0).normal(size=128).astype(np.float32)
    np.save(folder / "u.npy", vector)
    place = {"site": "after_mlp", "layers": [4], "position": "all"}
    sides = [{"name": side, "observe": side} | place for side in ("before", "after")]
    for operation, strength in (("add", -0.5), ("replace", None), ("interpolate", 0.25), ("project_out", 1.0)):
        act = {"operation": operation, "source": {"vector": "u.npy"}} | place
        act |= {} if strength is None else {"strength": strength}
        found = pipelines.load(make(folder, operation, {"capture": sides, "intervene": [act]}, generate=None))
        before, after = (found.matrix(site="after_mlp", layer=4, capture=side) for side in ("before", "after"))
        np.testing.assert_allclose(after, worked_out(operation, before, vector), rtol=1e-6, atol=1e-5)


def worked_out(operation: str, x: Any, v: Any) -> Any:
    """The operations in float64, with the strengths of the test."""
    x, v = x.astype(np.float64), v.astype(np.float64)
    along = (x @ v / (v @ v))[:, None] * v
    results = {"add": x - 0.5 * v, "replace": 0 * x + v, "interpolate": 0.75 * x + 0.25 * v, "project_out": x - along}
    return results[operation]


def test_before_and_after_are_both_sides_of_what_acts(folder: Path, baseline: Path) -> None:
    act = {"operation": "scale", "strength": 2, "site": "after_mlp", "layers": [1], "position": "all"}
    captures = [
        {"name": side, "site": "after_mlp", "layers": [1], "position": "all", "observe": side}
        for side in ("before", "after")
    ]
    both = pipelines.load(make(folder, "both", {"capture": captures, "intervene": [act]}))
    before, after = (both.matrix(site="after_mlp", layer=1, capture=side) for side in ("before", "after"))
    np.testing.assert_array_equal(after, 2 * before)
    assert {c.name: c.observe for c in both.captures} == {"before": "before", "after": "after"}


def test_rows_of_the_same_run_are_a_source(folder: Path, baseline: Path) -> None:
    clean = {"name": "attention", "site": "after_attention", "layers": [1], "position": "all", "observe": "before"}
    act = {"operation": "replace", "site": "after_mlp", "layers": [1], "position": "all"}
    hooks = {
        "capture": [clean, CAPTURE[1] | {"layers": [1]}],
        "intervene": [act | {"source": {"capture": "attention"}}],
    }
    found = pipelines.load(make(folder, "copied", hooks))
    np.testing.assert_array_equal(
        found.matrix(site="after_mlp", layer=1), found.matrix(site="after_attention", layer=1)
    )


def test_rows_of_another_stimulus_and_layer(folder: Path, baseline: Path) -> None:
    source = {"run": str(baseline), "capture": "after_layer", "stimulus": "e", "position": {"index": 2}, "layer": 0}
    act = {"operation": "replace", "site": "before_layer", "layers": [3], "position": {"from_end": 0}, "source": source}
    captures = [{"site": "before_layer", "layers": [3], "observe": "after"}]
    found = pipelines.load(make(folder, "patched", {"capture": captures, "intervene": [act]}))
    rows = pipelines.load(baseline)
    at = [
        i
        for i, row in enumerate(rows.rows(site="after_layer", layer=0).to_pylist())
        if (row["stimulus_id"], row["position"]) == ("e", 2)
    ]
    wanted = rows.matrix(site="after_layer", layer=0)[at[0]]
    np.testing.assert_array_equal(found.matrix(site="before_layer", layer=3), np.broadcast_to(wanted, (6, 128)))


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hooks",
    [
        {},
        {"intervene": [ZERO | {"position": {"index": 7}}]},
        {"intervene": [ZERO, {"operation": "scale", "strength": 1, "site": "after_mlp", "layers": "all"}]},
        {"intervene": [{"operation": "zero", "site": "after_mlp", "layers": [0], "position": "generated"}]},
        {"experiment": [{"use": "activation_stats", "where": {"kind": "clean"}}]},
    ],
)
def test_the_plan_counts_the_rows_that_the_engine_computes(tmp_path: Path, hooks: dict[str, Any]) -> None:
    done = make(tmp_path, "counted", hooks, SHARING)
    planned = make_plan(load_config(tmp_path / "counted.yaml"))
    found = {receipt.piece: (receipt.rows, receipt.rows_computed) for receipt in read_all(done)}
    assert found == {unit.piece.name: (unit.rows, unit.rows_shared) for unit in planned.units}


# --- depth ------------------------------------------------------------------------------------------------------------


def test_layers_that_nobody_needs_are_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    layer = llama.layer

    def counted(be: Any, config: Any, weights: Any, number: int, *more: Any) -> Any:
        ran.append(number)
        return layer(be, config, weights, number, *more)

    monkeypatch.setattr(llama, "layer", counted)
    captures = [CAPTURE[0] | {"layers": [0, 2]}, CAPTURE[1] | {"layers": {"from": 0, "to": 1}}]
    deeper = {"operation": "zero", "site": "after_layer", "layers": [4], "position": {"index": 2}}
    common: dict[str, Any] = {"generate": None, "guard": {"positions": 0}}
    part = make(folder, "part", {"capture": captures, "intervene": [deeper]}, **common)
    assert set(ran) == {0, 1, 2}
    ran.clear()
    make(folder, "guarded", {"capture": captures}, generate=None, guard={"allow_chance": True})
    assert set(ran) == {0, 1, 2, 3, 4}  # the smoke guard reads logits in the first unit
    ran.clear()
    whole = pipelines.load(make(folder, "whole", {"capture": CAPTURE[:2]}, **common))
    assert set(ran) == {0, 1, 2, 3, 4}
    loaded = pipelines.load(part)
    for site, number in (("after_layer", 0), ("after_layer", 2), ("after_mlp", 0)):
        found, wanted = (one.matrix(site=site, layer=number) for one in (loaded, whole))
        np.testing.assert_array_equal(found, wanted)


# --- generated steps --------------------------------------------------------------------------------------------------


def test_rows_of_steps_are_those_of_the_instrument(baseline: Path) -> None:
    loaded = pipelines.load(baseline)
    rows = loaded.rows(site="after_layer", layer=1, capture="steps", step=None).to_pylist()
    generated = {row["stimulus_id"]: row["token_ids"] for row in loaded.generations.to_pylist()}
    lengths = {row["id"]: row["n_tokens"] for row in loaded.stimuli.to_pylist()}
    values = loaded.matrix(site="after_layer", layer=1, capture="steps", step=None)
    assert len(rows) == sum(len(tokens) - 1 for tokens in generated.values())
    with ember.open("builtin:sarf-nano", threads=1) as model:
        for row, value in zip(rows, values, strict=True):
            tokens, step = generated[row["stimulus_id"]], row["step"]
            assert row["position"] == lengths[row["stimulus_id"]] + step
            assert (row["token_id"], row["produced_id"]) == (tokens[step], tokens[step + 1])
            # feeding prompt and new tokens at once gives the same state but for rounding
            prompt = model.tokenizer.encode(PROMPTS[row["stimulus_id"]]).ids
            whole = model.capture(tokens=[[*prompt, *tokens[: step + 1]]], layers=[1])["after_layer"][0, 0]
            np.testing.assert_allclose(value, whole, rtol=0, atol=2e-4)


def tamper(run_dir: Path, change: Callable[[pa.Table], pa.Table]) -> list[str]:
    """Change a part, make the manifest agree with it, and return what verification finds."""
    told = read_manifest(run_dir)
    part = told.parts_of("activations")[0]
    path = run_dir / part.path
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(i) for i in range(file.num_row_groups)]
    with pq.ParquetWriter(path, groups[0].schema) as writer:
        for group in map(change, groups):
            if group.num_rows:
                writer.write_table(group)
    rows = pq.read_metadata(path).num_rows
    found = replace(
        part, bytes=path.stat().st_size, sha256=sha256_file(path), content_sha256=hash_file(path), rows=rows
    )
    parts = [found if one == part else one for one in told.parts]
    write_manifest(run_dir, build_manifest(told.inputs, told.origin, samples=told.samples, parts=parts))
    return list(check(run_dir).problems)


def of_steps(group: pa.Table) -> bool:
    return bool(group["capture"][0].as_py() == "steps")


def shifted(name: str) -> Callable[[pa.Table], pa.Table]:
    def change(group: pa.Table) -> pa.Table:
        if not of_steps(group):
            return group
        column = pa.array(np.asarray(group[name]) + np.int32(1), pa.int32())
        return group.set_column(group.column_names.index(name), group.schema.field(name), column)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (shifted("produced_id"), "token_id or produced_id of a generated step is not what was generated"),
        (shifted("token_id"), "token_id or produced_id of a generated step is not what was generated"),
        (shifted("position"), "the position of a generated step is not the prompt's length plus the step"),
        (shifted("step"), "a generated step is beyond the end of what was generated"),
        (lambda group: group.slice(1) if of_steps(group) else group, "not one for each step that was generated"),
        (lambda group: group.slice(0, 0) if of_steps(group) else group, "not one for each step that was generated"),
    ],
)
def test_rows_of_steps_are_verified_against_what_was_generated(
    baseline: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    shutil.copytree(baseline, tmp_path / "run")
    assert tamper(tmp_path / "run", lambda group: group) == []
    problems = tamper(tmp_path / "run", change)
    assert any(said in problem for problem in problems), problems


def test_a_filter_is_verified_against_the_labels(folder: Path, tmp_path: Path) -> None:
    captures = [{"site": "after_mlp", "layers": [0], "position": "all", "where": {"kind": "clean"}}]
    found = make(folder, "filtered", {"capture": captures})
    assert verify(found).sound
    assert set(pipelines.load(found).rows(site="after_mlp", layer=0)["stimulus_id"].to_pylist()) == {"b", "d", "f"}
    text = (found / "manifest.json").read_text()
    for other, said in (("corrupt", "not selected"), ("none", "not selected")):
        (found / "manifest.json").write_text(text.replace('"clean"', json.dumps(other)))
        assert any(said in problem for problem in check(found).problems)
    (found / "manifest.json").write_text(text)


# --- experiments ------------------------------------------------------------------------------------------------------

MINE = """
from ember.hooks import Experiment

class Picky(Experiment):
    '''Counts what it sees, and fails at prompts of a given length.'''
    name = "picky"
    mutates = False

    def __init__(self, length=None, result="count"):
        self.length, self.result, self.seen = length, result, 0

    def after_mlp(self, ctx, contribution):
        self.seen += 1
        if ctx.layer == 2 and ctx.execution.input_token_count == self.length:
            raise ValueError("expected another length")

    def results(self):
        return {"seen": {"count": self.seen, "odd": object(), "half": chr(0xD800)}[self.result]}
"""


def test_findings_of_experiments_are_a_table(folder: Path, baseline: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    listed = [{"use": "mine.py:Picky"}, {"use": "activation_stats", "where": {"kind": "clean"}}]
    hooks = {"experiment": listed}
    found = make(folder, "watched", hooks)
    assert verify(found).sound
    loaded = pipelines.load(found)
    # one prefill and five decode evaluations of five layers
    picky = [one for one in loaded.findings if one.experiment == "picky"]
    assert [one.stimulus_id for one in picky] == loaded.stimuli["id"].to_pylist()
    counts = {row["stimulus_id"]: len(row["token_ids"]) for row in loaded.generations.to_pylist()}
    assert {one.stimulus_id: one.result for one in picky} == {name: {"seen": 5 * n} for name, n in counts.items()}
    stats = [one for one in loaded.findings if one.experiment == "activation_stats"]
    assert {one.stimulus_id for one in stats} == {"b", "d", "f"}
    told = manifest(found)
    assert [one["use"] for one in told["hooks"]["experiments"]] == ["mine.py:Picky", "activation_stats"]
    assert all(len(one["source_sha256"]) == 64 for one in told["hooks"]["experiments"])
    metadata = pq.read_schema(found / told["parts"][0]["path"]).metadata
    assert metadata[b"ember.hooks_sha256"].decode() == told["hooks_sha256"]
    assert metadata[b"ember.plan_sha256"].decode() == told["plan_sha256"]
    body = (found / "experiments/part-00000.jsonl").read_text()
    (found / "experiments/part-00000.jsonl").write_text(body.replace("picky", "pickz", 1))
    assert any("experiments/part-00000.jsonl: its sha256 is" in problem for problem in check(found).problems)
    (found / "experiments/part-00000.jsonl").write_text(body)


def test_a_failing_hook_fails_its_prompt_alone(folder: Path, baseline: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    lengths = {row["id"]: row["n_tokens"] for row in pipelines.load(baseline).stimuli.to_pylist()}
    length = lengths["f"]
    assert list(lengths.values()).count(length) == 1
    watched = {"experiment": [{"use": "mine.py:Picky"}]}
    whole = make(folder, "all_well", watched)
    broken = make(folder, "one_fails", {"experiment": [{"use": "mine.py:Picky", "options": {"length": length}}]})
    (failure,) = failures(broken)
    assert (failure["stimulus_id"], failure["kind"]) == ("f", "experiment")
    assert failure["detail"] == (
        "experiment 'picky' failed in after_mlp (phase=prefill, layer=2): expected another length"
    )
    assert manifest(broken)["status"] == "partial"
    assert verify(broken).sound
    a, b = pipelines.load(whole), pipelines.load(broken, partial=True)
    assert {one.stimulus_id for one in b.findings} == set(PROMPTS) - {"f"}
    for site, layer in (("after_layer", 4), ("after_mlp", 0)):
        mine = [row["stimulus_id"] != "f" for row in a.rows(site=site, layer=layer, capture=_name(site)).to_pylist()]
        kept = a.matrix(site=site, layer=layer, capture=_name(site))[mine]
        np.testing.assert_array_equal(kept, b.matrix(site=site, layer=layer, capture=_name(site)))
    # the same values and code fail again: nothing is tried anew
    again = run(load_config(folder / "one_fails.yaml"), scheduler="serial")
    assert (again.exit_status, again.units_computed) == (3, 0)


def _name(site: str) -> str:
    return {"after_mlp": "mlp"}.get(site, site)


def test_a_hook_that_wants_to_leave_is_set_aside_with_its_prompt(folder: Path, baseline: Path) -> None:
    (folder / "leaves.py").write_text(
        MINE.replace('raise ValueError("expected another length")', "raise SystemExit(9)")
    )
    length = next(row["n_tokens"] for row in pipelines.load(baseline).stimuli.to_pylist() if row["id"] == "f")
    hooks = {"experiment": [{"use": "leaves.py:Picky", "options": {"length": length}}]}
    left = make(folder, "left", hooks)
    (failure,) = failures(left)
    assert (failure["stimulus_id"], failure["kind"], failure["detail"]) == ("f", "exception", "SystemExit: 9")
    assert verify(left).sound


def test_a_hook_that_interrupts_a_worker_is_set_aside_too(folder: Path, baseline: Path) -> None:
    """A worker computes beside its main thread; left to itself the interrupt ended one worker after the other."""
    (folder / "interrupts.py").write_text(
        MINE.replace('raise ValueError("expected another length")', "raise KeyboardInterrupt")
    )
    length = next(row["n_tokens"] for row in pipelines.load(baseline).stimuli.to_pylist() if row["id"] == "f")
    hooks = {"experiment": [{"use": "interrupts.py:Picky", "options": {"length": length}}]}
    with ThreadPoolExecutor(1) as beside:
        left = beside.submit(make, folder, "interrupted", hooks).result()
    (failure,) = failures(left)
    assert (failure["stimulus_id"], failure["kind"]) == ("f", "exception")
    assert failure["detail"].startswith("KeyboardInterrupt")
    assert verify(left).sound


@pytest.mark.parametrize("how", ["odd", "half"])
def test_findings_that_json_cannot_say_fail_their_prompt(folder: Path, baseline: Path, how: str) -> None:
    (folder / "mine.py").write_text(MINE)
    odd = {"use": "mine.py:Picky", "options": {"result": how}, "where": {"kind": "clean"}}
    found = make(folder, how, {"experiment": [odd]})
    assert {one["stimulus_id"] for one in failures(found)} == {"b", "d", "f"}
    assert all(one["detail"].startswith("experiment 'picky' failed in results: not JSON: ") for one in failures(found))
    assert verify(found).sound
    assert set(pipelines.load(found, partial=True).generations["stimulus_id"].to_pylist()) == {"a", "c", "e"}


# --- other models and sites ------------------------------------------------------------------------------------------


def test_rows_of_another_model_are_noted_and_nothing_to_put_back(folder: Path, tmp_path: Path) -> None:
    tiny_llama(tmp_path / "tiny.gguf", n_layers=3, context=256)
    hooks: dict[str, Any] = {"capture": [{"site": "after_layer", "position": "all"}]}
    common: dict[str, Any] = {"generate": None, "guard": {"allow_chance": True}}
    make(tmp_path, "other", hooks, model={"path": str(tmp_path / "tiny.gguf")}, **common)
    tiny_llama(tmp_path / "tiny.gguf", n_layers=3, context=256, add_bos=True)
    act = {"operation": "restore", "site": "after_layer", "layers": [0], "source": {"run": str(tmp_path / "other")}}
    look = [{"site": "after_layer", "layers": [0], "observe": "after"}]
    with pytest.raises(ConfigError, match="was made with another model, so there is nothing to put back; use replace"):
        make(
            tmp_path, "a", {"capture": look, "intervene": [act]}, model={"path": str(tmp_path / "tiny.gguf")}, **common
        )
    act |= {"operation": "replace", "source": act["source"] | {"position": "last"}}  # type: ignore[operator]
    name = make(
        tmp_path, "b", {"capture": look, "intervene": [act]}, model={"path": str(tmp_path / "tiny.gguf")}, **common
    )
    notes = make_plan(load_config(tmp_path / "b.yaml")).notes
    assert "hooks.intervene.0: the rows of its source come from another model" in notes
    told = manifest(name)["hooks"]["interventions"][0]["source"]
    assert told["model_sha256"] == manifest(tmp_path / "other")["model_sha256"] != manifest(name)["model_sha256"]


@pytest.mark.parametrize("site", sorted(SITES))
def test_steps_of_every_site(folder: Path, tmp_path: Path, site: str) -> None:
    capture = {"name": "steps", "site": site, "position": "generated"} | (
        {"layers": [1]} if SITES[site].per_layer else {}
    )
    loaded = pipelines.load(make(tmp_path, "steps", {"capture": [capture]}))
    layer = 1 if SITES[site].per_layer else None
    rows = loaded.rows(site=site, layer=layer, step=None).to_pylist()
    values = loaded.matrix(site=site, layer=layer, step=None)
    generated = {row["stimulus_id"]: row["token_ids"] for row in loaded.generations.to_pylist()}
    with ember.open("builtin:sarf-nano", threads=1) as model:
        for row, value in list(zip(rows, values, strict=True))[::5]:
            prompt = model.tokenizer.encode(PROMPTS[row["stimulus_id"]]).ids
            fed = [*prompt, *generated[row["stimulus_id"]][: row["step"] + 1]]
            found = model.capture(tokens=[fed], site=site, layers="all" if layer is None else [layer])[site]
            np.testing.assert_allclose(value, found.reshape(-1), rtol=1e-4, atol=2e-3)


# --- sources and identity ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            {"capture": "mlp"},
            r"hooks.intervene.0.source.run: restore acts at after_layer, but 'mlp' was taken at after_mlp",
        ),
        ({"capture": "lost"}, "has no capture 'lost'"),
        ({"capture": "after_layer", "stimulus": "zz"}, r"6 stimuli without the rows .*no rows of a stimulus 'zz'"),
        ({"capture": "after_layer", "layer": 7}, r"capture 'after_layer' has no layer 7; it has \[0, 1, 2, 3, 4\]"),
        ({"capture": "after_layer", "position": {"index": 30}}, "position index 30 does not exist in a prompt of"),
        ({"capture": "steps"}, "has no capture 'steps'; its captures of prompts: 'after_layer'"),
    ],
)
def test_what_a_source_does_not_have_is_refused_in_the_plan(
    folder: Path, baseline: Path, source: dict[str, Any], said: str
) -> None:
    act = ZERO | {"operation": "restore", "source": {"run": str(baseline)} | source}
    with pytest.raises(ConfigError, match=said):
        make(folder, "refused", {"intervene": [act]})
    assert not (folder / "refused").exists()


def test_a_tampered_source_is_refused_with_what_is_wrong(folder: Path, baseline: Path, tmp_path: Path) -> None:
    shutil.copytree(baseline, tmp_path / "source")
    path = next((tmp_path / "source/activations").iterdir())
    body = bytearray(path.read_bytes())
    body[1000] ^= 1
    path.write_bytes(bytes(body))
    act = ZERO | {"operation": "restore", "source": {"run": str(tmp_path / "source"), "capture": "after_layer"}}
    with pytest.raises(VerifyError, match=rf"as a source of rows, .*\n  activations/{path.name}: its sha256 is"):
        make(folder, "tampered", {"intervene": [act]})
    assert not (folder / "tampered").exists()


def test_a_vector_with_other_contents_is_another_run(folder: Path, baseline: Path) -> None:
    np.save(folder / "w.npy", np.ones(128))
    act = {"operation": "add", "site": "after_mlp", "layers": [0], "source": {"vector": "w.npy"}}
    make(folder, "vector", {"intervene": [act]})
    np.save(folder / "w.npy", np.full(128, 2.0))
    with pytest.raises(IdentityError, match=r"config.hooks.sources\[0\].vector_sha256: was "):
        make(folder, "vector", {"intervene": [act]})


def test_changed_code_of_an_experiment_is_another_run(folder: Path, baseline: Path) -> None:
    (folder / "code.py").write_text(MINE)
    hooks = {"experiment": [{"use": "code.py:Picky"}]}
    make(folder, "code", hooks)
    (folder / "code.py").write_text(MINE + "\n")
    with pytest.raises(IdentityError, match=r"config.hooks.code\[0\]: was "):
        make(folder, "code", hooks)


def test_a_run_without_hooks_says_so(baseline: Path) -> None:
    assert manifest(baseline)["hooks"] is None
    assert not (baseline / "experiments").exists()
    assert pipelines.load(baseline).findings == ()
    assert isinstance(pipelines.load(baseline), Run)


def test_two_runs_of_one_plan_are_alike(folder: Path, baseline: Path) -> None:
    put_back = ZERO | {"operation": "restore", "source": {"run": str(baseline), "capture": "after_layer"}}
    one, two = (make(folder, name, {"intervene": [ZERO, put_back]}) for name in ("one", "two"))
    assert tables(one) == tables(two)
