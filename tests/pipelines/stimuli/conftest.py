import pytest
from pydantic import TypeAdapter

from pipelines.errors import ConfigError
from pipelines.stimuli import build_section
from pipelines.stimuli.config import StimuliConfig

SECTION = TypeAdapter(StimuliConfig)


@pytest.fixture
def build(tmp_path):
    """Build the stimuli of a section given as plain values; files lie in tmp_path."""

    def build_from(of_tokenizer="none", **section):
        return build_section(SECTION.validate_python(section), tmp_path, normalize=of_tokenizer)

    return build_from


@pytest.fixture
def refused(build):
    """The message with which a section is refused."""

    def message(**section) -> str:
        with pytest.raises(ConfigError) as caught:
            build(**section)
        assert caught.value.exit_status == 2
        return str(caught.value)

    return message


@pytest.fixture
def put(tmp_path):
    """Write a file of stimuli and return its name."""

    def write(name: str, content: str | bytes) -> str:
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        return name

    return write
