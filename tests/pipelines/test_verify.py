"""Verification finds every kind of damage, follows no path out of the run, and passes what is sound."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ember.errors import InputError
from pipelines import shards
from pipelines.cli.verify import verify as command
from pipelines.content import hash_file
from pipelines.errors import VerifyError
from pipelines.parts import PartFile
from pipelines.placing import sha256_file
from pipelines.rows import CaptureRows
from pipelines.verify import check, verify
from tests.foundry.fake_run import FakeRun, capture_rows, generation_row, make_run

PART = "activations/part-00000.parquet"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    return make_run(tmp_path_factory.mktemp("sound") / "run", units=(4, 3, 6))


@pytest.fixture
def run(sound: FakeRun, tmp_path: Path) -> FakeRun:
    """A copy to damage."""
    shutil.copytree(sound.directory, tmp_path / "run")
    return replace(sound, directory=tmp_path / "run", parts=list(sound.parts))


def problems(run: FakeRun) -> list[str]:
    return list(check(run.directory).problems)


def one_problem(run: FakeRun) -> str:
    (found,) = problems(run)
    return found


def edit_manifest(run: FakeRun, change: Callable[[dict[str, Any]], object]) -> None:
    path = run.directory / "manifest.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def record_again(run: FakeRun, path: str) -> None:
    """Make the manifest agree with a file that was changed: size, checksum, rows, content and semantic hash."""
    file = run.directory / path
    fresh = {
        "bytes": file.stat().st_size,
        "sha256": sha256_file(file),
        "content_sha256": hash_file(file),
        "rows": pq.read_metadata(file).num_rows,
    }
    run.parts = [replace(part, **fresh) if part.path == path else part for part in run.parts]
    run.finish()


# --- what is sound ----------------------------------------------------------------------------------------------------


def test_a_sound_run_passes(sound: FakeRun) -> None:
    verdict = verify(sound.directory)
    assert verdict.sound
    assert verdict.manifest is not None
    assert verdict.rows("stimuli") == 13
    assert verdict.rows("logits") == 13


@pytest.mark.parametrize("failed", [(2, 7), (0, 1, 2, 3), tuple(range(13))])
def test_a_partial_run_passes(tmp_path: Path, failed: tuple[int, ...]) -> None:
    make_run(tmp_path, units=(4, 3, 6), failed=failed)
    assert check(tmp_path).problems == ()


def test_float16_and_split_units_pass(tmp_path: Path) -> None:
    run = make_run(tmp_path, units=(4, 3), dtype="float16")
    assert problems(run) == []
    halves: dict[str, Any] = {"metadata": {}, "dtype": "float16"}
    inner = [record for record in run.origin.captures if record.table == "activations"]
    run.parts = [part for part in run.parts if part.path != PART]
    (run.directory / PART).unlink()
    for label, start, end in (("00000-0", 0, 1), ("00000-1", 1, 4)):
        rows = [capture_rows(record, run.samples[start:end]) for record in inner]
        run.parts.append(
            shards.write_activations(tmp_path, label, "a9", rows, sample_start=start, sample_end=end, **halves)
        )
    run.finish()
    assert problems(run) == []


def test_a_file_rewritten_by_other_means_is_named_by_its_bytes_only(run: FakeRun) -> None:
    path = run.directory / PART
    pq.write_table(pq.read_table(path), path, compression="none", row_group_size=4)
    assert PART in one_problem(run)


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_an_absent_file(run: FakeRun) -> None:
    (run.directory / PART).unlink()
    assert one_problem(run) == f"{PART}: is absent; run the same command again to compute it"


def test_a_truncated_file(run: FakeRun) -> None:
    path = run.directory / PART
    data = path.read_bytes()
    rng = random.Random(1)
    for cut in (0, 1, len(data) - 1, *(rng.randrange(len(data)) for _ in range(20))):
        path.write_bytes(data[:cut])
        assert f"has {cut} bytes, the manifest says {len(data)}" in one_problem(run)


def test_every_flipped_bit_in_any_table(run: FakeRun) -> None:
    rng = random.Random(2)
    for _ in range(60):
        part = rng.choice(run.parts)
        path = run.directory / part.path
        data = path.read_bytes()
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
        found = problems(run)
        assert found[0].startswith(f"{part.path}: its sha256 is "), found
        path.write_bytes(data)
    assert problems(run) == []


def test_flipped_bits_are_caught_even_if_the_checksum_was_made_to_agree(run: FakeRun) -> None:
    """Page checksums, decoding and the content hash stand behind the file's own sha256."""
    rng = random.Random(3)
    path = run.directory / PART
    data = path.read_bytes()
    pages = len(data) - int.from_bytes(data[-8:-4], "little") - 8
    for _ in range(40):
        at = rng.randrange(4, pages)
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
        run.parts = [replace(p, sha256=sha256_file(path)) if p.path == PART else p for p in run.parts]
        run.finish()
        decoded = [problem for problem in problems(run) if problem.startswith(PART)]
        # The page index, which no reader here uses, lies between the pages and the footer.
        assert decoded or _same_values(path, data), at


def _same_values(path: Path, data: bytes) -> bool:
    found = hash_file(path)
    path.write_bytes(data)
    return found == hash_file(path)


def test_a_file_of_another_kind(run: FakeRun) -> None:
    path = run.directory / PART
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    run.parts = [replace(p, bytes=108, sha256=sha256_file(path)) if p.path == PART else p for p in run.parts]
    run.finish()
    assert f"{PART}: cannot be decoded" in one_problem(run)


# --- paths (G22) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/etc/hostname",
        "../../x",
        "../run/activations/part-00000.parquet",
        "activations/../activations/part-00000.parquet",
        "./activations/part-00000.parquet",
        "activations//part-00000.parquet",
        "activations\\part-00000.parquet",
        "activations/part-00000.parquet/",
        "activations/part-00000.parquet\n",
        "activations/part-00000.parquet\x00",
        "activations/other.parquet",
        "generations/part-00000.parquet",
        "manifest.json",
        "",
    ],
)
def test_a_path_out_of_place_fails_because_of_itself(run: FakeRun, path: str) -> None:
    """Even with the right size and hash of what the path leads to."""
    edit_manifest(run, lambda found: found["parts"][0].update(path=path))
    found = problems(run)
    assert any(problem.startswith(f"{path!r}: no path of a part") for problem in found), found


def test_the_right_hash_of_a_foreign_file_does_not_help(run: FakeRun) -> None:
    foreign = Path("/etc/hostname")
    run.parts[1] = replace(run.parts[1], path=str(foreign), sha256=sha256_file(foreign), bytes=foreign.stat().st_size)
    run.finish()
    assert any("'/etc/hostname': no path of a part" in problem for problem in problems(run))


def test_a_table_that_does_not_exist(run: FakeRun) -> None:
    edit_manifest(run, lambda found: found["parts"][0].update(table="secrets"))
    assert "'activations/part-00000.parquet': there is no table 'secrets'" in problems(run)


def test_links_are_not_followed(run: FakeRun, tmp_path: Path) -> None:
    path = run.directory / PART
    moved = tmp_path / "moved.parquet"
    path.rename(moved)
    path.symlink_to(moved)
    assert (
        one_problem(run)
        == f"{PART!r}: part-00000.parquet is a symbolic link; parts are plain files of the run directory"
    )


def test_linked_folders_are_not_followed(run: FakeRun, tmp_path: Path) -> None:
    (run.directory / "activations").rename(tmp_path / "moved")
    (run.directory / "activations").symlink_to(tmp_path / "moved")
    found = problems(run)
    assert len(found) == 3
    assert all("activations is a symbolic link" in problem for problem in found)


def test_a_run_directory_that_is_itself_a_link_is_fine(run: FakeRun, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(run.directory)
    assert check(tmp_path / "alias").sound


def test_a_pipe_in_place_of_a_part_does_not_hang(run: FakeRun) -> None:
    import os

    (run.directory / PART).unlink()
    os.mkfifo(run.directory / PART)
    assert "is absent" in one_problem(run)


# --- the manifest against itself --------------------------------------------------------------------------------------


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="1 problem"):
        verify(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(semantic_hash="0" * 64), "semantic_hash is not"),
        (lambda m: m.update(input_hash="0" * 64), "input_hash is not"),
        (lambda m: m.update(model_sha256="0" * 64), "input_hash is not"),
        (lambda m: m.update(stimuli_sha256="0" * 64), "its stimuli are not those of stimuli_sha256"),
        (lambda m: m.update(sample_order_sha256="0" * 64), "the order of its samples is not"),
        (lambda m: m.update(status="partial"), "status is 'partial' with 0 failed samples"),
        (
            lambda m: m.update(failed_samples=[99], status="partial"),
            "failed_samples are not ascending indices below 13",
        ),
        (lambda m: m.update(samples=10**15), "1000000000000000 samples are announced, but 13 stimuli"),
        (lambda m: m.update(dtype="float16"), "not those of this layout"),
        (lambda m: m.update(dtype="float8"), "dtype: String should match pattern"),
        (lambda m: m["captures"][0].update(width=2**40), "captures.0.width: Input should be less than or equal"),
        (lambda m: m["captures"][0].update(width=11), "activations: its captures have different widths: [11, 12]"),
        (lambda m: m["captures"][4].update(width=30), "not those of this layout"),
        (lambda m: m["captures"][0].update(site="attic"), "captures.0.site: String should match pattern"),
        (lambda m: m["captures"][0].update(layers=[2**70]), "captures.0.layers.0"),
        (lambda m: m.update(guard={"nll": float("nan")}), "NaN is no number of JSON"),
        (lambda m: m.update(layout="other"), "layout: String should match pattern"),
        (lambda m: m.pop("layout"), "layout: Field required"),
        (lambda m: m["parts"][-1].update(sample_start=3), "or another range of them"),
        (lambda m: m["parts"][0].update(rows=1), "has 60 rows, the manifest says 1"),
        (lambda m: m["parts"][0].update(content_sha256="0" * 64), "the manifest says 0000"),
        (lambda m: m["parts"][0].update(sample_end=10**15), "range of samples is not within 0 to 13"),
        (lambda m: m["parts"][0].update(sample_end=3), "sample 3 is in no part, and not among the failed"),
        (lambda m: m["parts"][0].update(sample_end=6), "activations: samples 4, 5 are in two parts"),
        (lambda m: m["parts"].pop(0), "activations: samples 0, 1, 2, 3 are in no part"),
        (lambda m: m["parts"].pop(0), f"{PART}: not in the manifest"),
        (lambda m: m["parts"].pop(), "must list stimuli.parquet once"),
        (lambda m: m["parts"].append(m["parts"][0]), "are in two parts"),
        (
            lambda m: m["captures"].pop(0),
            "rows of capture 'last', site after_layer, layer 0, which the manifest does not",
        ),
        (
            lambda m: m["captures"][0]["layers"].append(9),
            "capture 'last', site after_layer, layer 9: samples 0, 1, 2, 3 are",
        ),
    ],
)
def test_a_manifest_that_contradicts_the_files(
    run: FakeRun, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit_manifest(run, change)
    found = problems(run)
    assert any(message in problem for problem in found), found


JUNK = (None, True, -1, 3, 10**15, 2**70, 1.5, float("inf"), "", "../x", "last", [], {}, [1], ["a"], {"a": 1}, [[]])
UNCHECKED = {
    "name", "position", "model", "tokenizer", "numerics", "validation", "guard", "splits", "tensor_contract",
    "hooks", "generation", "scoring",
}  # fmt: skip
"""What the manifest tells about the run's origin, which no file of the run could contradict."""


def test_any_junk_in_a_manifest_is_a_problem_and_never_a_crash(run: FakeRun) -> None:
    path = run.directory / "manifest.json"
    text = path.read_text()
    rng = random.Random(4)
    for _ in range(120):
        found = json.loads(text)
        key, *inner = rng.choice(list(_keys(json.loads(text))))
        at = found
        for step in (key, *inner)[:-1]:
            at = at[step]
        at[(key, *inner)[-1]] = junk = rng.choice(JUNK)
        path.write_text(json.dumps(found))
        sound = check(run.directory).sound
        assert not sound or found == json.loads(text) or UNCHECKED & {key, *inner}, (key, inner, junk)


def _keys(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    pairs = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in pairs:
        yield from _keys(value, (*path, key))


def test_strays_beside_the_parts(run: FakeRun) -> None:
    for name in ("activations/part-00000.parquet.tmp", "generations/notes.txt", "logits/part-00099.parquet"):
        (run.directory / name).write_text("x")
    found = problems(run)
    assert [problem.split(":")[0] for problem in found] == [
        "activations/part-00000.parquet.tmp",
        "logits/part-00099.parquet",
        "generations/notes.txt",
    ]


def test_failures_are_explained(tmp_path: Path) -> None:
    run = make_run(tmp_path, units=(4, 3), failed=(5,))
    (tmp_path / "failures.jsonl").unlink()
    assert one_problem(run) == "failures.jsonl is absent: it says why samples failed"


# --- rows against stimuli and captures --------------------------------------------------------------------------------


def rewrite(run: FakeRun, change: Callable[[list[CaptureRows]], list[CaptureRows]]) -> list[str]:
    """Write unit 0's activations with changed rows, let everything agree about the new file, and check."""
    captures = [capture_rows(r, run.samples[:4]) for r in run.origin.captures if r.table == "activations"]
    (run.directory / PART).unlink()
    written = shards.write_activations(
        run.directory, 0, "again", change(captures), sample_start=0, sample_end=4, metadata={}
    )
    run.parts = [written if part.path == PART else part for part in run.parts]
    run.finish()
    return problems(run)


def without(rows: CaptureRows, sample: int) -> CaptureRows:
    keep = rows.sample_index != sample
    ids = [name for name, kept in zip(rows.stimulus_id, keep, strict=True) if kept]
    arrays = ("sample_index", "step", "position", "token_id", "produced_id", "is_special")
    return replace(
        rows, stimulus_id=ids, values=rows.values[:, keep], **{name: getattr(rows, name)[keep] for name in arrays}
    )


def test_rewriting_unchanged_rows_is_sound(run: FakeRun) -> None:
    assert rewrite(run, lambda captures: captures) == []


def test_a_wrong_stimulus_id(run: FakeRun) -> None:
    (found,) = rewrite(run, lambda c: [replace(c[0], stimulus_id=["s-000", "s-002", "s-001", "s-003"]), *c[1:]])
    assert found == f"{PART}: a stimulus_id is not the one that stimuli.parquet gives to its sample_index"


def test_a_wrong_token_or_position(run: FakeRun) -> None:
    (found,) = rewrite(run, lambda c: [replace(c[0], token_id=c[0].token_id + 1), *c[1:]])
    assert found == f"{PART}: a token_id is not the one that stimuli.parquet gives at its position"
    (found,) = rewrite(run, lambda c: [replace(c[0], position=c[0].position + 1), *c[1:]])
    assert found == f"{PART}: a position is beyond the end of its prompt"


def test_a_sample_without_a_row(run: FakeRun) -> None:
    found = rewrite(run, lambda c: [without(c[0], 2), *c[1:]])
    assert found == [
        f"{PART}: capture 'last', site after_layer, layer {n}: sample 2 is without a row" for n in range(4)
    ]


def test_a_capture_without_rows(run: FakeRun) -> None:
    (found,) = rewrite(run, lambda c: [c[0], c[1], c[3]])
    assert found == f"{PART}: capture 'word', site before_layer, layer 0: samples 0, 1, 2, 3 are without a row"


def test_a_capture_twice(run: FakeRun) -> None:
    found = rewrite(run, lambda c: [*c, c[2]])
    assert found == [
        f"{PART}: capture 'word', site before_layer, layer 0: its rows are not in ascending order of sample, step and "
        "position, or one is there twice"
    ]


def test_layers_whose_rows_differ(run: FakeRun) -> None:
    def change(captures: list[CaptureRows]) -> list[CaptureRows]:
        every = captures[1]
        fewer = np.array([i for i in range(len(every.sample_index)) if i != 1])
        pieces = [(every.layers[0], slice(None)), (every.layers[1], fewer)]
        split = [
            CaptureRows(
                "every", "after_layer", (layer,), every.sample_index[keep],
                np.array(every.stimulus_id)[keep].tolist(), every.step[keep], every.position[keep],
                every.token_id[keep], every.produced_id[keep], every.is_special[keep], every.values[i : i + 1, keep],
            )
            for i, (layer, keep) in enumerate(pieces)
        ]  # fmt: skip
        return [captures[0], *split, *captures[2:]]

    assert rewrite(run, change) == [
        f"{PART}: capture 'every', site after_layer, layer 2: its rows are not those of the capture's other layers"
    ]


def test_a_wrong_continuation(run: FakeRun) -> None:
    name = "generations/part-00000.parquet"
    good = [generation_row(sample) for sample in run.samples[:4]]
    for rows, message in (
        (good[:3], "sample 3 is without a row"),
        ([*good[:3], replace(good[3], prompt_tokens=1)], "prompt_tokens is not the number of tokens"),
        ([*good[:3], good[2]], "one is there twice"),
    ):
        (run.directory / name).unlink()
        shards.write_generations(run.directory, 0, "again", rows, sample_start=0, sample_end=4, metadata={})
        record_again(run, name)
        assert any(message in problem for problem in problems(run))


def test_stimuli_that_were_changed(run: FakeRun) -> None:
    path = run.directory / "stimuli.parquet"
    table = pq.read_table(path)
    prompts = table["prompt"].to_pylist()
    at = table.schema.get_field_index("prompt")
    changed = table.set_column(at, table.schema.field("prompt"), [[prompts[0] + ".", *prompts[1:]]])
    pq.write_table(changed, path)
    record_again(run, "stimuli.parquet")
    assert one_problem(run) == "stimuli.parquet: its stimuli are not those of stimuli_sha256"


def test_a_part_of_another_run(run: FakeRun, tmp_path: Path) -> None:
    path = run.directory / PART
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"ember.input_hash": "another"}), path)
    record_again(run, PART)
    assert any("written for other inputs" in problem for problem in problems(run))


def test_all_problems_are_listed_at_once(run: FakeRun) -> None:
    (run.directory / PART).unlink()
    (run.directory / "logits/part-00001.parquet").write_bytes(b"x")
    edit_manifest(run, lambda found: found.update(semantic_hash="0"))
    with pytest.raises(VerifyError) as caught:
        verify(run.directory)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{run.directory}: 3 problems"
    assert len(lines) == 4


# --- the command ------------------------------------------------------------------------------------------------------


def test_command_says_sound(sound: FakeRun) -> None:
    result = CliRunner().invoke(command, [str(sound.directory)], standalone_mode=False)
    assert result.return_value == 0
    assert result.output.startswith(f"{sound.directory}: sound. 13 samples, 10 files, ")


def test_command_for_machines(run: FakeRun) -> None:
    told = json.loads(CliRunner().invoke(command, ["--json", str(run.directory)], standalone_mode=False).output)
    assert (told["sound"], told["problems"], told["samples"], told["status"]) == (True, [], 13, "complete")
    assert told["rows"] == {"activations": 192, "generations": 13, "logits": 13, "stimuli": 13}
    (run.directory / PART).unlink()
    result = CliRunner().invoke(command, ["--json", str(run.directory)], standalone_mode=False)
    assert result.return_value == 1
    assert json.loads(result.output)["problems"] == [f"{PART}: is absent; run the same command again to compute it"]
    (run.directory / "manifest.json").unlink()
    result = CliRunner().invoke(command, ["--json", str(run.directory)], standalone_mode=False)
    assert result.return_value == 1
    assert set(json.loads(result.output)) == {"directory", "sound", "problems"}


def test_command_refuses(run: FakeRun, tmp_path: Path) -> None:
    (run.directory / PART).unlink()
    result = CliRunner().invoke(command, [str(run.directory)], standalone_mode=False)
    assert isinstance(result.exception, VerifyError)
    result = CliRunner().invoke(command, [str(tmp_path / "nowhere")], standalone_mode=False)
    assert isinstance(result.exception, InputError)


def test_part_records_travel_as_plain_data() -> None:
    part = PartFile("activations", PART, 1, 2, "a", "b", 0, 1)
    assert PartFile(**asdict(part)) == part
