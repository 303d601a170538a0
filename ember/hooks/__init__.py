"""Hooks into a running model: an Experiment watches or changes what is computed. Experimental: may change."""

from ember.hooks.access import TensorAccess, TensorDType
from ember.hooks.contexts import (
    ExecutionContext,
    ExecutionPhase,
    GenerationContext,
    LayerContext,
    ModelContext,
    ModelFamily,
    TracingState,
)
from ember.hooks.experiment import Experiment, ExperimentFailure

__all__ = [
    "ExecutionContext",
    "ExecutionPhase",
    "Experiment",
    "ExperimentFailure",
    "GenerationContext",
    "LayerContext",
    "ModelContext",
    "ModelFamily",
    "TensorAccess",
    "TensorDType",
    "TracingState",
]
