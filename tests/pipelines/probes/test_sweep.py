"""Whole sweeps over runs whose states hold what the test put there."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ember.errors import InputError
from pipelines.errors import ConfigError, IdentityError, RunError, VerifyError
from pipelines.manifest import CaptureRecord
from pipelines.probes import ProbeConfig, load_probes, open_plan, probe, sweep
from pipelines.probes.results_table import classes_schema, results_schema
from pipelines.sources import load_vector
from pipelines.stimuli.record import Stimulus
from tests.foundry.probe_run import Word, crossed, write_probe_run

WIDTH = 16


def planted(_capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
    """Noise in layer 0; the pattern along axes of its own from layer 1 on; the root too in layer 2."""
    random = np.random.default_rng(layer)
    x = random.standard_normal((len(stimuli), WIDTH))
    for row, stimulus in enumerate(stimuli):
        pattern, root = int(stimulus.labels["pattern"][1:]), int(stimulus.labels["root"][1:])
        x[row, pattern] += 4 * (layer >= 1)
        x[row, 4 + root % 12] += 5 * (layer >= 2)
    return (x * 3 + 7).astype(np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_probe_run(tmp_path_factory.mktemp("probes") / "run", crossed(12, 4, 3), planted)


def plan(run: Path, out: Path, **keys: Any) -> ProbeConfig:
    given = {"runs": (str(run),), "probes": ("logistic", "mean_difference"), "draws": 200, "output": {"dir": str(out)}}
    return ProbeConfig.model_validate(given | {"strengths": {"logistic": (0.01, 0.1)}} | keys)


def rows(out: Path, **wanted: Any) -> list[dict[str, Any]]:
    table = pq.read_table(out / "results.parquet").to_pylist()
    return [row for row in table if all(row[key] == value for key, value in wanted.items())]


@pytest.fixture(scope="module")
def out(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "probes"
    probe(plan(run, folder), scheduler="serial")
    return folder


# --- what is planted is found, and only there -------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["random", "root-heldout", "template-heldout"])
@pytest.mark.parametrize("kind", ["logistic", "mean_difference"])
def test_the_planted_layer_is_found(out: Path, split: str, kind: str) -> None:
    found = {row["layer"]: row for row in rows(out, label="pattern", split=split, probe=kind, features="states")}
    assert found[0]["accuracy"] < 0.45
    assert not found[0]["above_controls"] or split != "random"
    assert found[1]["accuracy"] > 0.9
    assert found[1]["control_accuracy"] < 0.6
    assert found[1]["selectivity"] == found[1]["accuracy"] - found[1]["control_accuracy"]
    assert found[1]["accuracy_low"] <= found[1]["accuracy"] <= found[1]["accuracy_high"]


def test_prompts_that_show_the_label_are_a_control_that_states_do_not_beat(out: Path) -> None:
    """The pattern's letter is in the prompt: both baselines are perfect, and no probe is above them."""
    for features in ("characters", "tokens"):
        [row] = rows(out, label="pattern", split="root-heldout", features=features)
        assert row["accuracy"] == 1
    for row in rows(out, label="pattern", split="root-heldout", features="states"):
        assert row["characters_accuracy"] == row["tokens_accuracy"] == 1
        assert not row["above_controls"]
        assert row["margin"] == row["accuracy"] - 1


def test_what_prompts_do_not_show_is_above_all_controls(tmp_path: Path) -> None:
    words = [
        Word({"class": f"c{i % 3}"}, f"w {chr(0x628 + i % 20)}{chr(0x628 + i // 20)}", (1, 2 + i % 20, 50 + i // 20))
        for i in range(240)
    ]

    def states(_capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
        x = np.random.default_rng(layer).standard_normal((len(stimuli), WIDTH))
        x[:, :3] += 4 * (layer == 1) * np.eye(3)[[int(s.labels["class"][1:]) for s in stimuli]]
        return x.astype(np.float32)

    run = write_probe_run(tmp_path / "run", words, states)
    probe(plan(run, tmp_path / "out"), scheduler="serial")
    found = {row["layer"]: row["above_controls"] for row in rows(tmp_path / "out", features="states", probe="logistic")}
    assert found == {0: False, 1: True, 2: False}
    bits = {row["layer"]: row["code_bits"] for row in rows(tmp_path / "out", features="states", probe="logistic")}
    assert bits[1] < 0.6 * 240 * np.log2(3) < 0.95 * bits[0]


def test_a_signal_of_known_strength_is_told_as_often_as_theory_says(tmp_path: Path) -> None:
    """Two classes whose means are d standard deviations apart: the best rule is right with probability Phi(d / 2)."""
    digits = [[i // 6**place % 6 for place in range(4)] for i in range(1200)]
    words = [
        Word({"side": f"s{i % 2}"}, "".join("abcdef"[d] for d in digits[i]), tuple(digits[i])) for i in range(1200)
    ]

    def states(_capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
        x = np.random.default_rng(layer).standard_normal((len(stimuli), 4))
        x[:, 1] += layer * np.array([int(s.labels["side"][1:]) for s in stimuli])
        return x.astype(np.float32)

    run = write_probe_run(tmp_path / "run", words, states, width=4)
    strengths = {"logistic": (0.1,), "ridge": (10.0,)}
    config = plan(run, tmp_path / "out", probes=("logistic", "ridge", "mean_difference"), strengths=strengths)
    probe(config, scheduler="serial")
    for row in rows(tmp_path / "out", features="states"):
        truth = NormalDist().cdf(row["layer"] / 2)
        assert row["accuracy"] == pytest.approx(truth, abs=3 * np.sqrt(0.25 / 1200)), row


def test_random_labels_are_never_above_their_controls(tmp_path: Path) -> None:
    """50 labels shuffled with 50 seeds, on states that know nothing of them."""
    labels = [np.random.default_rng(seed).permutation(np.arange(60) % 2) for seed in range(50)]
    words = [
        Word({f"l{seed:02d}": f"v{labels[seed][i]}" for seed in range(50)}, f"word {i}", (1, i)) for i in range(60)
    ]

    def states(_capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
        return np.random.default_rng(99).standard_normal((len(stimuli), 8)).astype(np.float32)

    captures = [CaptureRecord("last", "after_layer", (0,), "last", 8)]
    run = write_probe_run(tmp_path / "run", words, states, width=8, captures=captures)
    probe(
        plan(run, tmp_path / "out", probes=("logistic", "ridge", "mean_difference"), splits=["random"]),
        scheduler="serial",
    )
    found = rows(tmp_path / "out", features="states")
    assert len(found) == 150
    assert [row["label"] for row in found if row["above_controls"]] == []
    assert np.mean([row["accuracy"] for row in found]) == pytest.approx(0.5, abs=0.03)
    assert np.mean([row["margin"] for row in found]) < 0


def test_an_untrained_copy_is_one_more_control(run: Path, tmp_path: Path) -> None:
    """Layer 1 of the copy holds the pattern too: what the model's layer 1 holds is nothing that training gave."""

    def untrained(capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
        return planted(capture, 1 if layer == 1 else 0, stimuli)

    copy = write_probe_run(tmp_path / "copy", crossed(12, 4, 3), untrained, model="u")
    keys = {"labels": ("pattern",), "splits": ["random"], "probes": ("logistic",)}
    [summary] = probe(plan(run, tmp_path / "out", untrained=str(copy), **keys), scheduler="serial")
    found = {row["layer"]: row for row in rows(tmp_path / "out", features="states")}
    peers = {row["layer"]: row for row in rows(tmp_path / "out", features="untrained")}
    assert [found[layer]["untrained_accuracy"] for layer in (0, 1, 2)] == [
        peers[layer]["accuracy"] for layer in (0, 1, 2)
    ]
    assert peers[1]["accuracy"] > 0.9 > 0.45 > peers[2]["accuracy"]
    assert manifest(tmp_path / "out")["untrained_baseline"].startswith("measured: planted")
    assert "untrained" in summary.record["highlights"][0]["controls"]
    probe(plan(run, tmp_path / "alone", **keys), scheduler="serial")
    assert manifest(tmp_path / "alone")["plan_sha256"] != manifest(tmp_path / "out")["plan_sha256"]
    assert np.isnan(rows(tmp_path / "alone", features="states")[0]["untrained_accuracy"])


def test_a_run_that_is_no_copy_of_this_one_is_refused(run: Path, tmp_path: Path) -> None:
    other = write_probe_run(tmp_path / "other", crossed(12, 4, 2), planted, model="u")
    with pytest.raises(ConfigError, match=r"untrained: .* has other stimuli, order of stimuli than"):
        probe(plan(run, tmp_path / "out", untrained=str(other)), scheduler="serial")
    same = write_probe_run(tmp_path / "same", crossed(12, 4, 3), planted)
    with pytest.raises(ConfigError, match="is a run of the same model"):
        probe(plan(run, tmp_path / "out", untrained=str(same)), scheduler="serial")


# --- leaks are refused ------------------------------------------------------------------------------------------------


def test_what_is_held_out_is_refused_with_its_reason(out: Path) -> None:
    refused = {(one["label"], one["split"]): one["reason"] for one in manifest(out)["refusals"]}
    assert "every class occurs in one root only" in refused["root", "root-heldout"]
    assert ("root", "root-and-pattern-heldout") in refused
    assert not rows(out, label="root", split="root-heldout")
    assert rows(out, label="root", split="pattern-heldout")


def test_a_labels_own_split_that_cannot_be_made_is_an_error(run: Path, tmp_path: Path) -> None:
    labels = ({"label": "root", "splits": [{"held_out": "root"}]},)
    with pytest.raises(ConfigError, match="root, root-heldout: every class occurs in one root only"):
        probe(plan(run, tmp_path / "out", labels=labels), scheduler="serial")
    assert not (tmp_path / "out").exists()


def test_nothing_left_is_an_error_that_says_why(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no label can be probed under any split:\n  root, root-heldout: every class"):
        probe(plan(run, tmp_path / "out", labels=("root",), splits=[{"held_out": "root"}]), scheduler="serial")


def test_twins_cannot_be_remembered_across_folds(tmp_path: Path) -> None:
    """Each prompt stands four times with the same states and a label of its own: only a leak could tell it."""
    label = np.random.default_rng(0).integers(0, 2, 50)
    words = [Word({"coin": f"c{label[i % 50]}"}, f"p{i % 50}", (1, i % 50)) for i in range(200)]
    noise = np.random.default_rng(1).standard_normal((50, WIDTH)).astype(np.float32)
    run = write_probe_run(tmp_path / "run", words, lambda *_: noise[np.arange(200) % 50])
    probe(plan(run, tmp_path / "out"), scheduler="serial")
    for row in rows(tmp_path / "out", features="states"):
        assert row["accuracy"] < 0.7
        assert row["groups"] == 50


# --- the same numbers, whoever computes them --------------------------------------------------------------------------


@pytest.mark.slow
def test_one_worker_two_workers_and_none_give_the_same_bytes(run: Path, out: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        probe(plan(run, tmp_path / str(workers)), workers=workers)
        for path in sorted(path for path in out.rglob("*") if path.is_file() and ".ember" not in path.parts):
            other = tmp_path / str(workers) / path.relative_to(out)
            assert other.read_bytes() == path.read_bytes(), other


def test_a_sweep_goes_on_where_it_stopped(
    run: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, done = sweep.run_task, []

    def stopped(task: Any) -> str:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(task.source.name)
        return whole(task)

    monkeypatch.setattr(sweep, "run_task", stopped)
    with pytest.raises(KeyboardInterrupt):
        probe(plan(run, tmp_path / "out"), scheduler="serial")
    assert not (tmp_path / "out" / "manifest.json").exists()
    monkeypatch.setattr(sweep, "run_task", lambda task: (done.append(task.source.name), whole(task))[1])
    probe(plan(run, tmp_path / "out"), scheduler="serial")
    assert len(done) == len(set(done)) == 5
    assert (tmp_path / "out" / "results.parquet").read_bytes() == (out / "results.parquet").read_bytes()
    assert not list((tmp_path / "out" / ".ember").glob("*/*.npz"))


def test_a_finished_sweep_is_left_as_it_is_and_a_damaged_one_is_made_anew(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = plan(run, tmp_path, labels=("pattern",), splits=["random"], probes=("mean_difference",))
    [first] = probe(config, scheduler="serial")
    assert first.computed
    before = (tmp_path / "results.parquet").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(sweep, "run_task", lambda _: pytest.fail("nothing is to be computed"))
        [again] = probe(config, scheduler="serial")
    assert not again.computed
    assert again.record["highlights"] == first.record["highlights"]
    (tmp_path / "results.parquet").write_bytes(before[:-9])
    probe(config, scheduler="serial")
    assert (tmp_path / "results.parquet").read_bytes() == before


# --- what is written --------------------------------------------------------------------------------------------------


def manifest(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return found


def test_tables_have_their_schemas_and_say_where_they_come_from(run: Path, out: Path) -> None:
    table = pq.read_table(out / "results.parquet")
    assert table.schema.remove_metadata() == results_schema()
    assert pq.read_table(out / "classes.parquet").schema.remove_metadata() == classes_schema()
    told = manifest(out)
    semantic = json.loads((run / "manifest.json").read_text())["semantic_hash"]
    assert told["run"]["semantic_hash"] == semantic == table.schema.metadata[b"ember.semantic_hash"].decode()
    assert told["plan_sha256"] == table.schema.metadata[b"ember.plan_sha256"].decode()
    assert sweep.damaged(out, told) == []
    assert {one["path"] for one in told["files"]} >= {"results.parquet", "classes.parquet"}


def test_class_counts_add_up(out: Path) -> None:
    key = {"label": "pattern", "split": "random", "probe": "logistic", "features": "states", "layer": 2}
    [whole] = rows(out, **key)
    table = pq.read_table(out / "classes.parquet").to_pylist()
    classes = [row for row in table if all(row[name] == value for name, value in key.items())]
    assert [row["class"] for row in classes] == ["p0", "p1", "p2", "p3"]
    assert sum(row["rows"] for row in classes) == sum(row["predicted"] for row in classes) == 144
    assert sum(row["correct"] for row in classes) / 144 == whole["accuracy"]
    assert np.mean([row["f1"] for row in classes]) == pytest.approx(whole["macro_f1"])


def test_directions_are_vectors_for_interventions_that_blind_the_probe(run: Path, out: Path) -> None:
    """Without its direction, states of a layer give the class one score against the mean of all, whatever they are."""
    told = [one for one in manifest(out)["weights"] if (one["label"], one["probe"]) == ("pattern", "logistic")]
    assert [one["class"] for one in told] == ["p0", "p1", "p2", "p3"]
    from pipelines.reading import load

    x = load(run).matrix(site="after_layer", layer=1).astype(np.float64)
    vector = load_vector(out / told[0]["path"])
    assert vector.sha256 == told[0]["sha256"]
    assert vector.values.shape == (3, WIDTH)
    w = vector.values[1].astype(np.float64)
    scores = x @ w + told[0]["intercepts"][1]
    y = np.array([label == "p0" for label in load(run).stimuli["label_pattern"].to_pylist()])
    assert scores[y].min() > np.median(scores[~y])
    blind = x - np.outer(x @ w, w) / (w @ w)
    assert np.allclose(blind @ w, 0, atol=1e-9)


# --- errors name what is wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"labels": ({"label": "root", "exclude": ["r99"]},)}, "exclude: found 'r99', which no stimulus has as root"),
        ({"labels": ({"label": "root", "exclude": ["r-01"]},)}, r"no stimulus has as root; did you mean 'r01'\?"),
        ({"labels": ("rot",)}, r"^labels: found 'rot'; the run's stimuli have .*; did you mean 'root'\?$"),
        ({"captures": ("lst",)}, r"captures: found 'lst'; .* has 'last' .*; did you mean 'last'\?$"),
        ({"captures": ("nope",)}, r"captures: found 'nope'; .* has 'last' \(after_layer, last\)"),
        ({"layers": [7]}, "layers: 7 of 'last' was not captured"),
        ({"sites": ["after_mlp"]}, "nothing to probe: no capture"),
        ({"where": {"root": "zzz"}}, "where: found 'zzz', which no stimulus has as root"),
        ({"where": {"root": ["r01", "r2"]}}, r"where: found 'r2', which no stimulus has as root; did you mean 'r02'\?"),
        ({"where": {"rot": "zzz"}}, "where: found 'rot'"),
        ({"control": "word"}, "control: found 'word'"),
        ({"splits": [{"held_out": "lemma"}]}, "splits: found 'lemma'; the run's stimuli have [a-z, ]*$"),
        ({"splits": [{"held_out": "roots"}]}, r"splits: found 'roots'; .*; did you mean 'root'\?$"),
    ],
)
def test_a_plan_that_the_run_does_not_fit(run: Path, tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        probe(plan(run, tmp_path / "out", **keys), scheduler="serial")
    assert not (tmp_path / "out").exists()


def test_a_plan_from_a_file_is_named_where_the_run_does_not_fit(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"schema: ember.probe/v1\nruns: [{run}]\nsplits: [{{held_out: roots}}]\n")
    for config in (path, open_plan(path, partial=True)):
        with pytest.raises(ConfigError, match=rf"^{re.escape(str(path))}: splits: found 'roots'; .* 'root'\?$"):
            probe(config, scheduler="serial")


def test_layers_count_from_the_end_too_and_filters_select(run: Path, tmp_path: Path) -> None:
    keys = {"layers": [-1], "where": {"template": ["t0", "t1"]}, "labels": ("pattern",), "splits": ["random"]}
    probe(plan(run, tmp_path, probes=("mean_difference",), **keys), scheduler="serial")
    [row] = rows(tmp_path, features="states")
    assert (row["layer"], row["rows"]) == (2, 96)


def test_prompts_that_failed_are_left_out_only_if_asked(tmp_path: Path) -> None:
    run = write_probe_run(tmp_path / "run", crossed(12, 4, 3), planted, failed=(3, 77))
    config = plan(run, tmp_path / "out", labels=("pattern",), splits=["random"], probes=("mean_difference",))
    with pytest.raises(RunError, match="2 of 144 prompts"):
        probe(config, scheduler="serial")
    [summary] = probe(config.model_copy(update={"partial": True}), scheduler="serial")
    assert rows(tmp_path / "out", features="states")[0]["rows"] == 142
    assert summary.lines()[0] == "142 stimuli of planted, 2 failed ones left out"


def test_damaged_and_unfinished_runs_are_refused_before_anything_is_computed(tmp_path: Path) -> None:
    run = write_probe_run(tmp_path / "run", crossed(12, 4, 3), planted)
    part = run / "activations" / "part-00001.parquet"
    data = bytearray(part.read_bytes())
    data[500] ^= 1
    part.write_bytes(data)
    with pytest.raises(VerifyError, match="part-00001"):
        probe(plan(run, tmp_path / "out"), scheduler="serial")
    (run / "manifest.json").unlink()
    with pytest.raises(RunError, match="holds no finished run"):
        probe(plan(run, tmp_path / "out"), scheduler="serial")
    with pytest.raises(InputError, match="not a directory"):
        probe(plan(tmp_path / "absent", tmp_path / "out"), scheduler="serial")
    assert not (tmp_path / "out").exists()


def test_states_that_are_not_finite_are_named(tmp_path: Path) -> None:
    def states(capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
        x = planted(capture, layer, stimuli)
        x[5, 3] = np.nan if layer == 1 else x[5, 3]
        return x

    run = write_probe_run(tmp_path / "run", crossed(12, 4, 3), states)
    with pytest.raises(InputError, match="last-after_layer-1: the states hold numbers that are not finite"):
        probe(plan(run, tmp_path / "out", labels=("pattern",), splits=["random"]), scheduler="serial")


def test_a_capture_of_many_rows_for_each_prompt_is_left_out_or_refused(tmp_path: Path) -> None:
    captures = [
        CaptureRecord("last", "after_layer", (0, 1, 2), "last", WIDTH),
        CaptureRecord("every", "after_mlp", (1,), "all", WIDTH),
    ]
    run = write_probe_run(tmp_path / "run", crossed(12, 4, 3), planted, captures=captures)
    keys = {"labels": ("pattern",), "splits": ["random"], "probes": ("mean_difference",)}
    probe(plan(run, tmp_path / "out", **keys), scheduler="serial")
    assert {row["capture"] for row in rows(tmp_path / "out", features="states")} == {"last"}
    with pytest.raises(ConfigError, match="'every' has 432 rows for 144 stimuli"):
        probe(plan(run, tmp_path / "out2", captures=("every",), **keys), scheduler="serial")


def test_other_results_and_other_files_are_not_overwritten(run: Path, out: Path, tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="results of another plan or run"):
        probe(plan(run, out, seed=1), scheduler="serial")
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(IdentityError, match=r"thesis\.tex"):
        probe(plan(run, tmp_path), scheduler="serial")


def test_a_run_that_was_probed_still_verifies(tmp_path: Path) -> None:
    from pipelines.verify import verify

    run = write_probe_run(tmp_path / "run", crossed(12, 4, 3), planted)
    config = plan(run, tmp_path, labels=("pattern",), splits=["random"], probes=("mean_difference",))
    [summary] = probe(config.model_copy(update={"output": None}), scheduler="serial")
    assert summary.directory == run / "probes"
    assert verify(run).sound


# --- plans in files ---------------------------------------------------------------------------------------------------


def test_a_plan_is_read_with_paths_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "schema: ember.probe/v1\nruns: [run]\nlabels: [root, {label: kind, exclude: [k1], splits: [random]}]\n"
        "splits: [random, {held_out: root}, {held_out: [root, pattern]}]\nlayers: {from: 1, to: -1}\n"
    )
    found = load_probes(tmp_path / "p.yaml")
    assert found.runs == (str(tmp_path / "run"),)
    assert found.splits == ((), ("root",), ("root", "pattern"))
    assert found.labels is not None
    assert (found.labels[1].exclude, found.labels[1].splits) == (("k1",), ((),))


def test_every_problem_of_a_plan_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "schema: ember.probe/v1\nruns: [run]\nprobes: [logistik]\nsplits: [random, {held_out: [a, b, c]}]\n"
        "strengths: {logistic: [0.1, -1]}\nfolds: 1\nlabel: root\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_probes(tmp_path / "p.yaml")
    said = str(caught.value)
    assert [int(line.split(":")[1]) for line in said.splitlines()] == [3, 4, 5, 6, 7]
    assert "did you mean 'logistic'" in said
    assert "expected random, {held_out: field}" in said
    assert "did you mean 'labels'" in said


def test_a_pipeline_config_is_not_a_probe_plan(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("schema: ember.pipeline/v1\n")
    with pytest.raises(ConfigError, match=r"expected ember\.probe/v1"):
        open_plan(tmp_path / "p.yaml")
    with pytest.raises(ConfigError, match="no such file or directory"):
        open_plan(tmp_path / "absent")


def test_the_plan_that_is_shipped_is_one() -> None:
    config = load_probes(Path(__file__).parents[3] / "configs" / "probe.yaml")
    assert config.runs[0].endswith("outputs/roots")
    assert config.labels is not None
    assert [one.label for one in config.labels] == ["pattern", "root", "root_class"]


def test_values_that_are_excluded_are_no_classes_and_labels_of_any_spelling_have_files(tmp_path: Path) -> None:
    words = [Word({"a/b ج": f"v{i % 3}"}, f"w{i}", (1, i)) for i in range(60)]
    run = write_probe_run(
        tmp_path / "run",
        words,
        lambda _c, layer, stimuli: np.random.default_rng(layer).standard_normal((len(stimuli), 4)).astype(np.float32),
        width=4,
    )
    config = ProbeConfig(runs=(str(run),), probes=("mean_difference",), draws=100)
    label = config.model_validate({"runs": config.runs, "labels": [{"label": "x", "exclude": ["v2"]}]}).labels
    assert label is not None
    config = config.model_copy(update={"labels": (label[0].model_copy(update={"label": "a/b ج"}),)})
    probe(config, scheduler="serial")
    told = manifest(run / "probes")
    assert {(one["rows"], tuple(one["classes"])) for one in told["problems"]} == {(40, ("v0", "v1"))}
    assert [one["path"] for one in told["weights"]] == ["weights/last/a%2fb%20ج-mean_difference-001.npy"]
    assert (run / "probes" / told["weights"][0]["path"]).is_file()
