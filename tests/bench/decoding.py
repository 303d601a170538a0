"""Rows about greedy decoding: 64 prompts in lockstep, and one alone."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.bench.rounds import Contender, fastest, measure
from tests.bench.setting import Row, Setting, as_line, ratio
from tests.bench.states import encoded
from tests.bench.workload import texts

LOCKSTEP = 64
EMBER, LLAMA = "Ember", "llama.cpp"


def lockstep_row(setting: Setting) -> Row:
    """Many prompts at once: in one process, and in several of one thread with their share of the prompts."""
    return _row(setting, "decode-lockstep", min(LOCKSTEP, setting.prompts), 2.0)


def single_row(setting: Setting) -> Row:
    """One prompt, weights left packed."""
    return _row(setting, "decode-single", 1, 1.0)


def _row(setting: Setting, name: str, count: int, wanted: float) -> Row:
    prompts = encoded(setting, texts(count))
    contenders = _ember(setting, prompts) + _peers(setting, prompts)
    timings = measure(contenders, setting.rounds)
    agreement = agreeing(contenders)
    evaluations = setting.steps - 1  # the first token comes with the prompt
    lines = {label: as_line(timing, count * evaluations) for label, timing in timings.items()}
    title = (
        f"Greedy decoding of {count} prompt{'s in lockstep' * (count > 1)}, {setting.steps} tokens each "
        f"({evaluations} evaluations are timed, the prompts' own is not), {setting.model.name}"
    )
    split = f"{EMBER}, {setting.threads} processes of 1 thread"
    pairs = [(EMBER, LLAMA), (split, LLAMA), (f"{EMBER}, 1 thread", f"{LLAMA}, 1 thread")]
    ratios = [
        ratio(
            f"{ours} / {theirs}", lines[ours], lines[theirs], wanted, cpu=setting.threads == 1 or "1 thread" in theirs
        )
        for ours, theirs in pairs
        if ours in lines and theirs in lines
    ]
    return Row(name, title, lines, ratios, {"same tokens as Ember until they part, share of all": agreement})


def _ember(setting: Setting, prompts: list[list[int]]) -> list[Contender]:
    request = {"peer": "ember decoding"}
    found = [_contender(setting, EMBER, sys.executable, prompts, **request)]
    if setting.threads > 1 and len(prompts) > 1:
        label = f"{EMBER}, {setting.threads} processes of 1 thread"
        found.append(_contender(setting, label, sys.executable, prompts, setting.threads, threads=1, **request))
    elif setting.threads > 1:
        found.append(_contender(setting, f"{EMBER}, 1 thread", sys.executable, prompts, threads=1, **request))
    return found


def _peers(setting: Setting, prompts: list[list[int]]) -> list[Contender]:
    if not setting.reference:
        return []
    request = {"peer": "llama.cpp decoding"}
    tried = [
        _contender(setting, f"{LLAMA}, flash {flash}", setting.reference, prompts, variant={"flash": flash}, **request)
        for flash in (False, True)
    ]
    request["variant"] = fastest(tried).request["variant"]
    found = [_contender(setting, LLAMA, setting.reference, prompts, **request)]
    if setting.threads > 1 and len(prompts) == 1:
        found.append(_contender(setting, f"{LLAMA}, 1 thread", setting.reference, prompts, threads=1, **request))
    return found


def _contender(
    setting: Setting, label: str, python: str, prompts: list[list[int]], parts: int = 1, **request: Any
) -> Contender:
    kept = str(setting.folder / f"ids-{len(prompts)}-{abs(hash(label))}.npy") if parts == 1 else None
    common = {"model": str(setting.model.resolve()), "prompts": prompts, "steps": setting.steps, "keep": kept}
    return Contender(label, python, {"threads": setting.threads, **common, **request}, parts)


def agreeing(contenders: Sequence[Contender]) -> dict[str, float]:
    """Which share of the tokens is Ember's, counted up to the first that differs: llama.cpp rounds activations."""
    made = {one.label: np.load(one.request["keep"]) for one in contenders if one.parts == 1}
    ours = made.pop(EMBER)
    found = {label: float(np.cumprod(ours == theirs, axis=1).mean()) for label, theirs in made.items()}
    for label, share in found.items():
        print(f"{label}: {share:.0%} of Ember's tokens", file=sys.stderr)
        if share < 0.25:
            raise RuntimeError(f"{label} made other tokens than Ember: only {share:.0%} before they part")
    return found
