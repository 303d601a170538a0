"""Probes in a report: numbers that stand in results.parquet, verdicts, refusals, and probes that are not this run's."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure as Drawing

import pipelines
from pipelines.errors import VerifyError
from pipelines.placing import sha256_file
from pipelines.probes import ProbeConfig, probe
from pipelines.report import charts, make_report
from pipelines.report.probe_results import best_control, layers_said

LAYERS = (0, 1, 2, 3, 4)


def row(label: str, split: str, layer: int, accuracy: float, **more: Any) -> dict[str, Any]:
    """One row of results.parquet; a margin of the best control follows from the others."""
    controls = {"control_accuracy": 0.2, "majority_accuracy": 0.3, "characters_accuracy": 0.4, "tokens_accuracy": 0.1}
    margin = accuracy - 0.4
    told = {
        "label": label, "split": split, "probe": "logistic", "features": "states", "capture": "after_layer",
        "site": "after_layer", "layer": layer, "position": "last", "width": 128, "classes": 3, "rows": 18, "groups": 6,
        "test_sets": 5, "unseen": 0, "accuracy": accuracy, "accuracy_low": accuracy - 0.1,
        "accuracy_high": min(1.0, accuracy + 0.1), "macro_f1": accuracy - 0.05, "macro_f1_low": 0.0,
        "macro_f1_high": 1.0, "margin": margin, "margin_low": margin - 0.2, "margin_high": margin + 0.2, **controls,
        "selectivity": accuracy - 0.2, "code_bits": 20.0 - layer, "control_code_bits": 40.0, "uniform_bits": 28.5,
        "revealed": 0.0, "above_controls": margin > 0.2, "converged": True,
        "margin_corrected": margin, "margin_corrected_low": margin - 0.25, "margin_corrected_high": margin + 0.25,
        "family": 10, "above_controls_corrected": margin > 0.25,
    }  # fmt: skip
    return told | more


def plant(directory: Path, rows: list[dict[str, Any]], **more: Any) -> Path:
    """Put probes with the given rows beside a run."""
    folder = directory / "probes"
    folder.mkdir(exist_ok=True)
    path = folder / "results.parquet"
    pd.DataFrame(rows).to_parquet(path)
    manifest = {
        "schema_version": "ember.probe-results/v2",
        "run": {
            "name": "small",
            "semantic_hash": pipelines.load(directory).manifest.semantic_hash,
            "failed_samples": 0,
        },
        "plan": {"seed": 7},
        "problems": [],
        "files": [{"path": "results.parquet", "sha256": sha256_file(path)}],
        "refusals": [{"label": "root", "split": "root-heldout", "reason": "every class occurs in one </p> root only"}],
        "untrained_baseline": "not measured: weights are not shuffled by this version",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest | more), encoding="utf-8")
    return folder


@pytest.fixture
def run(small: Path, tmp_path: Path) -> Path:
    """A copy of the small run."""
    return Path(shutil.copytree(small, tmp_path / "run"))


def test_verdicts_and_numbers_are_those_of_the_results(run: Path) -> None:
    accuracies = (0.3, 0.5, 0.7, 0.9, 0.8)
    rows = [row("pattern", "root-heldout", layer, a) for layer, a in zip(LAYERS, accuracies, strict=True)]
    rows += [row("pattern", "random", layer, 0.35) for layer in LAYERS]
    rows += [row("pattern", "random", -1, 0.4, features="characters", margin=math.nan)]
    plant(run, rows)
    found = make_report(run)
    heldout, random = found.record["probes"]["verdicts"]
    assert heldout == {
        "label": "pattern", "split": "root-heldout", "probe": "logistic", "capture": "after_layer",
        "site": "after_layer", "layer": 3, "accuracy": 0.9, "accuracy_low": 0.8, "accuracy_high": 1.0,
        "control": "characters", "control_accuracy": 0.4, "enough_groups": True, "above": [2, 3, 4],
        "above_uncorrected": [2, 3, 4], "selective": [1, 2, 3, 4],
    }  # fmt: skip
    assert random["above"] == []
    assert "above all controls from layer 2 on" in found.html
    assert "not above its controls anywhere" in found.html
    assert "labels take 16 bits, random labels 40, and 28 if nothing is known" in found.html
    assert {"probe-1-pattern-root-heldout.svg", "probe-2-pattern-random.png", "probes-1.svg"} <= set(found.figures)
    # The summary tells the split in which the best state does worst.
    summary = found.html[found.html.index('<section id="summary"') : found.html.index('<section id="provenance"')]
    assert "not above its controls anywhere" in summary
    assert "above all controls from layer 2 on" not in summary
    assert "Of 2 curves (label, split, capture) 1 is above all controls at some layer" in summary


def test_refusals_limits_and_warnings_are_told(run: Path) -> None:
    plant(run, [row("pattern", "random", layer, 0.9, unseen=2, converged=layer > 0) for layer in LAYERS])
    found = make_report(run)
    assert "every class occurs in one &lt;/p&gt; root only" in found.html
    warnings = " ".join(found.record["warnings"]["warnings"])
    assert "2 prompts were tested whose class no training fold had" in warnings
    assert "1 of 5 probes did not converge" in warnings
    limits = " ".join(found.record["limits"]["limits"])
    assert "No untrained model was probed" in limits
    assert "All splits are random" in limits
    assert "not what the model reads" in limits
    assert "No probe was run" not in limits


def test_probes_of_another_run_are_refused(run: Path) -> None:
    plant(run, [row("pattern", "random", 0, 0.9)], run={"name": "other", "semantic_hash": "0" * 64})
    with pytest.raises(VerifyError, match="probes of another run"):
        make_report(run)


def test_damaged_or_unfinished_probes_are_refused(run: Path) -> None:
    folder = plant(run, [row("pattern", "random", 0, 0.9)])
    results, manifest = folder / "results.parquet", folder / "manifest.json"
    whole = results.read_bytes()
    results.write_bytes(whole[:-1] + b"!")
    with pytest.raises(VerifyError, match="is not the file"):
        make_report(run)
    results.write_bytes(whole)
    for text in ("{", "[]", '{"schema_version": "other"}', "null"):
        manifest.write_text(text, encoding="utf-8")
        with pytest.raises(VerifyError, match="no manifest of probes"):
            make_report(run)
    manifest.unlink()
    with pytest.raises(VerifyError, match="no finished probes"):
        make_report(run)


def test_probes_may_lie_elsewhere(run: Path, tmp_path: Path) -> None:
    folder = shutil.move(plant(run, [row("pattern", "random", 0, 0.9)]), tmp_path / "elsewhere")
    assert "probes" not in make_report(run).record
    assert make_report(run, probes=folder).record["probes"]["verdicts"][0]["accuracy"] == 0.9
    with pytest.raises(VerifyError, match="no finished probes"):
        make_report(run, probes=tmp_path / "nowhere")


BY_ITSELF = "its 95 % interval, taken by itself, lies above random labels and majority "


def test_words_for_layers() -> None:
    assert layers_said([2, 3, 4], LAYERS) == " from layer 2 on"
    assert layers_said([1, 3], LAYERS) == " at layers 1, 3"
    assert layers_said([1], LAYERS) == " at layer 1"
    assert layers_said(list(LAYERS), LAYERS) == " at every captured layer"
    assert layers_said([-1], [-1]) == ""


def test_what_the_text_gives_away_is_told_from_what_nothing_gives(run: Path) -> None:
    told = {"characters_accuracy": 1.0, "above_controls": False, "above_controls_corrected": False}
    plant(run, [row("root", "random", layer, 0.1 + layer / 5, **told) for layer in LAYERS])
    found = make_report(run)
    assert found.record["probes"]["verdicts"][0]["selective"] == [2, 3, 4]
    assert BY_ITSELF + "from layer 2 on; the text alone gives as much" in found.html


def test_networks_that_used_up_their_steps_are_told_apart(run: Path) -> None:
    rows = [row("pattern", "random", layer, 0.9) for layer in LAYERS]
    networks = [row("pattern", "random", layer, 0.95, probe="mlp", converged=layer > 1) for layer in LAYERS]
    plant(run, [*networks, *rows], mlp={"steps": 200})
    found = make_report(run)
    assert "did not converge" not in found.html
    assert (
        "2 of 5 probes with a hidden layer, or their controls, are what 200 steps gave and not a minimum." in found.html
    )
    assert {one["probe"] for one in found.record["probes"]["verdicts"]} == {"logistic"}


def test_the_best_control_is_the_one_that_counts() -> None:
    assert best_control(row("x", "random", 0, 0.5)) == ("characters", 0.4)
    assert best_control(row("x", "random", 0, 0.5, characters_accuracy=math.nan)) == ("majority", 0.3)


def test_a_real_sweep_is_reported(run_small: Callable[..., Path], tmp_path: Path) -> None:
    stimuli = {
        "generate": "root_pattern",
        "roots": ["كتب", "درس", "علم", "فتح", "جمع", "شرب"],
        "patterns": {
            "active": {"pattern": "1A2i3", "title": "اسم الفاعل"},
            "place": {"pattern": "ma12a3", "title": "اسم المكان"},
        },
        "templates": {"by_name": {"text": "{pattern_name} من الجذر {root}:", "reveals": ["root", "pattern"]}},
        "expect": " {surface}",
    }
    run = run_small(tmp_path / "real", stimuli=stimuli, score=None)
    plan = {
        "runs": [str(run)], "labels": [{"label": "pattern", "splits": [{"held_out": "root"}]}],
        "captures": ["after_layer"], "layers": [0, 4], "draws": 100, "folds": 3,
    }  # fmt: skip
    probe(ProbeConfig.model_validate(plan | {"schema": "ember.probe/v1"}), scheduler="serial")
    found = make_report(run)
    results = pd.read_parquet(run / "probes/results.parquet")
    states = results[(results["features"] == "states") & (results["probe"] == "logistic")]
    (verdict,) = found.record["probes"]["verdicts"]
    best = states.loc[states["accuracy"].idxmax()]
    assert (verdict["layer"], verdict["accuracy"], verdict["above"]) == (
        best["layer"], best["accuracy"], states[states["above_controls"]]["layer"].tolist(),
    )  # fmt: skip
    for one in results[results["features"] == "states"].itertuples():
        assert f"{one.accuracy:.3f}" in found.html


def test_probes_of_two_runs_stand_side_by_side(run: Path, small: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(small, tmp_path / "other"))
    plant(run, [row("pattern", "root-heldout", layer, 0.9 - layer / 10) for layer in LAYERS])
    assert "probes" not in make_report(run, other).record
    plant(other, [row("pattern", "root-heldout", layer, 0.35) for layer in LAYERS] + [row("root", "random", 0, 0.5)])
    found = make_report(run, other)
    key = {"label": "pattern", "split": "root-heldout", "probe": "logistic", "capture": "after_layer"}
    assert found.record["probes"]["best"] == [key | {"a": 0.9, "b": 0.35}]
    assert "both-probes-1-pattern-root-heldout.svg" in found.figures


def test_probes_of_two_runs_that_were_not_made_alike_say_so(run: Path, small: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(small, tmp_path / "other"))
    rows = [row("pattern", "random", layer, 0.9) for layer in LAYERS]
    problem = {"label": "pattern", "split": "random", "rows": 18, "classes": ["active", "place"], "test_sets": 5}
    hashes = {"semantic_hash": "a" * 64, "untrained_semantic_hash": "c" * 64}
    plant(run, rows, problems=[problem], plan={"seed": 7, "where": {}, **hashes})
    plant(other, rows, problems=[problem], plan={"seed": 7, "where": {}, "semantic_hash": "b" * 64})
    alike = make_report(run, other)
    assert alike.record["probes"]["unlike"] == []
    assert "trained and tested alike" in alike.html
    plan = {"seed": 8, "where": {"pattern": ["active"]}}
    plant(other, rows, problems=[problem | {"rows": 12, "classes": ["active"]}], plan=plan)
    found = make_report(run, other)
    assert found.record["probes"]["unlike"] == [
        "plan.seed: was 7, is 8",
        'plan.where.pattern: was absent, is ["active"]',
        'pattern, random.classes: was ["active", "place"], is ["active"]',
        "pattern, random.rows: was 18, is 12",
    ]
    assert "trained and tested alike" not in found.html
    assert "need not come from the states" in found.html
    assert "pattern, random.rows: was 18, is 12" in found.html


def test_an_untrained_copy_is_one_more_control(run: Path) -> None:
    rows = [row("pattern", "random", layer, 0.9, untrained_accuracy=0.1 * layer + 0.3) for layer in LAYERS]
    plant(run, rows, untrained_baseline="run untrained")
    found = make_report(run)
    assert found.record["probes"]["verdicts"][0]["control"] == "characters"
    assert "untrained model" in found.html
    assert not any("No untrained model" in one for one in found.record["limits"]["limits"])
    assert best_control(row("x", "random", 0, 0.5, untrained_accuracy=0.45)) == ("untrained model", 0.45)


ALONE = "above all controls from layer 2 on only taken by itself, "


def test_what_is_above_only_uncorrected_is_not_called_above(run: Path) -> None:
    told = {"above_controls_corrected": False}
    plant(run, [row("pattern", "random", layer, 0.4 + layer / 8, **told) for layer in LAYERS])
    found = make_report(run)
    [verdict] = found.record["probes"]["verdicts"]
    assert (verdict["above"], verdict["above_uncorrected"]) == ([], [2, 3, 4])
    assert ALONE + "not when corrected for 10 numbers looked at" in found.html
    assert "Of 1 curve (label, split, capture) none is above all controls at some layer; uncorrected 1." in found.html
    assert "0 of 5 have a star" in found.html


def test_two_templates_never_carry_a_statement(run: Path) -> None:
    """Every number is far above every control; two groups cannot say so of a third."""
    few = {"groups": 2, "test_sets": 2, "above_controls": True, "above_controls_corrected": False}
    few |= {"margin_corrected_low": math.nan, "margin_corrected_high": math.nan}
    plant(run, [row("root", "template-heldout", layer, 0.2 * layer + 0.05, **few) for layer in LAYERS])
    found = make_report(run)
    [verdict] = found.record["probes"]["verdicts"]
    assert not verdict["enough_groups"]
    assert verdict["above"] == verdict["above_uncorrected"] == verdict["selective"] == []
    section = found.html[found.html.index('<section id="probes"') :]
    assert "higher than random labels and majority from layer 2 on, of too few groups to say more<" in section
    assert "0 of 5 have a star" in section
    assert section.count("too few groups</td>") == 2 * len(LAYERS)
    assert "none is above all controls at some layer; uncorrected none." in found.html
    plant(run, [row("root", "template-heldout", layer, 0.9, characters_accuracy=1.0, **few) for layer in LAYERS])
    said = "higher than random labels and majority at every captured layer, of too few groups to say more; the text"
    assert said in make_report(run).html
    plant(run, [row("root", "template-heldout", layer, 0.25, **few) for layer in LAYERS])
    assert "not higher than random labels and majority anywhere" in make_report(run).html


def test_what_comes_after_all_layers_stands_after_them(run: Path) -> None:
    plant(run, [
        *(row("pattern", "random", layer, 0.5 + layer / 10) for layer in LAYERS),
        row("pattern", "random", -1, 0.7, capture="norm", site="before_logits"),
    ])  # fmt: skip
    found = make_report(run)
    assert "norm: best 70.0\u00a0% at before_logits, characters 40.0\u00a0%" in found.html
    assert "layer -1" not in found.html
    assert "layer −1" not in found.html


def test_the_place_after_all_layers_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    axes: list[Any] = []
    monkeypatch.setattr(charts, "_draw", lambda paint, _height: axes.append(painted(paint)))
    lines = [charts.Line("a", list(range(30)), [0.5] * 30), charts.Line("norm", [30], [0.7], [0.6], [0.8])]
    charts.curves(lines, "layer", "accuracy", beyond=(30, "before_logits"))
    ticks, names = axes[0].get_xticks().tolist(), [label.get_text() for label in axes[0].get_xticklabels()]
    assert (ticks[-1], names[-1]) == (30, "before_logits")
    assert names[:-1] == [f"{tick:.0f}" for tick in ticks[:-1]]
    [interval] = [found.get_segments() for found in axes[0].collections]
    assert interval[0].tolist() == [[30, 0.6], [30, 0.8]]
    # its name has room: no number stands closer than an eighth of the axis
    assert 0 <= ticks[0] < ticks[-2] <= 30 - 30 / 8


def painted(paint: Any) -> Any:
    figure = Drawing()
    paint(figure)
    return figure.axes[0]


def test_each_capture_is_drawn_beside_its_own_text_controls(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[charts.Line] = []
    curves = charts.curves
    monkeypatch.setattr(charts, "curves", lambda lines, *more: drawn.extend(lines) or curves(lines, *more))
    at_word = {"capture": "word", "characters_accuracy": 0.9}
    plant(run, [row("pattern", "random", n, 0.5, **more) for more in ({}, at_word) for n in LAYERS])
    make_report(run)
    shared = {line.name: list(line.y) for line in drawn if line.shared}
    assert shared == {
        "majority": [0.3, 0.3], "token ids": [0.1, 0.1],
        "after_layer: characters": [0.4, 0.4], "word: characters": [0.9, 0.9],
    }  # fmt: skip


def test_features_that_a_text_control_lacks_are_a_warning(run: Path) -> None:
    texts = [
        {"features": "characters", "capture": "", "position": "last", "kept": 8192, "found": 8192},
        {"features": "tokens", "capture": "word", "position": '{"span": "final"}', "kept": 2048, "found": 12345},
    ]
    plant(run, [row("pattern", "random", layer, 0.9) for layer in LAYERS], texts=texts)
    warnings = " ".join(make_report(run).record["warnings"]["warnings"])
    assert "The token ids control beside word sees the 2,048 most frequent of 12,345 features" in warnings
    assert "characters control" not in warnings


def test_what_gives_as_much_is_named(run: Path) -> None:
    told = {"characters_accuracy": 0.95, "untrained_accuracy": 0.9}
    told |= {"above_controls": False, "above_controls_corrected": False}
    plant(run, [row("root", "random", 3, 0.9, **told)])
    assert "the text alone and an untrained model give as much" in make_report(run).html
    plant(run, [row("root", "random", 3, 0.93, **told | {"characters_accuracy": 0.3})])
    assert "not surely above all controls" in make_report(run).html
