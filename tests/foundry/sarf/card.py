"""Measure the built-in model and write what was measured: `ember/assets/sarf-nano.json`, and the tables of its card.

    python -m tests.foundry.sarf.card

Needs scikit-learn. Every figure comes from the file in ember/assets, run by Ember's engine.
"""

import hashlib
import json
import re
from typing import Any, Final

import ember
from ember.assets_path import ASSETS, resolve_model
from tests.foundry.sarf.corpus import ROOT
from tests.foundry.sarf.evaluate import evaluate, sets, some
from tests.foundry.sarf.probes import TARGETS, chosen, probe

FIGURES: Final = ASSETS / "sarf-nano.json"
CARD: Final = ROOT / "docs/sarf-nano.md"
MOST: Final = 1500
PROBE_ROOTS: Final = 240
_WRONG: Final = 6
_SETS: Final = {
    "seen_by_measure": "read in training, measure shown",
    "seen_by_name": "read in training, only the name shown",
    "unseen_pairs_by_measure": "root and pattern read, never together; measure shown",
    "unseen_pairs_by_name": "the same, only the name shown",
    "unseen_roots_by_measure": "roots never read, measure shown",
    "unseen_roots_by_name": "roots never read, only the name shown",
    "form8_unnamed_by_name": "form VIII by its name, of read roots that change there",
    "form8_unseen_by_measure": "form VIII by its measure, of unread roots that change there",
    "form8_unseen_by_name": "form VIII by its name, of unread roots that change there",
}


def main() -> None:
    """Measure and write."""
    path = resolve_model("builtin:sarf-nano")
    with ember.open(path, threads=1) as model:
        accuracy = {name: evaluate(model, some(full, MOST)) for name, full in sets().items()}
        probes = {name: probe(model, chosen(name, PROBE_ROOTS)) for name in ("by_measure", "by_name")}
    figures: dict[str, Any] = {
        "name": "sarf-nano",
        "license": "MIT",
        "split": "sarf-nano.split.json",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "accuracy": accuracy,
        "probes": probes,
    }
    FIGURES.write_text(json.dumps(figures, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    CARD.write_text(with_tables(CARD.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print(f"wrote {FIGURES} and the tables of {CARD}")


def with_tables(text: str, figures: dict[str, Any]) -> str:
    """Put the tables of the figures between their marks in the card's text."""
    tables = {
        "file": f"`{figures['bytes']}` bytes, sha256 `{figures['sha256']}`",
        "accuracy": accuracy_table(figures["accuracy"]),
        "classes": class_table(
            figures["accuracy"]["form8_unseen_by_name"], figures["accuracy"]["unseen_roots_by_name"]
        ),
        "wrong": wrong_table(figures["accuracy"]["form8_unseen_by_name"]["wrong"]),
        "probes": "\n\n".join(probe_table(name, layers) for name, layers in figures["probes"].items()),
    }
    for name, table in tables.items():
        mark = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = mark.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    return text


def accuracy_table(accuracy: dict[str, Any]) -> str:
    """One line a set."""
    rows = [
        f"| `{n}` | {_SETS[n]} | {e['correct']} of {e['examples']} | {e['accuracy']:.1%} |" for n, e in accuracy.items()
    ]
    return "\n".join(["| set | what it holds | exact | share |", "|---|---|---|---|", *rows])


def class_table(hardest: dict[str, Any], roots: dict[str, Any]) -> str:
    """One line a class of roots."""
    rows = [
        f"| {kind} | {share:.1%} | {_percent(hardest['by_class'].get(kind))} |"
        for kind, share in roots["by_class"].items()
    ]
    return "\n".join(["| class of root | `unseen_roots_by_name` | `form8_unseen_by_name` |", "|---|---|---|", *rows])


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def wrong_table(wrong: list[list[str]]) -> str:
    """Some wrong answers."""
    rows = [
        f"| {prompt} | {right} | {given.replace('<|end|>', '').strip()} |" for prompt, right, given in wrong[:_WRONG]
    ]
    return "\n".join(["| prompt | right | given |", "|---|---|---|", *rows])


def probe_table(template: str, layers: dict[str, Any]) -> str:
    """One line a layer: accuracy of the probe, and of its control."""
    rows = []
    for layer, row in layers.items():
        cells = (
            f"{'**' * row[t]['beats']}{row[t]['probe']:.2f}{'**' * row[t]['beats']} / {row[t]['control']:.2f}"
            for t in TARGETS
        )
        rows.append(f"| {layer} | {' | '.join(cells)} |")
    head = f"| `{template}` | {' | '.join(target.replace('_', ' ') for target in TARGETS)} |"
    return "\n".join([head, "|---|" + "---|" * len(TARGETS), *rows])


if __name__ == "__main__":
    main()
