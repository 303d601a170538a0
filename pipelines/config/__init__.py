"""Run configurations: one YAML file is one run, or a sweep of runs over several models."""

from pipelines.config.hooks import CaptureConfig, HooksConfig
from pipelines.config.identity import canonical_json, config_sha256, dump, identity, resolved
from pipelines.config.loading import load_config, load_configs
from pipelines.config.models import RunConfig

__all__ = [
    "CaptureConfig",
    "HooksConfig",
    "RunConfig",
    "canonical_json",
    "config_sha256",
    "dump",
    "identity",
    "load_config",
    "load_configs",
    "resolved",
]
