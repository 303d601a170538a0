"""Run configurations: one YAML file is one run, or a sweep of runs over several models."""

from pipelines.config.models import CaptureConfig, RunConfig

__all__ = ["CaptureConfig", "RunConfig"]
