"""What a hook is told: four frozen contexts. No token buffers, weights, caches or scratch, no other metadata."""

from dataclasses import dataclass
from enum import StrEnum

from ember.card import ModelCard


class ModelFamily(StrEnum):
    """Families of models, by the name in `general.architecture`."""

    GPT2 = "gpt2"
    LLAMA = "llama"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"
    GEMMA3 = "gemma3"
    GEMMA4 = "gemma4"


class ExecutionPhase(StrEnum):
    """What an evaluation is: the whole prompt, or one generated token."""

    PREFILL = "prefill"
    DECODE = "decode"


class TracingState(StrEnum):
    """Whether a trace is being written."""

    DISABLED = "disabled"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True)
class ModelContext:
    """The model that runs."""

    family: ModelFamily
    identifier: str | None
    """The file's own name for the model, where it has one."""
    architecture: str
    n_layers: int
    hidden_size: int


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """One evaluation of the model."""

    model: ModelContext
    phase: ExecutionPhase
    start_position: int
    """Absolute position of the first token that the evaluation is fed."""
    input_token_count: int
    sequence_length: int
    """start_position + input_token_count."""
    tracing: TracingState

    def token_position(self) -> int | None:
        """Absolute position of the token, where a single one is evaluated; else None."""
        return self.start_position if self.input_token_count == 1 else None


@dataclass(frozen=True, slots=True)
class LayerContext:
    """One layer of an evaluation."""

    execution: ExecutionContext
    layer: int
    """From 0, in execution order."""


@dataclass(frozen=True, slots=True)
class GenerationContext:
    """A generation that is complete."""

    model: ModelContext
    prompt_token_count: int
    generated_token_count: int
    decode_evaluation_count: int
    """One less than the tokens generated, since the last is never fed; 0 where none was generated."""
    tracing: TracingState


def context_of(card: ModelCard) -> ModelContext:
    """Return what experiments are told about the model of `card`."""
    family = ModelFamily(card.architecture)
    return ModelContext(family, card.name, card.architecture, card.n_layers, card.hidden_size)
