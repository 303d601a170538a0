"""What a linear probe reads from sarf-nano's hidden states at a prompt's last token, layer by layer.

    python -m tests.foundry.sarf.probes [MODEL] [--roots N] [--json OUT]

Ridge classifiers on standardised states, five folds that share no root. Targets are the pattern and each radical; the
control is the same probe on shuffled labels (radicals: shuffled over roots). A probe beats its control where its mean
accuracy is more than three standard errors of the fold differences above it. Needs scikit-learn.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ember
from pipelines.stimuli.patterns import PATTERNS
from pipelines.stimuli.roots import real_roots
from tests.foundry.sarf.corpus import Example, examples, share

FOLDS: Final = 5
PER_ROOT: Final = 12
SEED: Final = 11
TARGETS: Final = ("pattern", "radical_1", "radical_2", "radical_3")


def main() -> None:
    """Probe with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="builtin:sarf-nano")
    parser.add_argument("--roots", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ember.open(options.model, threads=1) as model:
        report = {name: probe(model, chosen(name, options.roots)) for name in ("by_measure", "by_name")}
    for template, layers in report.items():
        for layer, row in layers.items():
            cells = (f"{t} {e['probe']:.2f}/{e['control']:.2f}{'*' if e['beats'] else ' '}" for t, e in row.items())
            print(f"{template:11} {layer:15}", "  ".join(cells))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def chosen(template: str, roots: int) -> list[Example]:
    """Prompts of `roots` real roots, a dozen patterns each, picked by hash."""
    picked = sorted(real_roots(), key=lambda root: share("probe", root))[:roots]
    every = examples(picked, PATTERNS, [template])
    ranked = sorted(every, key=lambda one: (one.form.root, share("probe", one.form.root, one.pattern)))
    taken: dict[str, int] = {}
    kept = []
    for one in ranked:
        taken[one.form.root] = taken.get(one.form.root, 0) + 1
        if taken[one.form.root] <= PER_ROOT:
            kept.append(one)
    return kept


def probe(model: ember.Model, prompts: Sequence[Example]) -> dict[str, dict[str, Any]]:
    """Per layer and target: accuracy of the probe and of its control, and whether the one beats the other."""
    captures = model.capture([one.prompt for one in prompts], site=["before_layer", "after_layer"])
    states = {"before layer 0": captures["before_layer"][:, 0]}
    states |= {f"after layer {n}": captures["after_layer"][:, n] for n in range(model.n_layers)}
    groups = np.array([one.form.root for one in prompts])
    return {
        layer: {target: _compare(x, *labels(prompts, target), groups) for target in TARGETS}
        for layer, x in states.items()
    }


def labels(prompts: Sequence[Example], target: str) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
    """The labels of a target, and shuffled ones."""
    rng = np.random.default_rng(SEED)
    if target == "pattern":
        true = np.array([one.pattern for one in prompts])
        return true, rng.permutation(true)
    at = int(target[-1]) - 1
    roots = list(dict.fromkeys(one.form.root for one in prompts))
    shuffled = dict(zip(roots, rng.permutation([root[at] for root in roots]), strict=True))
    true = np.array([one.form.root[at] for one in prompts])
    return true, np.array([shuffled[one.form.root] for one in prompts])


def _compare(
    x: NDArray[np.float32], true: NDArray[np.str_], shuffled: NDArray[np.str_], groups: NDArray[np.str_]
) -> dict[str, Any]:
    probed, control = _accuracies(x, true, groups), _accuracies(x, shuffled, groups)
    gain = probed - control
    error = float(gain.std(ddof=1)) / FOLDS**0.5
    return {
        "probe": round(float(probed.mean()), 4),
        "control": round(float(control.mean()), 4),
        "beats": bool(gain.mean() > 3 * error and gain.mean() > 0),
    }


def _accuracies(x: NDArray[np.float32], y: NDArray[np.str_], groups: NDArray[np.str_]) -> NDArray[np.float64]:
    scores = []
    for train, test in GroupKFold(FOLDS).split(x, y, groups):
        fitted = make_pipeline(StandardScaler(), RidgeClassifier(alpha=10.0)).fit(x[train], y[train])
        scores.append(fitted.score(x[test], y[test]))
    return np.array(scores)


if __name__ == "__main__":
    main()
