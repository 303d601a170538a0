"""How often sarf-nano gives exactly the right form, per set of the split: through Ember's own engine, from the file.

    python -m tests.foundry.sarf.evaluate [MODEL] [--most N] [--json OUT]

A continuation counts if its ids are those of a space, the form and <|end|>, and nothing else.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ember
from ember.work import UnitWork
from pipelines.stimuli.roots import root_class
from tests.foundry.sarf.corpus import Example, held_out_sets, load_split, share

UNIT = 256
STEPS = 20


def main() -> None:
    """Evaluate with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="builtin:sarf-nano")
    parser.add_argument("--most", type=int, default=600, help="examples of a set, chosen by hash")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ember.open(options.model, threads=1) as model:
        report = {name: evaluate(model, some(full, options.most)) for name, full in sets().items()}
    for name, entry in report.items():
        print(f"{name:26} {entry['correct']:5}/{entry['examples']:<5} {entry['accuracy']:.3f}  {entry['by_class']}")
    if options.json:
        options.json.write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def sets() -> dict[str, list[Example]]:
    """The sets of the committed split."""
    return held_out_sets(load_split())


def some(examples: Sequence[Example], most: int) -> list[Example]:
    """At most `most` examples, always the same ones."""
    return sorted(examples, key=lambda one: share("sample", one.form.root, one.pattern, one.template))[:most]


def evaluate(model: ember.Model, examples: Sequence[Example]) -> dict[str, Any]:
    """Accuracy as a whole, by class of root and by pattern, and the first wrong answers."""
    right, asked, wrong = Counter[str](), Counter[str](), []
    by_pattern: dict[str, list[bool]] = defaultdict(list)
    for one, given in zip(examples, continuations(model, [one.prompt for one in examples]), strict=True):
        correct = given == (
            *model.tokenizer.encode(" " + one.form.surface, add_special=False).ids,
            model.tokenizer.eos_id,
        )
        kind = root_class(one.form.root)
        asked[kind] += 1
        right[kind] += correct
        by_pattern[one.pattern].append(correct)
        if not correct:
            wrong.append([one.prompt, one.form.surface, model.tokenizer.decode(given)])
    return {
        "examples": len(examples),
        "correct": right.total(),
        "accuracy": round(right.total() / max(1, len(examples)), 4),
        "by_class": {kind: round(right[kind] / n, 3) for kind, n in sorted(asked.items())},
        "by_pattern": {name: round(sum(given) / len(given), 3) for name, given in sorted(by_pattern.items())},
        "wrong": wrong[:12],
    }


def continuations(model: ember.Model, prompts: Sequence[str]) -> list[tuple[int, ...]]:
    """Greedy ids after each prompt, up to and with the stopping one."""
    ids = model.tokenizer.encode_ids(list(prompts))
    given: list[tuple[int, ...]] = []
    for at in range(0, len(ids), UNIT):
        work = UnitWork(tuple(ids[at : at + UNIT]), max_tokens=STEPS, stop_ids=model.tokenizer.stop_ids)
        given += [produced.token_ids for produced in model.run_unit(work).produced]
    return given


if __name__ == "__main__":
    main()
