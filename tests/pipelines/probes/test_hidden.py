"""The probe with a hidden layer: beside scikit-learn's, and on a signal that no linear probe can find."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from pipelines.errors import ConfigError
from pipelines.manifest import CaptureRecord
from pipelines.probes import ProbeConfig, probe
from pipelines.probes.design import Design, Layered, scores
from pipelines.probes.fitting import Task, cross_validate
from pipelines.probes.hidden import HIDDEN, SETTINGS, fit_hidden
from pipelines.probes.splits import Grouping, make_folds
from pipelines.stimuli.record import Stimulus
from tests.foundry.probe_run import Word, crossed, write_probe_run


def parity(rows: int, width: int, seed: int = 0) -> tuple[Any, Any]:
    """States with two bits along two directions, and which of four rows' classes: whether the bits differ (XOR)."""
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 2, (2, rows))
    axes = np.linalg.qr(random.standard_normal((width, 2)))[0].T
    x = random.standard_normal((rows, width)) + 4 * np.outer(2 * a - 1, axes[0]) + 4 * np.outer(2 * b - 1, axes[1])
    return (x * 5 + 30).astype(np.float32), a ^ b


def task_of(y: Any, seed: int = 0) -> Task:
    rows = np.arange(len(y))
    prompts = Grouping("prompt", tuple(map(str, rows)), rows)
    folds = make_folds(y, ["same", "different"], [prompts], prompts, count=5, seed=3)
    return Task(rows, y, np.random.default_rng(1).permutation(y), 2, folds, seed)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("rows", "width"), [(400, 24), (200, 260)])
def test_it_finds_what_no_linear_probe_does_as_the_network_of_sklearn(rows: int, width: int) -> None:
    x, y = parity(rows, width)
    task = task_of(y)
    found, control = cross_validate(Design(x), task, "mlp", (1.0, 0.1))
    linear, _ = cross_validate(Design(x), task, "logistic", (0.01, 0.1))
    folds, peers, lines = task.folds.assigned[0], np.empty(rows), np.empty(rows)
    for fold in range(5):
        test, training = folds == fold, folds != fold
        network = MLPClassifier((HIDDEN,), solver="lbfgs", max_iter=200, random_state=0)
        search: Any = GridSearchCV(
            make_pipeline(StandardScaler(), network), {"mlpclassifier__alpha": [1.0, 0.1]},
            cv=PredefinedSplit(folds[training]),
        )  # fmt: skip
        with threadpool_limits(1):
            peers[test] = search.fit(x[training].astype(np.float64), y[training]).predict(x[test].astype(np.float64))
        line = make_pipeline(StandardScaler(), LogisticRegression(C=0.01)).fit(x[training], y[training])
        lines[test] = line.predict(x[test])
    mine, theirs = np.mean(found.predicted == y), np.mean(peers == y)
    assert mine > 0.95
    assert mine == pytest.approx(theirs, abs=0.03)
    assert np.mean(linear.predicted == y) < 0.65 > np.mean(lines == y)
    # random labels cannot be learnt by heart across folds
    assert np.mean(control.predicted == task.control) < 0.62


def test_its_loss_is_about_that_of_the_network_of_sklearn() -> None:
    """Units differ a little (smooth here, with a kink there); what is paid for the same data is alike."""
    x, y = parity(300, 20)
    design = Design(x)
    [[model]] = fit_hidden(design.training(np.arange(300)), [y], 2, [1.0])
    assert model.converged
    z = StandardScaler().fit_transform(x.astype(np.float64))
    peer = MLPClassifier((HIDDEN,), solver="lbfgs", alpha=1.0, max_iter=3000, random_state=0).fit(z, y)
    told = scores(design.x, [model])[0]
    shares = np.exp(told - told.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    loss = -np.mean(np.log(shares[np.arange(300), y]))
    theirs = -np.mean(np.log(peer.predict_proba(z)[np.arange(300), y]))
    assert loss < 0.1
    assert loss == pytest.approx(theirs, abs=0.05)


def test_the_seed_decides_and_nothing_else() -> None:
    x, y = parity(200, 12)
    rows = np.arange(0, 200, 2)
    fits = [fit_hidden(Design(x).training(rows, seed), [y[rows]], 2, [1.0])[0][0] for seed in (0, 0, 1)]
    assert np.array_equal(fits[0].weights, fits[1].weights)
    assert np.array_equal(fits[0].inner.weights, fits[1].inner.weights)
    assert not np.array_equal(fits[0].weights, fits[2].weights)


def test_a_class_that_is_not_in_the_training_rows_is_never_told() -> None:
    x, y = parity(120, 10)
    y = y + (np.arange(120) % 7 == 0) * 2
    rows = np.flatnonzero(y != 1)
    [[model]] = fit_hidden(Design(x).training(rows), [y[rows]], 4, [1.0])
    assert isinstance(model, Layered)
    assert np.isneginf(model.bias[1])
    assert 1 not in scores(Design(x).x, [model])[0].argmax(axis=1)


def test_single_precision_finds_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = parity(400, 24)
    monkeypatch.setattr("pipelines.probes.design.EXACT", 0)
    design = Design(x)
    assert design.x.dtype == np.float32
    [[model]] = fit_hidden(design.training(np.arange(300)), [y[:300]], 2, [1.0])
    assert np.mean(scores(design.x[300:], [model])[0].argmax(axis=1) == y[300:]) > 0.95


# --- in a sweep -------------------------------------------------------------------------------------------------------


def write_run(folder: Path) -> Path:
    """Layer 1 holds two bits of each stimulus, whose XOR is its label; layer 0 nothing. Prompts are all different."""
    x, y = parity(240, 8)
    words = [Word({"same": f"s{y[i]}"}, f"w{i}", (1, 2 + i % 16, 50 + i // 16)) for i in range(240)]

    def states(_capture: str, layer: int, _stimuli: Sequence[Stimulus]) -> Any:
        return x if layer else np.random.default_rng(5).standard_normal(x.shape).astype(np.float32)

    captures = [CaptureRecord("last", "after_layer", (0, 1), "last", 8)]
    return write_probe_run(folder / "run", words, states, width=8, captures=captures)


def plan(run: Path, out: Path, **keys: Any) -> ProbeConfig:
    given = {"runs": (str(run),), "probes": ("logistic", "mlp"), "splits": ["random"], "draws": 300}
    strengths = {"logistic": (0.01, 0.1), "mlp": (1.0, 10.0)}
    return ProbeConfig.model_validate(given | {"strengths": strengths, "output": {"dir": str(out)}} | keys)


def test_a_sweep_tells_what_only_a_network_reads_with_its_selectivity(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    probe(plan(run, tmp_path / "out"), scheduler="serial")
    table = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    found = {(row["probe"], row["layer"]): row for row in table if row["features"] == "states"}
    assert found["mlp", 1]["accuracy"] > 0.95
    assert found["logistic", 1]["accuracy"] < 0.7
    assert found["mlp", 0]["accuracy"] < 0.65
    for row in found.values():
        assert row["selectivity"] == row["accuracy"] - row["control_accuracy"]
    assert found["mlp", 1]["selectivity"] > 0.3
    assert {key for key, row in found.items() if row["above_controls_corrected"]} == {("mlp", 1)}
    assert set(found["mlp", 1]["strengths"]) <= {1.0, 10.0}
    assert np.isnan(found["mlp", 1]["code_bits"])
    told = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert told["mlp"] == SETTINGS
    assert told["plan"]["strengths"]["mlp"] == [1.0, 10.0]
    assert {one["probe"] for one in told["weights"]} == {"logistic"}


@pytest.mark.slow
def test_workers_find_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    probe(plan(run, tmp_path / "0"), scheduler="serial")
    probe(plan(run, tmp_path / "2"), workers=2)
    assert (tmp_path / "0" / "results.parquet").read_bytes() == (tmp_path / "2" / "results.parquet").read_bytes()


def test_unsound_use_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found mlp alone; .* list logistic too"):
        plan(tmp_path, tmp_path / "out", probes=("mlp",))

    def noise(_capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
        return np.random.default_rng(layer).standard_normal((len(stimuli), 16)).astype(np.float32)

    run = write_probe_run(tmp_path / "run", crossed(12, 4, 2), noise)
    with pytest.raises(
        ConfigError, match=r"mlp: root, random: a training fold has \d+ rows of 12 classes; .*leave mlp"
    ):
        probe(plan(run, tmp_path / "out", labels=("root",)), scheduler="serial")
    assert not (tmp_path / "out").exists()
