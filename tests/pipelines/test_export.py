"""Exports: the same numbers, whole or absent, nothing overwritten unasked, memory that does not grow."""

import csv
import errno
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

from ember.errors import InputError
from pipelines import export_files
from pipelines.cli.main import pipeline
from pipelines.errors import RunError, VerifyError
from pipelines.export import correctness, export_run
from pipelines.manifest import CaptureRecord
from pipelines.reading import load
from tests.foundry.fake_run import FakeRun, make_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def made(tmp_path: Path) -> FakeRun:
    return make_run(tmp_path / "run", units=(4, 3, 6))


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_arrays_are_stimuli_by_layers_by_hidden(made: FakeRun, tmp_path: Path) -> None:
    found = export_run(made.directory, "npy")
    assert found.directory == tmp_path / "run-npy"
    last = np.load(found.directory / "fake_last.npy")
    assert (last.shape, last.dtype) == ((13, 4, 12), np.float32)
    for layer in range(4):
        np.testing.assert_array_equal(last[:, layer], made.matrix("last", layer))
    every = np.load(found.directory / "fake_every.npy")
    np.testing.assert_array_equal(every, np.stack([made.matrix("every", 1), made.matrix("every", 2)], axis=1))
    assert found.shapes == {
        "last": (13, 4, 12),
        "every": (len(every), 2, 12),
        "word": (13, 1, 12),
        "final": (13, 1, 12),
    }


def test_rows_say_what_they_are(made: FakeRun) -> None:
    folder = export_run(made.directory, "npy").directory
    assert [row["id"] for row in read_csv(folder / "fake_stimuli.csv")] == [f"s-{i:03d}" for i in range(13)]
    rows = read_csv(folder / "fake_every_rows.csv")
    wanted = [(f"s-{s.sample_index:03d}", str(p)) for s in made.samples for p in range(len(s.tokens))]
    assert [(row["stimulus_id"], row["position"]) for row in rows] == wanted
    stimuli = read_csv(folder / "fake_stimuli.csv")
    assert stimuli[1]["prompt"] == "كتب 1"
    assert (stimuli[0]["label_pattern"], stimuli[1]["label_pattern"]) == ("", "p1")
    assert json.loads(stimuli[1]["token_ids"]) == made.samples[1].tokens.tolist()


def test_metadata_says_where_everything_came_from(made: FakeRun) -> None:
    folder = export_run(made.directory, "npy").directory
    told = json.loads((folder / "fake_metadata.json").read_text())
    manifest = load(made.directory).manifest
    assert (told["schema_version"], told["semantic_hash"]) == ("ember.export/v1", manifest.semantic_hash)
    assert (told["output_format"], told["dtype"], told["layout"][:8]) == ("npy", "float32", "an array")
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert told["files"] | {"fake_metadata.json": files["fake_metadata.json"]} == files
    for record in ("model", "tokenizer", "tensor_contract", "numerics"):
        assert told[record] == json.loads((made.directory / "manifest.json").read_text())[record]
    assert told["inputs"]["model_sha256"] == "m" * 64
    array = told["captures"]["last"]["array"]
    assert (array["axes"], array["layers"]) == (["stimulus", "layer", "hidden"], [0, 1, 2, 3])
    assert array["sha256"] == hashlib.sha256((folder / array["file"]).read_bytes()).hexdigest()
    assert told["captures"]["every"]["array"]["axes"][0] == "row"


def test_correctness(made: FakeRun) -> None:
    """Of 13 stimuli two thirds have an expected text; every third of all has produced nothing."""
    folder = export_run(made.directory, "npy").directory
    told = json.loads((folder / "fake_correctness.json").read_text())
    answers = load(made.directory).generations.to_pylist()
    judged = [row for row in answers if row["has_expected"]]
    assert (told["correct"], told["judged"]) == (sum(row["correct"] for row in judged), len(judged))
    assert [entry["id"] for entry in told["stimuli"]] == [f"s-{i:03d}" for i in range(13)]
    assert told["stimuli"][0]["correct"] is None
    assert told["stimuli"][1] == {
        "index": 1,
        "id": "s-001",
        "correct": True,
        "expected": " كاتب",
        "produced": " كاتب\n",
    }
    assert sum(one["judged"] for one in told["by_label"]["root"].values()) == len(judged)


def test_csv(made: FakeRun) -> None:
    folder = export_run(made.directory, "csv", captures=["last"]).directory
    assert sorted(p.name for p in folder.iterdir()) == [
        "fake_generations.csv", "fake_last.csv", "fake_metadata.json", "fake_stimuli.csv"
    ]  # fmt: skip
    rows = read_csv(folder / "fake_last.csv")
    assert len(rows) == 13 * 4
    for layer in range(4):
        mine = [row for row in rows if row["layer"] == str(layer)]
        values = np.array([[row[f"h{i}"] for i in range(12)] for row in mine]).astype(np.float32)
        np.testing.assert_array_equal(values, made.matrix("last", layer))
        assert [row["stimulus_id"] for row in mine] == [f"s-{i:03d}" for i in range(13)]
    answers = read_csv(folder / "fake_generations.csv")
    assert answers[1]["text"] == " كاتب\n"
    assert answers[1]["correct"] == "true"


def test_logits_only_by_name_and_unknown_captures_are_refused(made: FakeRun, tmp_path: Path) -> None:
    found = export_run(made.directory, "npy", tmp_path / "x", captures=["scores"])
    assert found.shapes == {"scores": (13, 1, 31)}
    with pytest.raises(InputError, match="no capture 'lost'; it has 'last', 'every'"):
        export_run(made.directory, "npy", tmp_path / "y", captures=["lost"])


def test_failed_prompts_are_left_out(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", failed=(2, 5))
    folder = export_run(made.directory, "npy").directory
    np.testing.assert_array_equal(np.load(folder / "fake_last.npy")[:, 1], made.matrix("last", 1))
    assert len(read_csv(folder / "fake_stimuli.csv")) == 11
    assert json.loads((folder / "fake_metadata.json").read_text())["failed_samples"] == [2, 5]


def test_nothing_is_overwritten_unasked(made: FakeRun, tmp_path: Path) -> None:
    folder = export_run(made.directory, "npy").directory
    (folder / "mine.txt").write_text("kept")
    with pytest.raises(InputError, match="holds an export already; give --force"):
        export_run(made.directory, "npy")
    assert (folder / "mine.txt").exists()
    with pytest.raises(InputError, match=r"holds 'mine\.txt', which does not belong to the export there"):
        export_run(made.directory, "npy", force=True, captures=["last"])
    assert (folder / "fake_every.npy").exists()
    (folder / "mine.txt").rename(tmp_path / "mine.txt")
    export_run(made.directory, "npy", force=True, captures=["last"])
    assert not (folder / "fake_every.npy").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("x")
    with pytest.raises(InputError, match="holds files that are no export"):
        export_run(made.directory, "npy", tmp_path / "other", force=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="no folder"):
        export_run(made.directory, "npy", tmp_path / "file", force=True)
    with pytest.raises(InputError, match="lies in the run directory"):
        export_run(made.directory, "npy", made.directory / "npy")


@pytest.mark.parametrize("metadata", ["{}", "[]", "{", '{"schema_version": "other/v1", "files": {"thesis.txt": ""}}'])
def test_a_folder_whose_metadata_is_no_exports_is_left_alone(made: FakeRun, tmp_path: Path, metadata: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    (folder / "thesis_metadata.json").write_text(metadata)
    with pytest.raises(InputError, match="holds files that are no export"):
        export_run(made.directory, "npy", folder, force=True)
    assert (folder / "thesis.txt").read_text() == "x"


def test_a_folder_of_the_name_of_an_exports_file_is_left_alone(made: FakeRun) -> None:
    folder = export_run(made.directory, "npy").directory
    (folder / "fake_last.npy").unlink()
    (folder / "fake_last.npy").mkdir()
    (folder / "fake_last.npy/thesis.txt").write_text("x")
    with pytest.raises(InputError, match=r"holds 'fake_last\.npy', which does not belong"):
        export_run(made.directory, "npy", force=True)
    assert (folder / "fake_last.npy/thesis.txt").exists()


def test_texts_with_ends_of_lines_come_back(tmp_path: Path) -> None:
    texts = ["a\rb", "a\nb", "a\r\nb", 'a "b"', "a,b", "\r", "ا\rب", "plain"]
    table = pa.table({"text": texts, "n": list(range(8))})
    export_files.write_table(tmp_path / "t.csv", table)
    export_files.write_vectors(
        tmp_path / "v.csv", table, [(0, [np.full((8, 2), 0.5, np.float32)])], width=2
    )  # fmt: skip
    written = (tmp_path / "t.csv").read_bytes().decode()
    assert written.startswith('text,n\n"a\rb",0\n"a\nb",1\n"a\r\nb",2\n"a ""b""",3\n"a,b",4\n"\r",5\n')
    for name in ("t.csv", "v.csv"):
        assert [row["text"] for row in read_csv(tmp_path / name)] == texts
        frame = pd.read_csv(tmp_path / name)
        assert (frame["text"].tolist(), frame["n"].tolist()) == (texts, list(range(8)))


def test_a_full_disk_leaves_nothing(made: FakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    export_run(made.directory, "npy")
    monkeypatch.setattr(export_files.os, "posix_fallocate", full)
    with pytest.raises(RunError, match="no space left"):
        export_run(made.directory, "npy", force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "run-npy"]
    assert (tmp_path / "run-npy/fake_last.npy").exists()


def test_damaged_runs_are_refused(made: FakeRun) -> None:
    path = made.directory / "activations/part-00001.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerifyError):
        export_run(made.directory, "npy")


def test_runs_without_rows_or_expected_texts(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", units=(1,))
    found = export_run(made.directory, "npy")
    assert correctness(load(made.directory)) is None
    assert "fake_correctness.json" not in found.files


def test_the_command(made: FakeRun, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    told = CliRunner().invoke(pipeline, ["export", str(made.directory), "--format", "npy", "--out", out, "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["shapes"]["last"] == [13, 4, 12]
    again = CliRunner().invoke(
        pipeline, ["export", str(made.directory), "--format", "csv", "--out", out, "--force", "--capture", "word"]
    )
    assert "word: 13 x 1 x 12" in again.output


KILLED = """
import os, signal, sys
from pathlib import Path
from pipelines import export, export_files
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
stage, run_dir = sys.argv[1:]
if stage == "written":
    export.write_table = die
elif stage == "synced":
    export_files._swap = die
else:
    rename = Path.rename
    Path.rename = lambda self, to: rename(self, to) and self.name.startswith("run-npy") and die()
export.export_run(run_dir, "npy", force=True)
"""


def kill(stage: str, run_dir: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, stage, str(run_dir)], cwd=ROOT, capture_output=True)
    assert done.returncode == -9, done.stderr.decode()


@pytest.mark.parametrize("stage", ["written", "synced"])
def test_a_killed_export_is_swept_by_the_next(made: FakeRun, tmp_path: Path, stage: str) -> None:
    (tmp_path / ".run-npy.notes").mkdir()
    kill(stage, made.directory)
    strays = [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert len(strays) == 2
    assert not (tmp_path / "run-npy").exists()
    kill(stage, made.directory)
    assert len([p for p in tmp_path.iterdir() if p.name.startswith(".")]) == 2
    export_run(made.directory, "npy")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".run-npy.notes", "run", "run-npy"]


def test_an_export_that_was_moved_aside_by_a_killed_one_is_put_back(made: FakeRun, tmp_path: Path) -> None:
    folder = export_run(made.directory, "npy", captures=["last"]).directory
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    kill("swapping", made.directory)
    assert not folder.exists()
    with pytest.raises(InputError, match="holds an export already; give --force"):
        export_run(made.directory, "npy")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "run-npy"]
    assert "fake_every.npy" in export_run(made.directory, "npy", force=True).files


def test_an_export_that_is_being_written_is_no_stray(tmp_path: Path) -> None:
    """Two at once: the second leaves the first one's folder alone, and the first still ends well."""
    target = tmp_path / "out"
    with export_files.new_folder(target, 0, force=False) as folder:
        export_files.sweep(target)
        (folder / "x_metadata.json").write_text("{}")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    named = (CaptureRecord("stimuli", "after_layer", (0,), "last", 12),)
    run_dir = make_run(tmp_path / "run", captures=named).directory
    with pytest.raises(InputError, match=r"would be called fake_stimuli\.csv"):
        export_run(run_dir, "csv")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert export_run(run_dir, "npy").shapes == {"stimuli": (13, 1, 12)}


WATCHED = """
import re, sys, threading, time
from pathlib import Path
from pipelines.export import export_run
peak, status = 0, Path("/proc/self/status")
def watch():
    global peak
    while True:
        peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+)", status.read_text())[1]))
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
export_run(sys.argv[1], "npy")
print(peak)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """Four times the rows, 50 MB more of vectors: the same private memory within 15 MB."""
    wide = (CaptureRecord("last", "after_layer", tuple(range(4)), "last", 4096),)
    peaks = []
    for units in (2, 8):
        run_dir = tmp_path / f"run{units}"
        make_run(run_dir, units=(128,) * units, captures=wide)
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, str(run_dir)], capture_output=True, text=True, cwd=ROOT, check=True
        )
        peaks.append(int(done.stdout))
    sizes = [(tmp_path / f"run{units}-npy/fake_last.npy").stat().st_size for units in (2, 8)]
    assert sizes[1] - sizes[0] > 45e6
    assert peaks[1] - peaks[0] < 15_000, peaks
