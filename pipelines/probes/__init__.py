"""Probes: what of a label can be read from hidden states, next to controls that say how much that means.

pipelines.probes.probe("outputs/roots")          # every label, split and layer that can be probed
pipelines.probes.probe("configs/probe.yaml")
"""

from pipelines.probes.config import ProbeConfig, load_probes, open_plan
from pipelines.probes.summary import ProbeSummary
from pipelines.probes.sweep import probe

__all__ = ["ProbeConfig", "ProbeSummary", "load_probes", "open_plan", "probe"]
