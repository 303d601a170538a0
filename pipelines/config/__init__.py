"""Run configurations: one YAML file is one run, or a sweep of runs over several models."""

from pipelines.config.identity import canonical_json, config_sha256, dump, identity, resolved
from pipelines.config.loading import load_config, load_configs
from pipelines.config.models import CaptureConfig, RunConfig

__all__ = [
    "CaptureConfig",
    "RunConfig",
    "canonical_json",
    "config_sha256",
    "dump",
    "identity",
    "load_config",
    "load_configs",
    "resolved",
]
