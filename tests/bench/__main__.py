"""Time the extraction of every layer's last token from 200 prompts: Ember against what a user would run instead.

EMBER_REFERENCE_PYTHON=python-with-llama-cpp python -m tests.bench MODEL-Q8_0.gguf [--out FOLDER] …
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ember
from tests.bench.peers import machine
from tests.bench.rounds import Contender, fastest, measure
from tests.bench.table import as_line, as_markdown
from tests.bench.workload import rows_after_sharing, texts

SEARCHED = 48  # prompts with which settings are tried


def main() -> None:
    arguments = _arguments()
    work = _Work(arguments.model, arguments.reference, arguments.threads)
    contenders = work.ember() + work.peers() + work.ceilings()
    timings = measure(contenders, arguments.rounds)
    work.check(contenders)
    record = {
        "when": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "model": Path(arguments.model).name,
        "prompts": len(work.prompts),
        "tokens": work.tokens,
        "rows_after_sharing": work.rows,
        "rounds": arguments.rounds,
        "threads": arguments.threads,
        "contenders": {label: as_line(timing, work.tokens) for label, timing in timings.items()},
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "extraction.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    markdown = as_markdown(record)
    (arguments.out / "extraction.md").write_text(markdown)
    print(markdown)


class _Work:
    """The prompts, and the contenders that are to do them."""

    def __init__(self, model: str, reference: str | None, threads: int) -> None:
        self._model, self._reference, self._threads = str(Path(model).resolve()), reference, threads
        opened = ember.open(model)
        self.prompts = [list(map(int, opened.tokenizer.encode(text).ids)) for text in texts()]
        self.tokens = sum(map(len, self.prompts))
        self.rows = rows_after_sharing(self.prompts)
        self._keys = opened.file.metadata
        self._shape = {"layers": opened.n_layers, "d": opened.hidden_size}

    def ember(self) -> list[Contender]:
        one = [self._contender("Ember", sys.executable, peer="ember")]
        if self._threads == 1:
            return one
        label = f"Ember, {self._threads} processes of 1 thread"
        return [*one, self._contender(label, sys.executable, peer="ember", threads=1, parts=self._threads)]

    def ceilings(self) -> list[Contender]:
        keys, width = self._keys, self._shape["d"] // int(self._keys["llama.attention.head_count"])
        narrow = width * int(keys["llama.attention.head_count_kv"])
        shape = {**self._shape, "narrow": narrow, "ffn": int(keys["llama.feed_forward_length"])}
        return [
            self._contender(
                f"matrix products alone, {label}", sys.executable, peer="ceiling", rows=rows, shape=shape,
                last_rows=len(self.prompts),
            )
            for label, rows in (("after sharing", self.rows), ("without sharing", self.tokens))
        ]  # fmt: skip

    def peers(self) -> list[Contender]:
        if not self._reference:
            print("EMBER_REFERENCE_PYTHON is unset: llama.cpp and transformers are left out", file=sys.stderr)
            return []
        plain = {"batch": 2048, "kv": "F16", "flash": False, "common": False}
        variants = [{**plain, "batch": batch, "flash": flash} for batch in (256, 512) for flash in (False, True)]
        best = self._best("llama.cpp, best batch", "llama.cpp", variants)
        shared = {**best.request["variant"], "common": True}
        return [
            self._contender("llama.cpp, batches of 2048", self._reference, peer="llama.cpp", variant=plain),
            best,
            self._contender("llama.cpp, prefix shared by hand", self._reference, peer="llama.cpp", variant=shared),
            self._best("Hugging Face, float32", "transformers", [{"batch": batch} for batch in (16, 50)]),
        ]

    def check(self, contenders: Sequence[Contender]) -> None:
        """Check that all did the same work: directions agree, up to llama.cpp's rounding of activations."""
        states = {
            contender.label: np.load(contender.request["keep"])
            for contender in contenders
            if contender.parts == 1 and contender.request["peer"] != "ceiling"
        }
        ours = next(iter(states.values()))
        for label, theirs in states.items():
            layers = slice(None, -1 if label.startswith("Hugging") else None)  # there the last one is normed
            cosine = _cosine(ours[:, layers], theirs[:, layers])
            print(f"{label}: least cosine with Ember {cosine:.5f}", file=sys.stderr)
            if cosine < 0.97:
                raise RuntimeError(f"{label} computed something else than Ember: cosine {cosine}")

    def _best(self, label: str, peer: str, variants: list[dict[str, Any]]) -> Contender:
        assert self._reference is not None
        tried = [
            self._contender(
                f"{label}: {variant}", self._reference, peer=peer, variant=variant, prompts=self.prompts[:SEARCHED]
            )
            for variant in variants
        ]
        chosen = fastest(tried).request["variant"]
        return self._contender(label, self._reference, peer=peer, variant=chosen)

    def _contender(self, label: str, python: str, *, parts: int = 1, **request: Any) -> Contender:
        kept = str(self._kept(label)) if parts == 1 else None
        common = {"model": self._model, "prompts": self.prompts, "threads": self._threads, "keep": kept}
        return Contender(label, python, {**common, **request}, parts)

    @staticmethod
    def _kept(label: str) -> Path:
        folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"ember-bench-{os.getpid()}"
        folder.mkdir(exist_ok=True)
        return folder / f"{abs(hash(label))}.npy"


def _cosine(ours: Any, theirs: Any) -> float:
    products = (ours * theirs).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(theirs, axis=-1)
    return float(products.min())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reference", default=os.environ.get("EMBER_REFERENCE_PYTHON"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
