"""Experiments for tests, which note what they are shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ember.hooks import Experiment, TensorAccess
from ember.sites import SITES

Floats = NDArray[np.float32]
PER_LAYER = tuple(name for name, site in SITES.items() if site.per_layer)
HEAD = ("before_logits", "after_logits")
TENSOR_HOOKS = (*PER_LAYER, *HEAD)
Act = Callable[[str, Any, TensorAccess], None]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a hook: its context, and a copy of the tensor it was shown."""

    hook: str
    context: Any
    values: Floats | None = None

    @property
    def layer(self) -> int:
        return getattr(self.context, "layer", -1)

    @property
    def phase(self) -> str:
        return str(getattr(self.context, "execution", self.context).phase)


class Watcher(Experiment):
    """Notes every call, then does what it was told to do at tensor hooks; the journal may be shared by several."""

    def __init__(
        self, name: str = "watcher", act: Act | None = None, journal: list[tuple[str, str]] | None = None
    ) -> None:
        self.name, self._act = name, act
        self.mutates = act is not None
        self.calls: list[Call] = []
        self.journal = [] if journal is None else journal

    def note(self, hook: str, context: Any, tensor: TensorAccess | None = None) -> None:
        self.journal.append((self.name, hook))
        self.calls.append(Call(hook, context, None if tensor is None else tensor.values().copy()))
        if tensor is not None and self._act is not None:
            self._act(hook, context, tensor)

    def at(self, hook: str, phase: str | None = None) -> list[Call]:
        """The calls of one hook, in one phase or in all."""
        return [call for call in self.calls if call.hook == hook and phase in (None, call.phase)]

    def results(self) -> int:
        return len(self.calls)


class Nothing(Experiment):
    """Every hook is the contract's own, which does nothing; it may change values and does not."""

    name = "nothing"


class Failing(Watcher):
    """Fails at the n-th call (from 0) of a hook."""

    def __init__(self, hook: str, at: int = 0, error: BaseException | None = None, **options: Any) -> None:
        super().__init__(**{"name": "my-experiment", **options})
        self._hook, self._left = hook, at
        self.error = ValueError("expected a finite activation") if error is None else error

    def note(self, hook: str, context: Any, tensor: TensorAccess | None = None) -> None:
        super().note(hook, context, tensor)
        if hook == self._hook:
            self._left -= 1
            if self._left < 0:
                raise self.error


def _noting(hook: str) -> Callable[..., None]:
    def method(self: Watcher, context: Any, *tensor: TensorAccess) -> None:
        self.note(hook, context, *tensor)

    return method


for _hook in ("on_model_loaded", "before_prefill", *TENSOR_HOOKS, "on_generation_complete"):
    setattr(Watcher, _hook, _noting(_hook))
