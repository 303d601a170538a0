"""The probes beside scikit-learn's own pipelines, which know nothing of Ember's code but the folds."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, f1_score, log_loss
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from pipelines.probes.coordinates import Rotated, Straight
from pipelines.probes.design import Design
from pipelines.probes.fitting import Task, cross_validate, refit
from pipelines.probes.logistic import fit_logistic
from pipelines.probes.mdl import Sending, blocks, code_lengths
from pipelines.probes.metrics import count
from pipelines.probes.splits import Grouping, make_folds


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As workers compute; two threads on small matrices mostly wait for each other."""
    with threadpool_limits(1):
        yield


C = (1e-3, 1e-2, 1e-1, 1.0)
ALPHA = (1000.0, 100.0, 10.0, 1.0)
PEERS: dict[str, tuple[Callable[[], Any], str, tuple[float, ...]]] = {
    "logistic": (lambda: LogisticRegression(max_iter=20_000, tol=1e-9), "logisticregression__C", C),
    "ridge": (RidgeClassifier, "ridgeclassifier__alpha", ALPHA),
    "mean_difference": (NearestCentroid, "", (0.0,)),
}
SHAPES = [(240, 40, 4), (240, 40, 2), (120, 200, 5), (120, 200, 2)]


def data(rows: int, width: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """States with a planted class, columns of very different mean and scale, and one constant column."""
    random = np.random.default_rng(seed)
    y = random.integers(0, classes, rows)
    x = random.standard_normal((rows, width)) * random.uniform(0.1, 20, width) + random.uniform(-50, 50, width)
    x[:, :classes] += np.eye(classes)[y] * 15
    x[:, -1] = 3.25
    return x.astype(np.float32), y


def task_of(y: Any, groups: Any, count_: int = 5) -> Task:
    classes = int(y.max()) + 1
    prompts = Grouping("prompt", tuple(map(str, range(len(y)))), np.arange(len(y)))
    grouping = Grouping("word", tuple(map(str, range(int(groups.max()) + 1))), groups)
    folds = make_folds(y, list(map(str, range(classes))), [grouping], prompts, count=count_, seed=3)
    control = np.random.default_rng(1).permutation(y)
    return Task(np.arange(len(y)), y, control, classes, folds)


def peers_predictions(x: Any, y: Any, folds: Any, probe: str) -> tuple[Any, list[float]]:
    make, key, strengths = PEERS[probe]
    predicted, chosen = np.full(len(y), -1), []
    for fold in range(folds.max() + 1):
        test, training = folds == fold, folds != fold
        model: Any = make_pipeline(StandardScaler(), make())
        if key:
            model = GridSearchCV(model, {key: list(strengths)}, cv=PredefinedSplit(folds[training]))
        model.fit(x[training].astype(np.float64), y[training])
        predicted[test] = model.predict(x[test].astype(np.float64))
        chosen.append(model.best_params_[key] if key else 0.0)
    return predicted, chosen


@pytest.mark.parametrize("probe", PEERS)
@pytest.mark.parametrize(("rows", "width", "classes"), SHAPES)
def test_predictions_and_chosen_strengths_are_those_of_a_grid_search(
    rows: int, width: int, classes: int, probe: str
) -> None:
    x, y = data(rows, width, classes)
    task = task_of(y, np.arange(rows) // 2)
    found, _ = cross_validate(Design(x), task, probe, PEERS[probe][2])
    expected, chosen = peers_predictions(x, y, task.folds.assigned[0], probe)
    assert np.array_equal(found.predicted, expected)
    assert found.chosen == chosen
    assert found.converged
    counts = count(y, found.predicted, classes)
    assert counts.correct.sum() / rows == accuracy_score(y, expected)
    assert counts.macro_f1 == pytest.approx(f1_score(y, expected, average="macro"), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_of_a_small_and_a_large_template_strengths_are_those_of_a_grid_search_inside_each(seed: int) -> None:
    """Parts that are dealt over both leave the small one without some: then every strength had an accuracy of NaN."""
    template, y = np.repeat([0, 1], [6, 60]), np.arange(66) % 2
    x = np.random.default_rng(seed).standard_normal((66, 12)) + 1.2 * y[:, None] * (np.arange(12) < 2)
    prompts = Grouping("prompt", tuple(map(str, range(66))), np.arange(66))
    folds = make_folds(y, ["a", "b"], [Grouping("template", ("s", "l"), template)], prompts, count=2, seed=seed)
    assert folds.within is not None
    found, _ = cross_validate(Design(x), Task(np.arange(66), y, y, 2, folds), "logistic", C)
    make, key, _ = PEERS["logistic"]
    expected = []
    for (fold,) in folds.keys:
        training = folds.assigned[0] != fold
        inner = PredefinedSplit(folds.within[training])
        search = GridSearchCV(make_pipeline(StandardScaler(), make()), {key: list(C)}, cv=inner)
        expected.append(search.fit(x[training], y[training]).best_params_[key])
    assert found.chosen == expected


@pytest.mark.parametrize("probe", ["logistic", "ridge"])
@pytest.mark.parametrize(("rows", "width"), [(200, 30), (90, 160), (60, 600)])
def test_features_without_rank_and_rare_classes_are_those_of_a_grid_search(rows: int, width: int, probe: str) -> None:
    """A third of the columns are constant, a third are copies of others, and one class has two rows."""
    x, y = data(rows, width, 3)
    third = width // 3
    x[:, third : 2 * third] = x[:, :third] * 2 + 1
    x[:, 2 * third :] = np.arange(width - 2 * third)
    y[:] = np.where(y == 2, 1, y)
    y[[3, rows - 5]] = 2
    task = task_of(y, np.arange(rows))
    found, _ = cross_validate(Design(x), task, probe, PEERS[probe][2])
    expected, chosen = peers_predictions(x, y, task.folds.assigned[0], probe)
    assert np.array_equal(found.predicted, expected)
    assert found.chosen == chosen
    assert found.converged


@pytest.mark.parametrize(("rows", "width"), [(240, 40), (150, 400)])
def test_rotated_and_straight_coordinates_have_one_optimum(
    rows: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = data(rows, width, 4)
    design, chosen = Design(x), np.arange(0, rows - 20)
    told = []
    for space in (Rotated, Straight):
        monkeypatch.setattr("pipelines.probes.logistic.coordinates", space)
        [[model]] = fit_logistic(design.training(chosen), [y[chosen]], 4, [0.1], 1e-9)
        assert model.converged
        told.append(design.x @ model.weights + model.bias)
    assert np.allclose(*told, atol=2e-4)


def test_two_folds_choose_strengths_inside_the_training_fold() -> None:
    x, y = data(200, 30, 3)
    task = task_of(y, np.arange(200) % 2, 2)
    found, _ = cross_validate(Design(x), task, "logistic", C)
    folds, within = task.folds.assigned[0], task.folds.within
    assert within is not None
    for fold in range(2):
        training = folds != fold
        search: Any = GridSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=20_000, tol=1e-9)),
            {"logisticregression__C": list(C)},
            cv=PredefinedSplit(within[training]),
        ).fit(x[training].astype(np.float64), y[training])
        assert found.chosen[fold] == search.best_params_["logisticregression__C"]
        assert np.array_equal(found.predicted[~training], search.predict(x[~training].astype(np.float64)))


def test_the_control_task_is_fitted_with_the_strengths_chosen_for_the_label() -> None:
    x, y = data(240, 40, 3)
    task = task_of(y, np.arange(240))
    own, control = cross_validate(Design(x), task, "logistic", C)
    assert control.chosen == own.chosen
    folds = task.folds.assigned[0]
    for fold, strength in enumerate(own.chosen):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=20_000, tol=1e-9))
        model.fit(x[folds != fold].astype(np.float64), task.control[folds != fold])
        assert np.array_equal(control.predicted[folds == fold], model.predict(x[folds == fold].astype(np.float64)))


@pytest.mark.parametrize("classes", [2, 4])
def test_weights_in_units_of_the_states_are_those_of_a_pipeline(classes: int) -> None:
    x, y = data(240, 40, classes)
    design, task = Design(x), task_of(y, np.arange(240))
    model, strength = refit(design, task, "logistic", [0.1, 0.1, 1.0])
    assert strength == 0.1
    weights, bias = model.in_units_of(design)
    scaler = StandardScaler().fit(x.astype(np.float64))
    peer = LogisticRegression(C=0.1, max_iter=20_000, tol=1e-9).fit(scaler.transform(x.astype(np.float64)), y)
    expected = peer.coef_ / scaler.scale_
    found = weights.T - weights.T.mean(axis=0) if classes > 2 else (weights[:, 1] - weights[:, 0])[None]
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-5)
    told = x.astype(np.float64) @ weights + bias
    shares = np.exp(told - told.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    assert np.allclose(shares, peer.predict_proba(scaler.transform(x.astype(np.float64))), atol=1e-4)


def test_single_precision_finds_the_same_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(400, 60, 4)
    task = task_of(y, np.arange(400))
    exact, _ = cross_validate(Design(x), task, "logistic", C)
    monkeypatch.setattr("pipelines.probes.design.EXACT", 0)
    design = Design(x)
    assert design.x.dtype == np.float32
    found, _ = cross_validate(design, task, "logistic", C)
    assert found.chosen == exact.chosen
    assert np.array_equal(found.predicted, exact.predicted)
    for probe in ("ridge", "mean_difference"):
        predicted, _ = peers_predictions(x, y, task.folds.assigned[0], probe)
        assert np.array_equal(cross_validate(design, task, probe, PEERS[probe][2])[0].predicted, predicted)


def test_a_class_that_is_not_in_the_training_rows_is_never_told() -> None:
    x, y = data(60, 10, 3)
    design = Design(x)
    rows = np.flatnonzero(y != 1)
    model = fit_logistic(design.training(rows), [y[rows]], 3, [0.1])[0][0]
    assert np.isneginf(model.bias[1])
    assert set((design.x @ model.weights + model.bias).argmax(axis=1)) <= {0, 2}


def test_code_length_is_that_of_probes_trained_block_by_block() -> None:
    x, y = data(300, 20, 3)
    order = np.random.default_rng(5).permutation(300)
    groups = np.arange(300) // 3
    [found] = code_lengths(Design(x), np.arange(300), [y], 3, Sending(order, groups), [0.1])
    ends = blocks(300, 3)
    assert ends[0] == 8
    assert ends[-1] == 300
    bits = 8 * np.log2(3)
    for start, end in pairwise(ends):
        known, sent = order[:start], order[start:end]
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=20_000, tol=1e-9))
        model.fit(x[known].astype(np.float64), y[known])
        assert list(model.classes_) == [0, 1, 2]
        shares = model.predict_proba(x[sent].astype(np.float64))
        seen = len(set(groups[known]))
        mixed = (seen * shares + 1 / 3) / (seen + 1)
        bits += log_loss(y[sent], mixed, labels=[0, 1, 2], normalize=False) / np.log(2)
    assert found == pytest.approx(bits, rel=1e-4)
    assert found < 300 * np.log2(3)
