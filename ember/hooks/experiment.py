"""The contract of an experiment: nine methods, each doing nothing unless written. Experimental: it may change."""

import inspect
from typing import Any, Final

import numpy as np

from ember.errors import EmberError, InputError
from ember.hooks.access import TensorAccess
from ember.hooks.contexts import ExecutionContext, ExecutionPhase, GenerationContext, LayerContext, ModelContext


class Experiment:
    """Watches or changes one prompt's evaluation. Only `name` is required.

    Methods run synchronously and in a fixed order: on_model_loaded once, before_prefill once, the tensor hooks of one
    prefill, those of every decode evaluation, on_generation_complete once. An exception ends the prompt: it arrives as
    ExperimentFailure, and no later hook is called. One instance belongs to one prompt.
    """

    name: str
    mutates: bool = True
    """False: the experiment only looks, and cannot change a value."""

    def check_model(self, ctx: ModelContext) -> None:
        """Raise where the experiment cannot run on this model.

        Called where an experiment is named by text (command line, configuration) before anything runs, on an instance
        that is then dropped: a plan with an experiment that fits no prompt is refused instead of failing every prompt.
        """

    def on_model_loaded(self, ctx: ModelContext) -> None:
        """Called once, before anything runs."""

    def before_prefill(self, ctx: ExecutionContext) -> None:
        """Called once, before the prompt is evaluated."""

    def before_layer(self, ctx: LayerContext, hidden: TensorAccess) -> None:
        """Hidden state entering a layer, [tokens, hidden]."""

    def after_attention(self, ctx: LayerContext, contribution: TensorAccess) -> None:
        """Attention's contribution before its residual addition, [tokens, hidden]."""

    def after_mlp(self, ctx: LayerContext, contribution: TensorAccess) -> None:
        """The MLP's contribution before its residual addition, [tokens, hidden]."""

    def after_layer(self, ctx: LayerContext, hidden: TensorAccess) -> None:
        """Hidden state leaving a layer, [tokens, hidden]."""

    def before_logits(self, ctx: ExecutionContext, hidden: TensorAccess) -> None:
        """Last token's hidden state after the final norm, [1, hidden]."""

    def after_logits(self, ctx: ExecutionContext, logits: TensorAccess) -> None:
        """Logits from which the next token is chosen, after the family's softcap, [1, vocabulary]."""

    def on_generation_complete(self, ctx: GenerationContext) -> None:
        """Called once, when the prompt is done without a failure."""

    def results(self) -> Any:
        """What the experiment found, as plain data for JSON; None: nothing."""
        return None


HOOKS: Final = tuple(
    name for name in vars(Experiment) if not name.startswith("_") and callable(getattr(Experiment, name))
)


class ExperimentFailure(EmberError):
    """A hook raised; `__cause__` is what it raised."""

    def __init__(self, experiment: str, hook: str, phase: ExecutionPhase | None, layer: int | None, why: str) -> None:
        self.experiment, self.hook, self.phase, self.layer, self.why = experiment, hook, phase, layer, why
        known = [f"phase={phase}"] if phase is not None else []
        known += [f"layer={layer}"] if layer is not None else []
        place = f" ({', '.join(known)})" if known else ""
        super().__init__(f"experiment {experiment!r} failed in {hook}{place}: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        # made anew from its parts, since the message alone does not make one
        return type(self), (self.experiment, self.hook, self.phase, self.layer, self.why)


def check_experiment(experiment: object) -> Experiment:
    """Return what was given as an experiment.

    Raises InputError for anything else, for one without a name that can be written, for a `mutates` that is neither
    true nor false, and for methods of which nothing would run when they are called.
    """
    if not isinstance(experiment, Experiment):
        raise InputError(f"found {type(experiment).__name__}, expected an ember.hooks.Experiment")
    name = getattr(experiment, "name", None)
    if not isinstance(name, str) or not name or not _can_be_written(name):
        raise InputError(f"{type(experiment).__name__}.name: found {name!r}, expected a text that names the experiment")
    if not isinstance(experiment.mutates, bool | np.bool_):
        raise InputError(f"experiment {name!r}: mutates is {experiment.mutates!r}, expected True or False")
    for hook in HOOKS:
        method = getattr(type(experiment), hook)
        if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
            raise InputError(
                f"experiment {name!r}: {hook} is a coroutine or a generator, of which a call runs nothing; "
                "expected a plain method"
            )
    return experiment


def words_of(error: BaseException) -> str:
    """Return what an exception says, as text that can be written; empty where it fails to say anything."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:  # its own code
        return ""


def _can_be_written(text: str) -> bool:
    return text == text.encode("utf-8", "replace").decode()
