"""Record llama.cpp's token ids: `python -m tests.foundry.record_tokens --shared ../shared --smollm2 FILE`.

Needs the extra `reference`. Writes tests/ember/tokenizer/data: `texts.json`; `merges.json`, of the tiny vocabulary;
`<vocabulary>-<pre>.npz` with the ids of every text, taken literally and with special tokens parsed, for the tiny
vocabulary (which tests can make) and for real ones (which they need a file for); `facts.json` with llama.cpp's rule for
BOS, and whether each alias of a `pre` gives the ids of the one that it stands for; and, with `--classes` (two
minutes), `classes.json`: which code points llama.cpp takes for letters, numbers and white space.
"""

import argparse
import ctypes
import json
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ember.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.foundry.token_texts import make_texts
from tests.foundry.tokenizer_files import USER_DEFINED, byte_level, tiny
from tests.foundry.vocab import byte_characters

DATA = Path(__file__).parents[1] / "ember" / "tokenizer" / "data"
PRES = ("gpt-2", "llama-bpe", "smollm", "qwen2")
N_MERGES = 700
SURROGATES = range(0xD800, 0xE000)
SEPARATOR = "<SEP>"
BEFORE = ("x", "1", "!")
"""A character that joins with a letter, a number, anything else."""


class LlamaCpp:
    """A vocabulary in llama.cpp."""

    def __init__(self, path: Path) -> None:
        self._llama = llama_cpp.Llama(model_path=str(path), vocab_only=True, verbose=False)

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        found: list[int] = self._llama.tokenize(text.encode(), add_bos=False, special=special)
        return found

    def adds_bos(self) -> bool:
        vocabulary = llama_cpp.llama_model_get_vocab(self._llama._model.model)
        return bool(llama_cpp.llama_vocab_get_add_bos(vocabulary))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--smollm2", type=Path, required=True)
    parser.add_argument("--classes", action="store_true")
    arguments = parser.parse_args()
    llama_cpp.llama_log_set(_silence, ctypes.c_void_p(0))
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
        _write("facts.json", _facts(merges, texts, scratch))
        if arguments.classes:
            _write("classes.json", _classes(scratch))


@llama_cpp.llama_log_callback
def _silence(level: int, text: bytes, user_data: Any) -> None:
    """Drop what llama.cpp logs."""


def _write(name: str, content: Any) -> None:
    (DATA / name).write_text(json.dumps(content, indent=0, sort_keys=True) + "\n")


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


def _facts(merges: list[str], texts: list[str], scratch: Path) -> dict[str, Any]:
    canonical = {pre: [LlamaCpp(scratch / f"{pre}.gguf").ids(text) for text in texts] for pre in PRES}
    facts = {"llama_cpp_python": llama_cpp.__version__, "adds_bos": {}, "aliases": {}}
    for name, kind in PRE_TOKENIZERS.items():
        llama = LlamaCpp(tiny(merges, name).write(scratch / "alias.gguf"))
        facts["adds_bos"][name] = llama.adds_bos()
        facts["aliases"][name] = kind.name if [llama.ids(text) for text in texts] == canonical[kind.name] else None
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
