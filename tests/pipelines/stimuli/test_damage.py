"""Files with bytes changed, cut out or put in give stimuli or one ConfigError, never anything else."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pipelines.errors import ConfigError
from pipelines.stimuli import build_section
from pipelines.stimuli.config import StimuliConfig

SECTION = TypeAdapter(StimuliConfig)
WORD = ["1", "كتب", "كَتَب", "VERB", "_", "Number=Sing", "0", "root", "_", "Root=ktb"]
TREEBANK = "# sent_id = a\n# text = كتب\n" + "\t".join(WORD) + "\n\n"
SETS = [{"root": "كتب", "pattern": "فاعل", "prompts": {"a": "كاتب"}, "prompt_contracts": {"a": ["root"]}}]
ANALYSES = {"word": "كتب", "analyses": [{"root": "ك.ت.ب"}, {"score": 1, "analysis": {"root": "x"}}]}
FILES = {
    "x.conllu": (TREEBANK, {}),
    "x.json": (json.dumps(SETS, ensure_ascii=False), {}),
    "x.jsonl": (
        json.dumps(ANALYSES, ensure_ascii=False) + "\n",
        {"format": "camel", "analyses": "each", "columns": {"prompt": "word"}},
    ),
    "x.csv": (
        "word,root\nكاتب,كتب\n",
        {"templates": {"t": "{word} {root}"}, "target": "{word}", "reveals": ["word", "root"]},
    ),
}
PIECES = [
    b"",
    b"\t",
    b"\n",
    b'"',
    b"{",
    b"]",
    b"\\ud800",
    b"_",
    b"1-2",
    b"2.1",
    b"\r",
    "ك".encode(),
    b"\x00",
    b"1e999",
    b"\xff",
]
EDITS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 8), st.sampled_from(PIECES)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_sound_before(build, put, name):
    text, section = FILES[name]
    assert build(file=put(name, text), **section).stimuli


@given(st.sampled_from(sorted(FILES)), EDITS)
def test_damaged_files_are_read_or_refused(tmp_path_factory, name, edits):
    text, section = FILES[name]
    data = bytearray(text.encode())
    for at, cut, piece in edits:
        start = at % (len(data) + 1)
        data[start : start + cut] = piece
    folder = tmp_path_factory.mktemp("damage")
    (folder / name).write_bytes(data)
    with contextlib.suppress(ConfigError):
        made = build_section(SECTION.validate_python({"file": name} | section), folder)
        assert made.stimuli
        "".join(s.prompt for s in made.stimuli).encode()
