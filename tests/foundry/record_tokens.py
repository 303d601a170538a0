"""Record llama.cpp's token ids: `python -m tests.foundry.record_tokens --shared ../shared --smollm2 F --gemma3 F`.

Needs the extra `reference`. Writes tests/ember/tokenizer/data: `texts.json`; `merges.json`, of the tiny vocabulary;
`<vocabulary>-<pre>.npz` with the ids of every text, taken literally and with special tokens parsed, for the tiny
vocabulary (which tests can make) and for real ones (which they need a file for); `facts.json` with llama.cpp's rule for
BOS, and whether each alias of a `pre` gives the ids of the one that it stands for; and, with `--classes` (two
minutes), `classes.json`: which code points llama.cpp takes for letters, numbers and white space.

Of the many random strings (`strings.json.xz`) `digests.npz` has a digest of each one's ids, for every algorithm and
every way to cut words.
"""

import argparse
import json
import lzma
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ember.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.foundry.llama_cpp_tokens import LlamaCpp
from tests.foundry.token_digests import digests
from tests.foundry.token_strings import make_dense_strings, make_strings
from tests.foundry.token_texts import make_texts
from tests.foundry.tokenizer_files import (
    USER_DEFINED,
    VocabularyFile,
    byte_level,
    dense,
    gemma4,
    tiny,
    tiny_gemma4,
    tiny_sentencepiece,
)
from tests.foundry.vocab import byte_characters

DATA = Path(__file__).parents[1] / "ember" / "tokenizer" / "data"
PRES = ("gpt-2", "llama-bpe", "smollm", "qwen2")
N_MERGES = 700
N_METASPACE_MERGES = 600
SURROGATES = range(0xD800, 0xE000)
SEPARATOR = "<SEP>"
BEFORE = ("x", "1", "!")
"""A character that joins with a letter, a number, anything else."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--smollm2", type=Path, required=True)
    parser.add_argument("--gemma3", type=Path, required=True)
    parser.add_argument("--classes", action="store_true")
    arguments = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    texts = make_texts()
    merges = _train(texts)
    _write("texts.json", texts)
    _write("merges.json", merges)
    vocabularies = arguments.shared / "vocab"
    real = {pre: vocabularies / f"ggml-vocab-{pre}.gguf" for pre in PRES} | {"smollm": arguments.smollm2}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for pre in PRES:
            _record(f"tiny-{pre}", tiny(merges, pre).write(scratch / f"{pre}.gguf"), texts)
            _record(f"real-{pre}", real[pre], texts)
        strings = make_strings()
        (DATA / "strings.json.xz").write_bytes(lzma.compress(json.dumps(strings, ensure_ascii=False).encode()))
        metaspace = _metaspace_merges(strings)
        real |= {"llama-spm": vocabularies / "ggml-vocab-llama-spm.gguf", "gemma3": arguments.gemma3}
        real["gemma4"] = vocabularies / "ggml-vocab-gemma-4.gguf"
        columns = _digest_columns(strings, real, merges, metaspace, scratch)
        np.savez_compressed(DATA / "digests.npz", **columns)
        _write("facts.json", _facts(scratch) | _metaspace_facts(strings, metaspace, scratch))
        if arguments.classes:
            _write("classes.json", _classes(scratch))


def _write(name: str, content: Any) -> None:
    # Texts hold marks that turn the direction of writing: escaped, they cannot mislead whoever reads the file.
    escaped = name == "texts.json"
    (DATA / name).write_text(json.dumps(content, indent=0, sort_keys=True, ensure_ascii=escaped) + "\n")


def _train(texts: list[str]) -> list[str]:
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + N_MERGES, initial_alphabet=list(byte_characters().values()))
    engine.train_from_iterator(texts, trainer)
    return [" ".join(pair) for pair in json.loads(engine.to_str())["model"]["merges"]]


def _record(name: str, path: Path, texts: list[str]) -> None:
    llama = LlamaCpp(path)
    literal = [llama.ids(text) for text in texts]
    parsed = [llama.ids(text, special=True) for text in texts]
    differ = [index for index, (a, b) in enumerate(zip(literal, parsed, strict=True)) if a != b]
    np.savez_compressed(
        DATA / f"{name}.npz",
        **_columns("literal", literal),
        **_columns("parsed", [parsed[index] for index in differ]),
        parsed_rows=np.array(differ, np.int32),
    )
    print(f"{name}: {len(texts)} texts, {sum(map(len, literal))} tokens, {len(differ)} spell special tokens")


def _columns(name: str, rows: list[list[int]]) -> dict[str, Any]:
    ids = np.fromiter(chain.from_iterable(rows), np.int32)
    return {f"{name}_ids": ids, f"{name}_counts": np.array([len(row) for row in rows], np.int32)}


def _metaspace_merges(strings: list[str]) -> list[str]:
    """Return merges of text whose spaces are `▁`; none makes a newline or a token that is spelt `<...>`.

    They are trained once and kept: the trainer does not give the same twice.
    """
    path = DATA / "metaspace_merges.json"
    if path.exists():
        kept: list[str] = json.loads(path.read_text())
        return kept
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=1600, limit_alphabet=180)
    plain = (string for string in strings if "<" not in string)
    engine.train_from_iterator((line for string in plain for line in string.split("\n")), trainer)
    pairs = json.loads(engine.to_str())["model"]["merges"]
    merges = [" ".join(pair) for pair in pairs][:N_METASPACE_MERGES]
    path.write_text(json.dumps(merges, ensure_ascii=False, indent=0) + "\n")
    return merges


def _digest_columns(
    strings: list[str], real: dict[str, Path], merges: list[str], metaspace: list[str], scratch: Path
) -> dict[str, Any]:
    made: dict[str, VocabularyFile] = {f"tiny-{pre}": tiny(merges, pre) for pre in PRES}
    made |= {
        "tiny-llama": tiny_sentencepiece(metaspace, prefix=True),
        "tiny-llama-bare": tiny_sentencepiece(metaspace, prefix=False),
        "tiny-gemma4": tiny_gemma4(metaspace),
    }
    paths = {name: file.write(scratch / f"{name}.gguf") for name, file in made.items()}
    # SmolLM2 lacks tokens for some bytes, and its file is not at hand in most places: its ids of the texts must do.
    paths |= {f"real-{name}": path for name, path in real.items() if name != "smollm"}
    columns: dict[str, Any] = {}
    for name, path in paths.items():
        llama = LlamaCpp(path)
        literal = digests([llama.ids(string) for string in strings])
        parsed = digests([llama.ids(string, special=True) for string in strings])
        columns[f"{name}.literal"] = literal
        columns[f"{name}.parsed_rows"] = np.flatnonzero(literal != parsed).astype(np.uint16)
        columns[f"{name}.parsed"] = parsed[literal != parsed]
        print(f"{name}: {len(strings)} strings")
    for name in sorted({kind.name for kind in PRE_TOKENIZERS.values()}):
        columns[f"dense-{name}"] = digests(_dense_ids(name, scratch)[0])
    return columns


def _dense_ids(pre: str, scratch: Path) -> tuple[list[list[int]], bool]:
    """Return the ids of the dense strings, and the rule for BOS."""
    llama = LlamaCpp(dense(pre).write(scratch / "dense.gguf"))
    return [llama.ids(text) for text in make_dense_strings()], llama.adds_bos()


def _metaspace_facts(strings: list[str], metaspace: list[str], scratch: Path) -> dict[str, Any]:
    """Record the rule for BOS of the models that have no `pre`, and of how many strings the ids give the text."""
    files = {
        "llama": tiny_sentencepiece(metaspace, prefix=True),
        "llama-bare": tiny_sentencepiece(metaspace, prefix=False),
        "gemma4": gemma4(metaspace).but(add_bos_token=False),
    }
    adds_bos, comes_back = {}, {}
    for name, file in files.items():
        llama = LlamaCpp(file.write(scratch / f"{name}.gguf"))
        adds_bos[name] = llama.adds_bos()
        wanted = [string.replace("▁", " ").encode() for string in strings]
        comes_back[name] = sum(llama.text(llama.ids(one)) == text for one, text in zip(strings, wanted, strict=True))
    return {"metaspace_adds_bos": adds_bos, "metaspace_comes_back": comes_back}


def _facts(scratch: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {"llama_cpp_python": llama_cpp.__version__, "adds_bos": {}, "aliases": {}}
    canonical = {kind.name: _dense_ids(kind.name, scratch)[0] for kind in PRE_TOKENIZERS.values()}
    for name, kind in PRE_TOKENIZERS.items():
        ids, facts["adds_bos"][name] = _dense_ids(name, scratch)
        facts["aliases"][name] = kind.name if ids == canonical[kind.name] else None
    return facts


def _classes(scratch: Path) -> dict[str, list[str]]:
    """Find the class of every code point from what it joins with: `x`, `1` or `!` before it, or none of them."""
    merges = [f"{before} {character}" for before in BEFORE for character in byte_characters().values()]
    file = byte_level(merges, extras=[(SEPARATOR, USER_DEFINED)], words=())
    separator = file.id_of(SEPARATOR)
    llama = LlamaCpp(file.write(scratch / "classes.gguf"))
    found: dict[str, list[int]] = {"letter": [], "number": [], "space": []}
    for points in _blocks():
        ids = llama.ids(SEPARATOR.join(before + chr(point) for point in points for before in BEFORE))
        joined = [len(one) == len(chr(point).encode()) for point, one in _answers(points, ids, separator)]
        for point, (letter, number, other) in zip(points, zip(*[iter(joined)] * 3, strict=True), strict=True):
            kind = "letter" if letter else "number" if number else "" if other else "space"
            if kind:
                found[kind].append(point)
    return {kind: list(_ranges(points)) for kind, points in found.items()}


def _blocks() -> Iterator[list[int]]:
    for start in range(0, 0x110000, 128):
        points = [point for point in range(start, start + 128) if point not in SURROGATES]
        if points:
            yield points


def _answers(points: list[int], ids: list[int], separator: int) -> Iterator[tuple[int, list[int]]]:
    pieces: list[list[int]] = [[]]
    for token in ids:
        if token == separator:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return zip((point for point in points for _ in BEFORE), pieces, strict=True)


def _ranges(points: Iterable[int]) -> Iterator[str]:
    start = last = None
    for point in chain(points, [None]):
        if start is not None and (point is None or last is None or point != last + 1):
            yield f"{start:X}-{last:X}"
            start = None
        if start is None:
            start = point
        last = point


if __name__ == "__main__":
    main()
