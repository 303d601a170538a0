"""Commands of `ember`, called in this process; with `functools.partial` each test file names its own."""

import json
from typing import Any

import pytest

from ember.cli.main import cli, run


def call(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str, command: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of `ember COMMAND`."""
    status = run(lambda: cli.main([command, *arguments], standalone_mode=False))
    out, err = capfdbinary.readouterr()
    return status, out.decode(), err.decode()


def record(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str, command: str) -> dict[str, Any]:
    """What `ember COMMAND --json` prints where all goes well and nothing is to be noted."""
    status, out, err = call(capfdbinary, *arguments, "--json", command=command)
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found
