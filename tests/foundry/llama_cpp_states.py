"""llama.cpp's states for the foundry and the benchmarks: Ember's recorder, and many prompts in one batch."""

from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as native

from ember.validation.llama_cpp import LAYER_OUT, Continuation
from ember.validation.llama_cpp import LlamaCpp as Recorder
from ember.work import Floats

__all__ = ["Continuation", "LlamaCpp"]


class LlamaCpp(Recorder):
    """One loaded model and context; a context manager."""

    def last_rows(self, prompts: Sequence[Sequence[int]], *, common: int = 0) -> Floats:
        """Evaluate many prompts in one batch and give `l_out` at their last tokens: [prompts, layers, width].

        The evaluation ends at the last layer's output: no logits are computed. The first `common` tokens, the same in
        all prompts, are evaluated once and lent to every sequence.
        """
        names = [f"{LAYER_OUT}-{layer}" for layer in range(self.n_layers)]
        rests = [prompt[common:] for prompt in prompts]
        ends = np.cumsum([len(rest) for rest in rests]) - 1
        self.clear()
        if common:
            self.evaluate([(prompts[0][:common], 0, 0, frozenset())])
            for sequence in range(1, len(prompts)):
                native.llama_memory_seq_cp(native.llama_get_memory(self._context), 0, sequence, -1, -1)
        self.wanted, self._stop_after = frozenset(names), names[-1]
        self.evaluate([(rest, common, n, frozenset([len(rest) - 1])) for n, rest in enumerate(rests)])
        self.wanted, self._stop_after = frozenset(), None
        return np.stack([self._chosen(name, int(ends[-1]) + 1, ends.tolist()) for name in names], axis=1)
