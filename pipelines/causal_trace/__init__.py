"""Causal tracing: which state, at which layer and token, carries what makes one answer likely and not another.

For pairs of prompts that differ in one thing, a state of the clean prompt is put back into the corrupt one, one layer
and token at a time, and the answer is scored again (`pipelines.causal_trace.tracing`).

    summary = run_trace("configs/causal_trace.yaml")
"""

from pipelines.causal_trace.config import TraceConfig, load_trace
from pipelines.causal_trace.summary import TraceSummary
from pipelines.causal_trace.tracing import run_trace

__all__ = ["TraceConfig", "TraceSummary", "load_trace", "run_trace"]
