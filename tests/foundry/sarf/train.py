"""Train sarf-nano on the corpus and write it as GGUF.

    python -m tests.foundry.sarf.train OUT.gguf [--steps N] [--batch N] [--seed N] [--threads N]

Needs torch and gguf. The same arguments, versions and thread count give the same file. Progress goes to stderr.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from pipelines.stimuli.roots import root_class
from tests.foundry.sarf.corpus import load_split, training_set, words
from tests.foundry.sarf.export import export
from tests.foundry.sarf.model import SarfNano, Shape
from tests.foundry.sarf.reading import Reader, Rows
from tests.foundry.sarf.vocabulary import build

STEPS, BATCH, SEED, THREADS = 4400, 64, 7, 1
_PEAK, _WARM_UP, _PROMPT_WEIGHT = 3e-3, 150, 0.15
_GROUP = 32  # batches sorted by length together


def main() -> None:
    """Train with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--threads", type=int, default=THREADS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    vocabulary = build(words())
    reader = Reader(vocabulary)
    read = training_set(load_split())
    hard = [one for one in read if root_class(one.form.root) == "geminate"]
    rows = reader.rows([*read, *hard, *hard])  # two equal letters are hard to tell apart
    model = train(rows, Shape(len(vocabulary.tokens)), options.steps, options.batch, options.seed)
    export(model, vocabulary, options.out)
    print(f"wrote {options.out}", file=sys.stderr)


def train(rows: Rows, shape: Shape, steps: int, batch: int, seed: int) -> SarfNano:
    """Fit the model by AdamW with warm-up and a cosine to zero; the form weighs more than its prompt."""
    torch.manual_seed(seed)
    model = SarfNano(shape)
    matrices = [weight for weight in model.parameters() if weight.ndim == 2]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=_PEAK, betas=(0.9, 0.98))
    started, shown = time.monotonic(), 0.0
    for step, (ids, weights) in enumerate(rows.batches(batch, steps, seed, group=_GROUP)):
        for group in optimiser.param_groups:
            group["lr"] = _PEAK * rate(step, steps)
        losses = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        flat = torch.where(weights == 1, _PROMPT_WEIGHT, weights.clamp(0, 2) / 2).flatten()
        loss = (losses * flat).sum() / flat.sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        shown += loss.item()
        if (step + 1) % 100 == 0:
            form = losses[weights.flatten() == 2].mean().item()
            passed = f"{time.monotonic() - started:.0f} s, {time.process_time():.0f} s of processor"
            print(f"{step + 1} loss {shown / 100:.4f} form {form:.4f} {passed}", file=sys.stderr, flush=True)
            shown = 0.0
    return model.eval()


def rate(step: int, steps: int) -> float:
    """The learning rate's share of its peak."""
    if step < _WARM_UP:
        return (step + 1) / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (step - _WARM_UP) / max(1, steps - _WARM_UP)))


if __name__ == "__main__":
    main()
