from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.errors import ConfigError

MINIMAL = """\
schema: ember.pipeline/v1
name: small
model: {path: builtin:sarf-nano}
stimuli: {items: [one, two]}
hooks: {capture: [{site: after_layer}]}
output: {dir: outputs/small}
"""


@pytest.fixture
def minimal() -> str:
    """The shortest config that means something."""
    return MINIMAL


@pytest.fixture
def write(tmp_path):
    """Write a config and return its path."""

    def write_config(text: str, name: str = "x.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_config


@pytest.fixture
def load(write):
    """Load a config from its text."""
    return lambda text: load_config(write(text))


@pytest.fixture
def changed(minimal):
    """The minimal config with one of its lines replaced, or others added at its end."""

    def change(key: str, line: str) -> str:
        lines = minimal.splitlines()
        if not any(old.startswith(f"{key}:") for old in lines):
            return "\n".join([*lines, line]) + "\n"
        return "\n".join(line if old.startswith(f"{key}:") else old for old in lines) + "\n"

    return change


@pytest.fixture
def problems(load):
    """The lines of the refusal of a config, without the folder in front."""

    def refused(text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text)
        assert caught.value.exit_status == 2
        return [line[line.index("x.yaml") :] for line in str(caught.value).splitlines()]

    return refused
