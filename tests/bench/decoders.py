"""Contenders that continue prompts: only the steps after the prompts count. Each runs in a process of its own."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

Prompts = list[list[int]]


class EmberDecoder:
    """Ember's lockstep decoding, through the worker's entrance."""

    def __init__(self, model: str, prompts: Prompts, threads: int, *, steps: int, **_: Any) -> None:
        import ember
        from ember.work import UnitWork

        self._model = ember.open(model, threads=threads)
        self._work = UnitWork(tuple(np.array(one, np.int32) for one in prompts), max_tokens=steps)
        self.timed: tuple[float, float] | None = None
        self.about = {"name": "Ember", "version": ember.__version__, "numerics": self._model.numerics()}
        self.about["system"] = self._model.contract([], decodes=True)["phases"]["decode"]["decode_matmul"]

    def run(self) -> NDArray[np.int64]:
        stamps: list[tuple[float, float]] = []

        def listen(_prompt: int, _token: int, ids: list[int]) -> bool:
            if len(ids) > len(stamps):
                stamps.append((time.perf_counter(), time.process_time()))
            return False

        made = self._model.run_unit(self._work, listener=listen).produced
        self.timed = stamps[-1][0] - stamps[0][0], stamps[-1][1] - stamps[0][1]
        return np.array([one.token_ids for one in made], np.int64)


class LlamaCppDecoder:
    """llama.cpp with one sequence for each prompt."""

    def __init__(
        self, model: str, prompts: Prompts, threads: int, *, steps: int, variant: dict[str, Any], **_: Any
    ) -> None:
        import llama_cpp

        from tests.bench.llama_cpp import Decoder

        room = sum(map(len, prompts)) + steps * len(prompts)
        self._decoder = Decoder(model, len(prompts), room, threads=threads, flash=variant["flash"])
        self._prompts, self._steps = prompts, steps
        self.about = {"name": "llama.cpp", "version": llama_cpp.__version__, "settings": variant}

    @property
    def timed(self) -> tuple[float, float] | None:
        return self._decoder.timed

    def run(self) -> NDArray[np.int64]:
        return self._decoder.greedy(self._prompts, self._steps)
