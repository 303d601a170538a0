"""Record log-probabilities of continuations: Hugging Face transformers in float64 (the reference Python).

    python -m tests.foundry.record_scores [SMOLLM2.gguf]

Writes tests/ember/goldens/recorded/scores.json: for one tiny model of each family, prompts and continuations as token
ids, and for each token of a continuation its log-probability (natural), its rank and its logit's distance to the
nearest other one, given the prompt and the tokens before it. With a file, it records that file's scores of TEXTS
instead, in scores_smollm2.json.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import transformers

from ember.scoring import cut_continuations
from ember.tokenizer import load_tokenizer
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import FAMILY_CASES
from tests.foundry.families_transformers import Transformers
from tests.foundry.files import tensors_sha256

RECORD: Final = Path(__file__).parents[1] / "ember" / "goldens" / "recorded" / "scores.json"
TEXTS: Final = (
    ("The capital of France is", (" Paris", " Rome", " the city")),
    ("The plural of كتاب is", (" كتب", " كاتب")),
    ("The capital of France is ", ("Paris",)),  # merges: the space would belong to the word
    ("def add(a, b):\n    return a", (" + b\n", " - b\n")),
)
CASES: Final = (
    "gpt2",
    "llama-fused-linear",
    "qwen2-heads-1-1-few-keys",
    "qwen3-wide-heads",
    "gemma3-every-3rd-linear",
    "gemma4-ple-shared-decoys",
)
LENGTHS: Final = ((5, (1, 3)), (40, (2, 6)))
"""Tokens of a prompt, and of each of its continuations."""
FIRST_ID, SPECIALS = 8, 2


def main() -> None:
    about = f"transformers {transformers.__version__} in float64"
    if len(sys.argv) > 1:
        told = {"recorded_with": about, "prompts": record_texts(sys.argv[1])}
        RECORD.with_name("scores_smollm2.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        return
    found = {name: record(name) for name in CASES}
    RECORD.write_text(json.dumps({"recorded_with": about, "cases": found}, indent=1) + "\n")


def record_texts(path: str) -> list[dict[str, Any]]:
    """Score TEXTS by a real model."""
    exact, tokenizer, told = Transformers(path), load_tokenizer(path), []
    for prompt, texts in TEXTS:
        fed = tokenizer.encode(prompt).ids
        cuts = [list(cut.tokens) for cut in cut_continuations(tokenizer, prompt, fed, texts)]
        scores = [[_one(exact, [*fed, *cut[:i]], token) for i, token in enumerate(cut)] for cut in cuts]
        told.append({"prompt": prompt, "texts": texts, "continuations": cuts, "scores": scores})
        print(prompt, [sum(one["log_probability"] for one in text) for text in scores])
    return told


def record(name: str) -> dict[str, Any]:
    """Score every continuation of one case."""
    case = FAMILY_CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = tiny_family(Path(folder) / "m.gguf", case.tiny, metadata=case.metadata)
        exact = Transformers(path)
        told = {"tensors_sha256": tensors_sha256(path), "prompts": []}
        for length, sizes in LENGTHS:
            rng = np.random.default_rng([length, case.tiny.seed])
            prompt = rng.integers(FIRST_ID, case.tiny.vocab - SPECIALS, length).tolist()
            texts = [rng.integers(FIRST_ID, case.tiny.vocab - SPECIALS, size).tolist() for size in sizes]
            scores = [[_one(exact, [*prompt, *text[:i]], token) for i, token in enumerate(text)] for text in texts]
            told["prompts"].append({"tokens": prompt, "continuations": texts, "scores": scores})
        print(name, told["prompts"][0]["scores"][0])
    return told


def _one(exact: Transformers, before: list[int], token: int) -> dict[str, float]:
    logits = exact.states(before)["logits"]
    value = float(logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
    others = np.delete(logits, token)
    margin = float(np.abs(others - logits[token]).min())
    return {"log_probability": round(value, 12), "rank": int(1 + (logits > logits[token]).sum()), "margin": margin}


if __name__ == "__main__":
    main()
