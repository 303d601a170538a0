"""The lifecycle of one prompt's experiments: which hook is called when, and what a failure ends."""

from collections.abc import Callable, Sequence
from typing import Any

from ember.hooks.access import TensorAccess
from ember.hooks.contexts import (
    ExecutionContext,
    ExecutionPhase,
    GenerationContext,
    LayerContext,
    ModelContext,
    TracingState,
)
from ember.hooks.experiment import Experiment, ExperimentFailure, words_of
from ember.work import Floats


class Runner:
    """Calls the hooks of the experiments of one prompt, in their order; after a failure it calls nothing."""

    def __init__(self, experiments: Sequence[Experiment], model: ModelContext, tracing: TracingState) -> None:
        self._experiments = tuple(experiments)
        # what an experiment says of itself when it is given holds to its end: captures beside it were judged by it
        self._mutable = tuple(one.mutates for one in experiments)
        self._model, self._tracing = model, tracing
        self._execution: ExecutionContext | None = None
        self.failure: ExperimentFailure | None = None
        """Why the prompt ended, if a hook failed."""

    def load(self) -> None:
        """Tell every experiment which model runs."""
        for one in self._experiments:
            self._call(one, "on_model_loaded", self._model)

    def prefill(self, tokens: int) -> None:
        """Begin the evaluation of the prompt."""
        context = self._begin(ExecutionPhase.PREFILL, 0, tokens)
        for one in self._experiments:
            self._call(one, "before_prefill", context)

    def decode(self, position: int) -> None:
        """Begin the evaluation of one generated token."""
        self._begin(ExecutionPhase.DECODE, position, 1)

    def _begin(self, phase: ExecutionPhase, start: int, count: int) -> ExecutionContext:
        self._execution = ExecutionContext(self._model, phase, start, count, start + count, self._tracing)
        return self._execution

    def show(self, site: str, layer: int, tensor: Floats) -> None:
        """Show a site's tensor [rows, columns], the prompt's own rows, to every experiment; layer -1: no layer."""
        assert self._execution is not None, "an evaluation has begun"
        context = self._execution if layer < 0 else LayerContext(self._execution, layer)
        for one, mutable in zip(self._experiments, self._mutable, strict=True):
            if self.failure is None:
                access = TensorAccess(tensor, mutable=mutable)
                self._call(one, site, context, access)
                access.close()

    def complete(self, prompt_tokens: int, generated: int) -> None:
        """Tell every experiment that the prompt is done."""
        context = GenerationContext(self._model, prompt_tokens, generated, max(0, generated - 1), self._tracing)
        for one in self._experiments:
            self._call(one, "on_generation_complete", context)

    def results(self) -> list[tuple[str, Any]]:
        """Name and findings of every experiment that has some; none where one fails to say."""
        found = [(one.name, self._call(one, "results")) for one in self._experiments]
        return [] if self.failure is not None else [(name, result) for name, result in found if result is not None]

    def _call(self, one: Experiment, hook: str, *given: Any) -> Any:
        """Call a hook with its context and what else it takes; once something failed, call nothing."""
        if self.failure is not None:
            return None
        try:
            method: Callable[..., Any] = getattr(one, hook)
            return method(*given)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # asyncio's cancellation and pytest.fail are no Exception, but failures
            self._fail(one, hook, given[0] if given else None, error)
            return None

    def _fail(self, one: Experiment, hook: str, context: Any, error: BaseException) -> None:
        layer = context.layer if isinstance(context, LayerContext) else None
        execution = context.execution if isinstance(context, LayerContext) else context
        phase = execution.phase if isinstance(execution, ExecutionContext) else None
        self.failure = ExperimentFailure(one.name, hook, phase, layer, words_of(error) or type(error).__name__)
        self.failure.__cause__ = error
