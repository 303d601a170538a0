"""2,200 random strings: ids are llama.cpp's for every algorithm, on made vocabularies and on real ones."""

import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ember.tokenizer import Encoding, Tokenizer, load_tokenizer
from ember.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.foundry.token_digests import digests
from tests.foundry.token_strings import make_dense_strings, make_strings
from tests.foundry.tokenizer_files import VocabularyFile, dense, tiny, tiny_gemma4, tiny_sentencepiece

DATA = Path(__file__).parent / "data"
PRES = ("gpt-2", "llama-bpe", "smollm", "qwen2")
METASPACE = ("llama", "llama-bare", "gemma4")
CANONICAL = sorted({kind.name for kind in PRE_TOKENIZERS.values()})
Tiles = Callable[[Encoding, str], bool]
Make = Callable[[str], Tokenizer]


@dataclass(frozen=True, slots=True)
class Strings:
    """The strings, and digests of llama.cpp's ids of them for each vocabulary."""

    texts: list[str]
    digests: dict[str, Any]

    def different(self, tokenizer: Tokenizer, name: str) -> tuple[list[str], list[str]]:
        """Return the strings whose ids differ when taken literally, and with control tokens parsed."""
        literal = self.digests[f"{name}.literal"]
        parsed = literal.copy()
        parsed[self.digests[f"{name}.parsed_rows"]] = self.digests[f"{name}.parsed"]
        return (
            list(self._different(tokenizer, literal, parse_special=False)),
            list(self._different(tokenizer, parsed, parse_special=True)),
        )

    def holding(self, spelling: str) -> list[str]:
        """Return the strings that hold a spelling."""
        return [text for text in self.texts if spelling in text]

    def _different(self, tokenizer: Tokenizer, expected: Any, *, parse_special: bool) -> Iterator[str]:
        found = tokenizer.encode_ids(self.texts, add_special=False, parse_special=parse_special)
        return (self.texts[at] for at in np.flatnonzero(digests(row.tolist() for row in found) != expected))


@pytest.fixture(scope="module")
def strings() -> Strings:
    with np.load(DATA / "digests.npz") as stored:
        held = {name: stored[name] for name in stored.files}
    return Strings(json.loads(lzma.decompress((DATA / "strings.json.xz").read_bytes())), held)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, merges: list[str], metaspace_merges: list[str]) -> Make:
    """The tokenizer of a made vocabulary, by name; each is made once."""
    folder = tmp_path_factory.mktemp("made")
    files: dict[str, Callable[[], VocabularyFile]] = {
        "llama": lambda: tiny_sentencepiece(metaspace_merges, prefix=True),
        "llama-bare": lambda: tiny_sentencepiece(metaspace_merges, prefix=False),
        "gemma4": lambda: tiny_gemma4(metaspace_merges),
    }
    done: dict[str, Tokenizer] = {}

    def make(name: str) -> Tokenizer:
        if name not in done:
            file = files[name]() if name in files else tiny(merges, name)
            done[name] = load_tokenizer(file.write(folder / f"{name}.gguf"))
        return done[name]

    return make


def test_strings_are_those_that_the_foundry_makes(strings: Strings) -> None:
    arabic = [
        text for text in strings.texts if any("\u0600" <= c <= "\u08ff" or "\ufb50" <= c <= "\ufefc" for c in text)
    ]
    marked = [text for text in strings.texts if any("\u064b" <= c <= "\u0652" for c in text)]

    assert strings.texts == make_strings()
    assert len(strings.texts) >= 2000
    assert len(arabic) * 2 >= len(strings.texts)
    assert len(marked) >= 700


@pytest.mark.parametrize("name", [*METASPACE, *PRES])
def test_made_vocabularies(strings: Strings, made: Make, name: str) -> None:
    assert strings.different(made(name), f"tiny-{name}") == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-spm", "gemma-4"])
def test_real_vocabularies_whose_space_is_spelt(strings: Strings, shared: Path, name: str) -> None:
    tokenizer = load_tokenizer(shared / "vocab" / f"ggml-vocab-{name}.gguf")
    # T10: llama.cpp makes `<|tool_response>` a control token by its name; no string here holds it.
    assert strings.different(tokenizer, f"real-{name.replace('gemma-4', 'gemma4')}") == ([], [])
    assert strings.holding("<|tool_response>") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2"])
def test_real_byte_level_vocabularies(strings: Strings, shared: Path, name: str) -> None:
    tokenizer = load_tokenizer(shared / "vocab" / f"ggml-vocab-{name}.gguf")
    # T10: in qwen2's vocabulary `</s>` is an ordinary entry, which llama.cpp makes a control token because of its name.
    by_name = strings.holding("</s>") if name == "qwen2" else []
    assert strings.different(tokenizer, f"real-{name}") == ([], by_name)


@pytest.mark.realmodel
def test_gemma3(strings: Strings, gemma3: Tokenizer) -> None:
    """T10: Gemma 3's `</s>` is a user-defined token, of HTML; llama.cpp makes it a control token for its name."""
    assert strings.different(gemma3, "real-gemma3") == (strings.holding("</s>"), [])


@pytest.mark.parametrize("pre", CANONICAL)
def test_every_way_to_cut_words_where_nearly_every_cut_shows(strings: Strings, tmp_path: Path, pre: str) -> None:
    tokenizer = load_tokenizer(dense(pre).write(tmp_path / "dense.gguf"))
    texts = make_dense_strings()
    found = digests(row.tolist() for row in tokenizer.encode_ids(texts, add_special=False))

    assert [texts[at] for at in np.flatnonzero(found != strings.digests[f"dense-{pre}"])] == []


def test_the_dense_strings_tell_all_ways_apart(strings: Strings) -> None:
    rows = {pre: strings.digests[f"dense-{pre}"].tobytes() for pre in CANONICAL}
    assert len(set(rows.values())) == len(CANONICAL) == 9


@pytest.mark.parametrize("name", METASPACE)
def test_strings_are_tiled_and_come_back(strings: Strings, made: Make, tiles: Tiles, name: str) -> None:
    """A text's own U+2581 comes back as a space, in llama.cpp too."""
    tokenizer = made(name)
    for text in strings.texts:
        encoding = tokenizer.encode(text, add_special=False, parse_special=True)
        assert tiles(encoding, text)
        assert tokenizer.decode(encoding.ids, whole=True) == text.replace("▁", " ")


def test_llama_cpp_loses_more_on_the_way_back(read_json: Callable[[str], Any], strings: Strings) -> None:
    """It leaves the spaces in that stand after a spelt-out token, and for Gemma 4 takes one away before `?!.,`."""
    back = read_json("facts")["metaspace_comes_back"]
    assert back["llama-bare"] == len(strings.texts)
    assert back["llama"] < back["gemma4"] < len(strings.texts)


def test_rule_for_bos_is_llama_cpp_s(read_json: Callable[[str], Any], made: Make) -> None:
    assert read_json("facts")["metaspace_adds_bos"] == {name: made(name).add_bos for name in METASPACE}
