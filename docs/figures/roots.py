"""Draws docs/figures/roots.png from a finished run of configs/roots.yaml.

    python docs/figures/roots.py outputs/roots

A linear probe for the root (patterns held out) and for the pattern (roots held out) on every layer's last-token state,
each beside the same probe on labels that were shuffled over the groups. Needs the extra `analysis`.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pipelines

COLOURS = {"root": "#0072b2", "pattern": "#d55e00"}  # Okabe and Ito's, told apart by colour-blind readers


def accuracy(x: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> float:
    """Mean accuracy over folds that share no group with their training part; scaling is fitted inside each fold."""
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    return float(cross_val_score(probe, x, labels, groups=groups, cv=GroupKFold(5)).mean())


def shuffled(labels: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same labels, dealt anew inside each group, so that classes stay balanced and nothing can be learnt."""
    out = labels.copy()
    for group in np.unique(groups):
        here = np.flatnonzero(groups == group)
        out[here] = labels[rng.permutation(here)]
    return out


def main(run_dir: str, out: Path) -> None:
    """Measure and draw."""
    run = pipelines.load(run_dir)
    stimuli = run.stimuli
    by_name = np.array(stimuli["template"].to_pylist()) == "by_name"
    root = np.array(stimuli["label_root"].to_pylist())[by_name]
    pattern = np.array(stimuli["label_pattern"].to_pylist())[by_name]
    correct = np.array(run.generations["correct"].to_pylist())[by_name]
    layers = run.layers("after_layer", "after_layer")
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for name, labels, groups in (("root", root, pattern), ("pattern", pattern, root)):
        control = shuffled(labels, groups, np.random.default_rng(0))
        states = [run.matrix(site="after_layer", layer=n, capture="after_layer")[by_name] for n in layers]
        found = [accuracy(x, labels, groups) for x in states]
        chance = [accuracy(x, control, groups) for x in states]
        print(name, [round(a, 3) for a in found], "shuffled", [round(a, 3) for a in chance])
        axes.plot(layers, found, "o-", color=COLOURS[name], label=f"{name} ({len(set(labels))} classes)")
        axes.plot(layers, chance, "o:", color=COLOURS[name], alpha=0.6, label=f"{name}, labels shuffled")
    axes.axhline(correct.mean(), color="0.35", lw=1, ls="--", label=f"forms generated right: {correct.mean():.0%}")
    axes.set(xlabel="after layer", ylabel="held-out accuracy", ylim=(0, 1.03), xticks=layers)
    axes.set_title("builtin:sarf-nano, last token of prompts that name the pattern", fontsize=10)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    axes.grid(alpha=0.25)
    figure.savefig(out, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main(sys.argv[1], Path(__file__).with_suffix(".png"))
