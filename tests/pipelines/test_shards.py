"""Writing parts: layout, order, bytes, and what happens when writing goes wrong."""

import errno
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipelines import placing, shards
from pipelines.content import hash_file
from pipelines.errors import RunError
from pipelines.parts import part_path
from pipelines.rows import SCORE_COLUMNS, GenerationRow, ScoreRow
from tests.foundry.fake_run import CAPTURES, capture_rows, generation_row, make_run, make_samples
from tests.foundry.plain_rows import WRITE, rows_of, write

ROOT = Path(__file__).resolve().parents[2]


def everything_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# --- layout ---------------------------------------------------------------------------------------------------------


def test_row_groups_follow_captures_and_layers(tmp_path: Path) -> None:
    every, last = rows_of(5, layers=(2, 3), name="every"), rows_of(4, layers=(0, 7), name="last", site="after_mlp")
    part = write(tmp_path, every, last)
    file = pq.ParquetFile(tmp_path / part.path)
    groups = [file.read_row_group(i) for i in range(file.num_row_groups)]
    told = [(g["capture"][0].as_py(), g["site"][0].as_py(), g["layer"][0].as_py(), len(g)) for g in groups]
    assert told == [
        ("every", "after_layer", 2, 5),
        ("every", "after_layer", 3, 5),
        ("last", "after_mlp", 0, 4),
        ("last", "after_mlp", 7, 4),
    ]
    assert part.rows == 18
    assert part.path == "activations/part-00000.parquet"
    assert part.bytes == (tmp_path / part.path).stat().st_size
    assert part.content_sha256 == hash_file(tmp_path / part.path)


def test_schema_is_the_documented_one(tmp_path: Path) -> None:
    schema = pq.read_schema(tmp_path / write(tmp_path).path)
    assert [(field.name, str(field.type).replace(" not null", "")) for field in schema] == [
        ("sample_index", "int32"),
        ("stimulus_id", "string"),
        ("site", "string"),
        ("layer", "int16"),
        ("capture", "string"),
        ("step", "int32"),
        ("position", "int32"),
        ("token_id", "int32"),
        ("produced_id", "int32"),
        ("is_special", "bool"),
        ("activation", "fixed_size_list<element: float>[8]"),
    ]
    # Q04: no null vectors, declared so down to the element.
    assert not any(field.nullable for field in schema)
    assert not schema.field("activation").type.value_field.nullable


def test_writer_options_are_those_measured(tmp_path: Path) -> None:
    metadata = pq.read_metadata(tmp_path / write(tmp_path, rows_of(500, 64)).path)
    group = metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    vector = columns["activation.list.element"]
    assert "BYTE_STREAM_SPLIT" in vector.encodings
    assert not vector.has_dictionary_page  # Q12
    assert not vector.is_stats_set
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    dictionaries = {name for name, column in columns.items() if column.has_dictionary_page}
    assert dictionaries == {"stimulus_id", "site", "capture"}
    assert all(column.is_stats_set for name, column in columns.items() if name != "activation.list.element")
    assert all(
        column.has_column_index and column.has_offset_index for column in columns.values() if column is not vector
    )
    assert metadata.format_version == "2.6"


def test_metadata_tells_the_origin_in_sorted_order(tmp_path: Path) -> None:
    path = tmp_path / write(tmp_path, rows_of(3), unit="00004-01", metadata={"z": "1", "ember.input_hash": "abc"}).path
    told = {key.decode(): value.decode() for key, value in pq.read_schema(path).metadata.items()}
    assert told == {
        "ember.captures": '["last"]',
        "ember.dtype": "float32",
        "ember.input_hash": "abc",
        "ember.layout": "ember.layout/v1",
        "ember.table": "activations",
        "ember.unit": "00004-01",
        "ember.width": "8",
        "z": "1",
    }
    assert list(told) == sorted(told)
    assert path.name == "part-00004-01.parquet"


def test_page_checksums_catch_a_flipped_bit(tmp_path: Path) -> None:
    path = tmp_path / write(tmp_path, rows_of(200, 64)).path
    data = bytearray(path.read_bytes())
    data[pq.read_metadata(path).row_group(0).column(10).data_page_offset + 500] ^= 4
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        hash_file(path)


def test_rows_are_sorted_by_sample_step_and_position(tmp_path: Path) -> None:
    capture = rows_of(6)
    keys = np.array([[1, 0, 1, 0, 1, 0], [-1, 2, -1, -1, 0, 1], [7, 9, 2, 5, 8, 6]], np.int32)
    mixed = replace(capture, sample_index=keys[0], step=keys[1], position=keys[2])
    table = pq.read_table(tmp_path / write(tmp_path, mixed).path).slice(0, 6)
    found = list(zip(*(table[name].to_pylist() for name in ("sample_index", "step", "position")), strict=True))
    assert found == [(0, -1, 5), (0, 1, 6), (0, 2, 9), (1, -1, 2), (1, -1, 7), (1, 0, 8)]
    order = [3, 5, 1, 2, 0, 4]
    assert table["stimulus_id"].to_pylist() == [f"s{i}" for i in order]
    assert np.array_equal(np.stack(table["activation"].to_pylist()).astype(np.float32), capture.values[0][order])


def test_large_row_groups_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write(tmp_path / "whole", rows_of(100, 64, layers=(0,)))
    monkeypatch.setattr(shards, "GROUP_BYTES", 6000)
    cut = write(tmp_path / "cut", rows_of(100, 64, layers=(0,)))
    file = pq.ParquetFile(tmp_path / "cut" / cut.path)
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert sum(sizes) == 100
    assert len(sizes) >= 4
    assert max(sizes) * 64 * 4 < 6000
    assert cut.content_sha256 == whole.content_sha256
    assert cut.sha256 != whole.sha256


def test_logits_have_their_own_table(tmp_path: Path) -> None:
    logits = rows_of(3, 31, layers=(-1,), name="scores", site="after_logits")
    part = shards.write_logits(tmp_path, 2, "a0", [logits], **WRITE)
    assert (part.table, part.path) == ("logits", "logits/part-00002.parquet")
    with pytest.raises(ValueError, match="write_logits"):
        write(tmp_path, logits)
    with pytest.raises(ValueError, match="after_logits"):
        shards.write_logits(tmp_path, 2, "a0", [rows_of(3)], **WRITE)
    with pytest.raises(ValueError, match="one width"):
        write(tmp_path, rows_of(3, 8), rows_of(3, 16, name="other"))


def test_rows_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    good = rows_of(4)
    wrong = {
        "shape": replace(good, values=good.values[:1]),
        "differ in length": replace(good, token_id=good.token_id[:2]),
        "outside the unit's range": replace(good, sample_index=good.sample_index + 9_999),
        "two rows for the same": replace(good, sample_index=np.zeros(4, np.int32)),
    }
    for message, capture in wrong.items():
        with pytest.raises(ValueError, match=message):
            write(tmp_path, capture)
    assert not (tmp_path / "activations").exists()


@pytest.mark.parametrize("label", ["3", "00003-2", "../../x", "00003/", "", "0000a"])
def test_units_have_plain_names(label: str) -> None:
    with pytest.raises(ValueError, match="names no unit"):
        part_path("activations", label)


def test_names_of_split_units_sort_as_their_samples() -> None:
    names = [part_path("activations", u) for u in (2, "00003-00", "00003-01", "00003-1", 4, 10)]
    assert names == sorted(names)


# --- the other tables -------------------------------------------------------------------------------------------------


def test_generations_say_what_was_produced_and_how_it_compares(tmp_path: Path) -> None:
    rows = [
        GenerationRow(1, "s1", 4, (5, 6), " kataba\n", "length", "kataba", "exact", True, False, True, True),
        GenerationRow(0, "s0", 3, [], "", "stop"),
    ]
    part = shards.write_generations(tmp_path, 0, "a0", rows, **WRITE)
    found = pq.read_table(tmp_path / part.path)
    assert [name for name in found.column_names if name not in SCORE_COLUMNS][-1] == "seed"
    assert found.drop_columns([*SCORE_COLUMNS, "seed"]).to_pylist() == [
        {
            "sample_index": 0, "stimulus_id": "s0", "prompt_tokens": 3, "token_ids": [], "text": "", "stopped": "stop",
            "expected": "", "expect_mode": "exact", "has_expected": False, "correct": False,
            "match_raw": False, "match_trimmed": False, "match_nfc_trimmed": False,
        },
        {
            "sample_index": 1, "stimulus_id": "s1", "prompt_tokens": 4, "token_ids": [5, 6], "text": " kataba\n",
            "stopped": "length", "expected": "kataba", "expect_mode": "exact", "has_expected": True, "correct": True,
            "match_raw": False, "match_trimmed": True, "match_nfc_trimmed": True,
        },
    ]  # fmt: skip


def test_scores_come_back_as_they_were(tmp_path: Path) -> None:
    score = ScoreRow(
        -2.5, 2, 4, 3, 7, (5, 6), (-1.25, -1.25), (7, 1), True,
        (" a", "كتب"), (-2.5, -0.1), (1, 2), (False, True), 1, 1, 0, False, (9, 3, 4), (-0.5, -1.5, -2.5),
    )  # fmt: skip
    rows = [
        GenerationRow(0, "s0", 3, [], "", ""),
        GenerationRow(1, "s1", 4, [5], "x", "text", seed=2**63 - 1, score=score),
    ]
    part = shards.write_generations(tmp_path, 0, "a0", rows, **WRITE)
    bare, full = pq.read_table(tmp_path / part.path).to_pylist()
    assert {name: full[name] for name in SCORE_COLUMNS} == {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(score).items()
    }
    assert (full["seed"], bare["seed"], bare["expected_rank"], bare["choice"]) == (2**63 - 1, -1, -1, -1)
    assert math.isnan(bare["expected_log_probability"])
    assert [bare[name] for name in SCORE_COLUMNS if isinstance(getattr(score, name), tuple)] == [[]] * 9
    frame = pd.read_parquet(tmp_path / part.path)
    assert frame["expected_log_probability"].dtype == np.float64
    assert frame["choice_log_probabilities"][1].tolist() == [-2.5, -0.1]


def test_one_schema_even_where_a_part_has_only_empty_values(tmp_path: Path) -> None:
    """Q02: the first part has no expected text at all, another no rows; every reader takes them together."""
    bare = [GenerationRow(0, "s0", 3, [], "", "stop")]
    full = [GenerationRow(1, "s1", 3, [4], "x", "stop", "كتب", "exact", True, True, True, True)]
    for unit, rows in enumerate((bare, full, [])):
        shards.write_generations(tmp_path, unit, "a0", rows, **WRITE)
    folder = tmp_path / "generations"
    schemas = {str(pq.read_schema(path).remove_metadata()) for path in folder.iterdir()}
    assert len(schemas) == 1
    assert ds.dataset(folder).to_table()["expected"].to_pylist() == ["", "كتب"]
    assert pd.read_parquet(folder)["expected"].tolist() == ["", "كتب"]
    assert pl.read_parquet(folder / "*.parquet")["expected"].to_list() == ["", "كتب"]
    found = duckdb.sql(f"select expected from '{folder}/*.parquet' order by sample_index").fetchall()
    assert found == [("",), ("كتب",)]


def test_a_part_without_rows_has_the_schema(tmp_path: Path) -> None:
    part = write(tmp_path, rows_of(0))
    assert part.rows == 0
    assert pq.read_table(tmp_path / part.path).num_rows == 0
    assert len(pl.read_parquet(tmp_path / part.path)) == 0
    assert duckdb.sql(f"select * from '{tmp_path / part.path}'").fetchall() == []


def test_stimuli_hold_every_label_and_nothing_is_dropped(tmp_path: Path) -> None:
    """Q03: a label that only some stimuli have arrives, null for the others."""
    samples = make_samples(5)
    part = shards.write_stimuli(tmp_path, samples[::-1], attempt="plan", metadata={})
    assert part.path == "stimuli.parquet"
    rows = pq.read_table(tmp_path / part.path).to_pylist()
    assert [row["sample_index"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["label_root"] for row in rows] == ["r0", "r1", "r2", "r3", "r0"]
    assert [row["label_pattern"] for row in rows] == [None, "p1", "p0", None, "p0"]
    assert rows[1]["token_ids"] == samples[1].tokens.tolist()
    assert list(zip(rows[1]["byte_start"], rows[1]["byte_end"], strict=True)) == samples[1].byte_offsets
    assert (rows[1]["target_text"], rows[1]["target_byte_start"], rows[1]["target_byte_end"]) == ("كتب", 0, 6)
    assert (rows[0]["target_text"], rows[0]["target_byte_start"], rows[0]["span_first"]) == ("", -1, -1)
    assert (rows[1]["expected"], rows[1]["has_expected"], rows[0]["has_expected"]) == (" كاتب", True, False)
    assert rows[1]["reveals"] == ["root"]
    assert rows[1]["original_prompt"] == rows[1]["prompt"] == "كتب 1"


def test_many_stimuli_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shards.write_stimuli(tmp_path / "whole", make_samples(7), attempt="plan", metadata={})
    monkeypatch.setattr(shards, "STIMULI_GROUP", 3)
    part = shards.write_stimuli(tmp_path / "cut", make_samples(7), attempt="plan", metadata={})
    assert pq.read_metadata(tmp_path / "cut" / part.path).num_row_groups == 3
    assert part.content_sha256 == whole.content_sha256


def test_a_column_the_schema_does_not_know_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = shards.generation_columns
    monkeypatch.setattr(shards, "generation_columns", lambda rows: known(rows) | {"root_class": ["x"] * len(rows)})
    with pytest.raises(ValueError, match="root_class"):
        shards.write_generations(tmp_path, 0, "a0", [generation_row(make_samples(1)[0])], **WRITE)


def test_sample_indices_of_stimuli_have_no_gaps(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without gaps"):
        shards.write_stimuli(tmp_path, make_samples(4)[1:], attempt="plan", metadata={})


# --- float16 ----------------------------------------------------------------------------------------------------------


def test_float16_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    """N22: 70000 would become an infinity without a word."""
    capture = rows_of(3)
    capture.values[1, 2, 5] = 65504
    part = write(tmp_path, capture, unit=0, dtype="float16")
    capture.values[1, 2, 5] = -70_000
    with pytest.raises(RunError, match=r"capture 'last', site after_layer, layer 1: 1 values, up to 70000.*float32"):
        write(tmp_path, capture, unit=1, dtype="float16")
    assert [p for p in everything_in(tmp_path) if p.endswith("parquet")] == [part.path]


def test_float16_reads_in_all_four_readers(tmp_path: Path) -> None:
    """Q09: no byte planes, which DuckDB cannot read for float16."""
    capture = rows_of(3, layers=(0,))
    path = tmp_path / write(tmp_path, capture, dtype="float16").path
    wanted = capture.values[0].astype(np.float16)
    assert np.array_equal(np.stack(pd.read_parquet(path)["activation"]), wanted)
    assert np.array_equal(pl.read_parquet(path)["activation"].to_numpy(), wanted)
    assert np.array_equal(np.array(duckdb.sql(f"select activation from '{path}'").fetchall())[:, 0], wanted)
    assert np.array_equal(np.array(pq.read_table(path)["activation"].to_pylist(), np.float16), wanted)


# --- the same bytes ---------------------------------------------------------------------------------------------------


def test_bytes_do_not_depend_on_process_attempt_order_or_place(tmp_path: Path) -> None:
    first = write(tmp_path / "a", rows_of(40))
    script = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from dataclasses import asdict, replace
from tests.foundry.plain_rows import rows_of, write
c = rows_of(40)
names = "sample_index step position token_id produced_id is_special".split()
back = dict((name, getattr(c, name)[::-1].copy()) for name in names)
c = replace(c, **back, stimulus_id=c.stimulus_id[::-1], values=c.values[:, ::-1])
print(write(Path({str(tmp_path / "elsewhere")!r}), c, attempt="another"))
"""
    told = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    assert told.stdout.strip() == str(first)


def test_the_first_of_two_equal_writers_wins(tmp_path: Path) -> None:
    first = write(tmp_path, attempt="a0")
    stamp = (tmp_path / first.path).stat()
    assert write(tmp_path, attempt="a1") == first
    again = (tmp_path / first.path).stat()
    assert (again.st_ino, again.st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)
    assert everything_in(tmp_path) == [first.path]


def test_rivals_writing_at_once_agree_on_one_file(tmp_path: Path) -> None:
    """P06: the same units from three processes at the same time."""
    script = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.foundry.plain_rows import rows_of, write
captures = rows_of(30)
print("ready", flush=True)
sys.stdin.readline()
for unit in range(40):
    print(write(Path(sys.argv[1]), captures, unit=unit, attempt=f"{{sys.argv[2]}}-{{unit}}"))
"""
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for rival in rivals:
        assert rival.stdout is not None
        assert rival.stdout.readline() == "ready\n"
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.write("go\n")
        rival.stdin.flush()
    told = [rival.communicate()[0] for rival in rivals]
    assert told[0] == told[1] == told[2]
    assert told[0].count("PartFile") == 40
    assert len(everything_in(tmp_path)) == 40


def test_equal_content_in_other_bytes_counts_as_equal(tmp_path: Path) -> None:
    first = write(tmp_path)
    path = tmp_path / first.path
    pq.write_table(pq.read_table(path), path, compression="none")
    found = write(tmp_path, attempt="a1")
    assert found.content_sha256 == first.content_sha256
    assert found.sha256 == placing.sha256_file(path) != first.sha256
    assert found.bytes == path.stat().st_size


def test_a_different_loser_is_an_error_that_names_both(tmp_path: Path) -> None:
    first = write(tmp_path)
    before = (tmp_path / first.path).read_bytes()
    other = rows_of(5)
    other.values[0, 0, 0] += 1
    with pytest.raises(RunError) as caught:
        write(tmp_path, other, attempt="a1")
    theirs = write(tmp_path / "apart", other).content_sha256
    assert first.content_sha256 in str(caught.value)
    assert theirs in str(caught.value)
    assert (tmp_path / first.path).read_bytes() == before
    assert everything_in(tmp_path / ".ember") == []


def test_a_damaged_first_is_named(tmp_path: Path) -> None:
    first = write(tmp_path)
    (tmp_path / first.path).write_bytes(b"PAR1 no more")
    with pytest.raises(RunError, match=r"cannot be read.*delete it"):
        write(tmp_path, attempt="a1")


# --- when writing goes wrong ------------------------------------------------------------------------------------------


def test_an_exception_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that an exception ends is a valid, short file: it must never get its final name."""
    whole = shards._capture_groups

    def breaking(*args: Any) -> Iterator[Any]:
        groups = whole(*args)
        yield next(groups)
        raise KeyboardInterrupt

    monkeypatch.setattr(shards, "_capture_groups", breaking)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path)
    assert everything_in(tmp_path) == []


def test_a_short_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shards._capture_groups
    monkeypatch.setattr(shards, "_capture_groups", lambda *args: iter([next(whole(*args))]))
    with pytest.raises(RunError, match="5 rows reached the file, expected 10"):
        write(tmp_path)
    assert everything_in(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            errno.ENOSPC,
            r"no space left in .*: about .* needed, .* free.*Free some space and run the same command again",
        ),
        (errno.EDQUOT, r"no space left in .*needed.*free"),
        (errno.EROFS, r"cannot be written \(Read-only file system\).*another output directory"),
        (errno.EACCES, r"cannot be written \(Permission denied\)"),
        (errno.EIO, r"writing in .* failed \(Input/output error\)"),
    ],
)
def test_a_disk_that_refuses_is_one_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(placing, "sync_file", refuse)
        with pytest.raises(RunError, match=message):
            write(tmp_path)
    assert everything_in(tmp_path) == []
    assert write(tmp_path).rows == 10


def test_a_full_file_system_says_what_is_needed(tmp_path: Path) -> None:
    """P11, on a real file system of 1 MB; then space is made and the same write succeeds."""
    script = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.foundry.plain_rows import rows_of, write
from pipelines.errors import RunError
disk = Path(sys.argv[1])
(disk / "ballast").write_bytes(bytes(900_000))
try:
    write(disk / "run", rows_of(500, 128))
except RunError as error:
    print(error)
print([str(path.relative_to(disk)) for path in disk.rglob("*") if path.is_file()])
(disk / "ballast").unlink()
print(write(disk / "run", rows_of(500, 128)).rows)
"""
    mounted = f'mount -t tmpfs -o size=1M none {tmp_path} && exec {sys.executable} -c "$SCRIPT" {tmp_path}'
    told = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mounted], capture_output=True, text=True, env=os.environ | {"SCRIPT": script}
    )
    if told.returncode and not told.stdout:
        pytest.skip(f"no file system can be mounted here: {told.stderr.strip()}")
    message, files, rows = told.stdout.strip().splitlines()
    assert "no space left" in message
    assert "0.5 MB needed" in message
    assert files == "['ballast']"
    assert rows == "1000"


def test_a_file_larger_than_allowed_is_refused_cleanly(tmp_path: Path) -> None:
    script = f"""
import resource, signal, sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.foundry.plain_rows import rows_of, write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
write(Path({str(tmp_path)!r}), rows_of(500, 128))
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pipelines.errors.RunError" in told.stderr
    assert "no space left" in told.stderr
    assert everything_in(tmp_path) == []


def test_an_unwritable_directory_is_refused() -> None:
    script = f"""
import os, sys, tempfile; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.foundry.plain_rows import write
with tempfile.TemporaryDirectory() as elsewhere:
    write(Path(elsewhere))  # whatever is imported late is imported now: nobody may not read root's environment
if os.getuid() == 0:
    os.setuid(65534)
write(Path(sys.argv[1]))
"""
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o555)
        told = subprocess.run(
            [sys.executable, "-B", "-c", script, str(folder)], capture_output=True, text=True, cwd="/"
        )
        assert "RunError: cannot write activations/part-00000.parquet" in told.stderr
        assert "Permission denied" in told.stderr
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder)


def test_a_file_system_without_hard_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(RunError, match="no hard links"):
        write(tmp_path)
    assert everything_in(tmp_path) == []


def test_an_attempt_cannot_leave_its_directory(tmp_path: Path) -> None:
    for attempt in ("", "../x", "a/b", ".."):
        with pytest.raises(ValueError, match="plain name"):
            write(tmp_path, attempt=attempt)


@pytest.mark.slow
def test_killed_at_any_moment_final_names_hold_only_whole_files(tmp_path: Path) -> None:
    """P09: SIGKILL at random moments of writing; then everything is done again over what was left."""
    script = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.foundry.plain_rows import rows_of, write
print("ready", flush=True)
for unit in range(1000):
    write(Path(sys.argv[1]), rows_of(200 + unit % 7, 64), unit=unit, attempt=f"{{sys.argv[2]}}-{{unit}}")
"""
    rng = random.Random(5)
    seen = 0
    for trial in range(12):
        child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(trial)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0.01, 0.3))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        placed = sorted((tmp_path / "activations").glob("*")) if (tmp_path / "activations").exists() else []
        seen = max(seen, len(placed))
        for unit, path in enumerate(placed):
            assert path.name == f"part-{unit:05d}.parquet"
            assert pq.read_metadata(path).num_rows == 2 * (200 + unit % 7)
    assert seen > 0
    for unit in range(seen):
        part = write(tmp_path, rows_of(200 + unit % 7, 64), unit=unit, attempt="again")
        assert part.content_sha256 == hash_file(tmp_path / part.path)


def test_what_killed_attempts_left_can_be_cleared(tmp_path: Path) -> None:
    make_run(tmp_path, units=(2,))
    left = tmp_path / ".ember/staging/dead/activations-part-00000.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")
    placing.clear_staging(tmp_path)
    placing.clear_staging(tmp_path)
    assert not left.exists()
    assert (tmp_path / "activations/part-00000.parquet").exists()


def test_a_run_leaves_no_stray_files(tmp_path: Path) -> None:
    make_run(tmp_path, units=(3, 2))
    tables = ("activations", "generations", "logits")
    assert everything_in(tmp_path) == [
        *(f"{table}/part-{unit:05d}.parquet" for table in tables for unit in (0, 1)),
        "manifest.json",
        "stimuli.parquet",
    ]


def test_capture_order_of_the_config_is_kept(tmp_path: Path) -> None:
    samples = make_samples(4)
    inner = [capture_rows(record, samples) for record in CAPTURES if record.site != "after_logits"]
    path = tmp_path / write(tmp_path, *inner, unit=0).path
    told = json.loads(pq.read_schema(path).metadata[b"ember.captures"])
    assert told == ["last", "every", "word", "final"]
    assert pa.table(pq.read_table(path))["capture"].unique().to_pylist() == told
