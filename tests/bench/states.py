"""Rows about hidden states: templated prompts, a long common prefix, no common prefix, and the shape of a 1B model."""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ember
from ember.bench import product_flops
from ember.gguf import open_gguf
from tests.bench.rounds import Contender, Timing, fastest, measure
from tests.bench.setting import Ratio, Row, Setting, as_line, ratio
from tests.bench.workload import few_shot, long_prompts, rows_after_sharing, texts, unshared

SEARCHED = 48  # prompts with which settings are tried
Prompts = list[list[int]]
LLAMA, TUNED, LENT = "llama.cpp, batches of 2048", "llama.cpp, best batch", "llama.cpp, prefix lent by hand"
FACE, EMBER = "Hugging Face, float32", "Ember"
CEILING, WHOLE = "matrix products alone, after sharing", "matrix products alone, without sharing"


def extraction(setting: Setting) -> Row:
    """200 templated prompts."""
    work = Extraction(setting, "short", encoded(setting, texts(setting.prompts)))
    lines = work.measured(work.ember() + work.peers() + work.ceilings())
    ratios = [*_shares(lines, setting), *_against(lines, [(LLAMA, 4.5), (TUNED, None), (FACE, 2.0), (LENT, None)])]
    return Row("extraction", work.title("templated prompts"), lines, ratios)


def few_shot_row(setting: Setting) -> Row:
    """The same after a prefix of 200 tokens."""
    work = Extraction(setting, "long", few_shot(encoded(setting, texts(setting.prompts))))
    lines = work.measured(work.ember() + work.peers() + work.ceilings()[: 1 + (setting.threads > 1)])
    ratios = _against(lines, [(LLAMA, 10.0), (TUNED, 10.0), (FACE, 10.0), (LENT, 2.0)])
    return Row("few-shot", work.title("prompts after a few-shot prefix of 200 tokens"), lines, ratios)


def unshared_row(setting: Setting) -> Row:
    """The same without anything in common."""
    work = Extraction(setting, "short", unshared(encoded(setting, texts(setting.prompts))))
    peers = [one for one in work.peers() if one.label != LENT]
    lines = work.measured(work.ember() + peers + work.ceilings()[: 1 + (setting.threads > 1)])
    ratios = [*_shares(lines, setting), *_against(lines, [(LLAMA, 2.5), (TUNED, 2.5), (FACE, 1.2)])]
    return Row("unshared", work.title("prompts that share no prefix"), lines, ratios)


def big_row(setting: Setting) -> Row:
    """The shape of a 1B model, weights streamed, one unit of 4096 rows; llama.cpp gets an eighth of the prompts."""
    work = Extraction(setting, "big", long_prompts(32, 128), model=setting.big_model(), streamed=True)
    few = work.prompts[:4]
    peers = work.peers(plain=[{"batch": 512, "kv": "F16", "flash": True, "common": False}], prompts=few)
    contenders = [*work.ember(), *peers, work.contender("sgemm peak", sys.executable, peer="peak")]
    lines = work.measured([*contenders, *work.ceilings()[: 1 + (setting.threads > 1)]])
    peak = lines["sgemm peak"]["gflops_per_second"]
    shares = [
        Ratio(f"{label} / sgemm peak", line["gflops_per_second"] / peak, 0.85)
        for label, line in lines.items()
        if label.startswith(EMBER)
    ]
    return Row("big", work.title("prompts of a 1B shape, weights streamed"), lines, [
        *shares, *_shares(lines, setting), *_against(lines, [("llama.cpp, batches of 512", 1.8)])])  # fmt: skip


class Extraction:
    """The prompts, and the contenders that are to do them."""

    def __init__(
        self, setting: Setting, kind: str, prompts: Prompts, *, model: Path | None = None, streamed: bool = False
    ) -> None:
        self._setting, self._kind, self._streamed = setting, kind, streamed
        self._model = str((model or setting.model).resolve())
        self.prompts = prompts
        self.rows = rows_after_sharing(prompts)
        self._kept = itertools.count()

    def title(self, what: str) -> str:
        """Say what is done."""
        tokens = sum(map(len, self.prompts))
        return (
            f"Hidden states of every layer at the last token of {len(self.prompts)} {what} "
            f"({tokens} tokens, {self.rows} rows after sharing), {Path(self._model).name}"
        )

    def ember(self) -> list[Contender]:
        """One process, and as many of one thread."""
        threads = self._setting.threads
        one = [self.contender(EMBER, sys.executable, peer="ember", streamed=self._streamed)]
        if threads == 1:
            return one
        label = f"{EMBER}, {threads} processes of 1 thread"
        request = {"peer": "ember", "streamed": self._streamed, "threads": 1}
        return [*one, self.contender(label, sys.executable, parts=threads, **request)]

    def ceilings(self) -> list[Contender]:
        """The products on shared rows (as one process and as several), then on all."""
        threads = self._setting.threads
        found = [self.contender(CEILING, sys.executable, peer="ceiling", shared=True)]
        if threads > 1:
            label = f"{CEILING}, {threads} processes of 1 thread"
            found += [self.contender(label, sys.executable, parts=threads, peer="ceiling", shared=True, threads=1)]
        return [*found, self.contender(WHOLE, sys.executable, peer="ceiling", shared=False)]

    def peers(self, plain: Sequence[dict[str, Any]] | None = None, prompts: Prompts | None = None) -> list[Contender]:
        """llama.cpp in three ways and transformers; with `plain`, llama.cpp in these settings alone."""
        python = self._setting.reference
        if not python:
            print("EMBER_REFERENCE_PYTHON is unset: llama.cpp and transformers are left out", file=sys.stderr)
            return []
        if plain is not None:
            given = {} if prompts is None else {"prompts": prompts}
            return [
                self.contender(f"llama.cpp, batches of {one['batch']}", python, peer="llama.cpp", variant=one, **given)
                for one in plain
            ]
        basic = {"batch": 2048, "kv": "F16", "flash": False, "common": False}
        variants = [{**basic, "batch": batch, "flash": flash} for batch in (256, 512) for flash in (False, True)]
        best = self._best(TUNED, "llama.cpp", variants)
        shared = {**best.request["variant"], "common": True}
        return [
            self.contender(LLAMA, python, peer="llama.cpp", variant=basic),
            best,
            self.contender(LENT, python, peer="llama.cpp", variant=shared),
            self._best(FACE, "transformers", [{"batch": batch} for batch in (16, 50)]),
        ]

    def contender(self, label: str, python: str, *, parts: int = 1, **request: Any) -> Contender:
        """Make a contender for these prompts, unless the request has its own."""
        kept = str(self._setting.folder / f"{self._kind}-{next(self._kept)}.npy") if parts == 1 else None
        common = {"model": self._model, "prompts": self.prompts, "threads": self._setting.threads, "keep": kept}
        return Contender(label, python, {**common, **request}, parts)

    def measured(self, contenders: Sequence[Contender]) -> dict[str, dict[str, Any]]:
        """Time all, check that they did the same work, and make their lines."""
        timings = measure(contenders, self._setting.rounds)
        check(contenders)
        return {one.label: self._line(one, timings[one.label]) for one in contenders}

    def _line(self, contender: Contender, timing: Timing) -> dict[str, Any]:
        prompts = contender.request["prompts"]
        tokens = sum(map(len, prompts))
        flops = timing.about.get("flops")
        if contender.request["peer"] == "ceiling":
            flops *= contender.parts
        elif contender.request["peer"] != "peak" and contender.label != LENT:
            rows = self.rows if contender.request["peer"] == "ember" else tokens
            flops = product_flops(open_gguf(self._model), rows, len(prompts))
        line = as_line(timing, tokens, flops=flops)
        return line if timing.private_bytes is None else line | {"private_bytes": timing.private_bytes}

    def _best(self, label: str, peer: str, variants: list[dict[str, Any]]) -> Contender:
        python, tuned = self._setting.reference, self._setting.tuned
        assert python is not None
        key = tuned_key(self._setting, self._kind, label)
        if key not in tuned:
            some = self.prompts[: SEARCHED if self._kind == "short" else SEARCHED // 4]
            tried = [
                self.contender(f"{label}: {variant}", python, peer=peer, variant=variant, prompts=some)
                for variant in variants
            ]
            tuned[key] = fastest(tried).request["variant"]
        return self.contender(label, python, peer=peer, variant=tuned[key])


def tuned_key(setting: Setting, kind: str, label: str) -> str:
    """What the best settings of a peer belong to."""
    return f"{setting.model.name}, {setting.threads} threads, {kind} prompts: {label}"


def encoded(setting: Setting, prompts: Sequence[str]) -> Prompts:
    """Token ids of texts by the model's own tokenizer."""
    tokenizer = ember.load_tokenizer(setting.model)
    return [list(map(int, tokenizer.encode(text).ids)) for text in prompts]


def check(contenders: Sequence[Contender]) -> None:
    """Check that all did the same work: directions agree, up to llama.cpp's rounding of activations."""
    states = {
        contender.label: np.load(contender.request["keep"])
        for contender in contenders
        if contender.parts == 1 and contender.request["peer"] not in ("ceiling", "peak")
    }
    ours = next(iter(states.values()))
    for label, theirs in states.items():
        layers = slice(None, -1 if label.startswith("Hugging") else None)  # there the last one is normed
        least = _cosine(ours[: len(theirs), layers], theirs[:, layers])
        print(f"{label}: least cosine with Ember {least:.5f}", file=sys.stderr)
        if least < 0.97:
            raise RuntimeError(f"{label} computed something else than Ember: cosine {least}")


def _shares(lines: dict[str, dict[str, Any]], setting: Setting) -> list[Ratio]:
    """Ember beside the matrix products of the same rows in the same processes."""
    own = f", {setting.threads} processes of 1 thread" if setting.threads > 1 else ""
    found = [ratio(f"{EMBER}{own} / {CEILING}", lines[EMBER + own], lines[CEILING + own], 0.85)]
    if own:
        found.append(ratio(f"{EMBER} / {CEILING}", lines[EMBER], lines[CEILING], None))
    return found


def _against(lines: dict[str, dict[str, Any]], wanted: Sequence[tuple[str, float | None]]) -> list[Ratio]:
    ours = next((label for label in lines if label.startswith(f"{EMBER}, ")), EMBER)
    alone = ours == EMBER
    return [
        ratio(f"{ours} / {label}", lines[ours], lines[label], w, cpu=alone) for label, w in wanted if label in lines
    ]


def _cosine(ours: Any, theirs: Any) -> float:
    products = (ours * theirs).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(theirs, axis=-1)
    return float(products.min())
