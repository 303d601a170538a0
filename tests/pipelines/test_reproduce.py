"""Making a run anew from its directory: the same bits, or what differs first, tokens before values before bits."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ember.errors import EmberError, InputError
from pipelines.cli.main import pipeline
from pipelines.errors import RunError, VerifyError
from pipelines.manifest import read_manifest
from pipelines.reading import load
from pipelines.reproduce import compare_runs, reproduce
from pipelines.running import run
from pipelines.stored_stimuli import read_stored
from tests.faults.rig import make_config, prompts
from tests.foundry.tiny import tiny_llama

ITEMS = [{"id": f"s{i}", "prompt": p, "labels": {"n": str(i % 3)}} for i, p in enumerate(prompts(8))]
SECTIONS: dict[str, Any] = {"generate": {"max_tokens": 2}, "score": {"top_k": 2}}


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A run whose stimuli come from a file that is gone."""
    rows = [{"id": one["id"], "prompt": one["prompt"], "n": one["labels"]["n"]} for one in ITEMS]  # type: ignore[index]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stimuli = {"file": "x.jsonl", "select": {"where": {"n": ["0", "1"]}}}
    config = make_config(tmp_path, [], stimuli=stimuli, **SECTIONS)
    assert run(config, scheduler="serial").status == "complete"
    (tmp_path / "x.jsonl").unlink()
    return config.output.path


def test_every_bit_comes_back_without_the_file_of_stimuli(finished: Path) -> None:
    found = reproduce(finished, scheduler="serial")
    assert (found.level, found.first, found.exit_status) == ("nothing", "", 0)
    assert found.directory == str(finished.with_name("run-reproduced"))
    assert read_manifest(finished) == read_manifest(Path(found.directory))
    for name in ("stimuli.parquet", "activations/part-00000.parquet", "README.md"):
        assert (finished / name).read_bytes() == (Path(found.directory) / name).read_bytes()
    # a second time there is nothing to do
    assert reproduce(finished, scheduler="serial").level == "nothing"


def test_another_model_is_named_as_the_cause(finished: Path, tmp_path: Path) -> None:
    tiny_llama(tmp_path / "other.gguf", n_layers=3, context=256, seed=5)
    found = reproduce(finished, str(tmp_path / "other.gguf"), tmp_path / "again", scheduler="serial")
    assert (found.level, found.exit_status) == ("values", 1)
    assert found.first.startswith("capture 'after_layer', after_layer, layer 0, 6 of 6 rows, at most ")
    assert any(line.startswith("model_sha256: was ") for line in found.causes)
    assert found.record["comparison"]["identical"] is False
    assert found.lines()[-1] == "values differ"


def routes(tmp_path: Path, **changes: Any) -> list[Path]:
    made = []
    for i, engine in enumerate([{"route": "reference"}, {"route": "fast"}]):
        config = make_config(tmp_path, ITEMS, name=f"r{i}", engine=engine | {"unit_rows": 64}, **changes)
        run(config, scheduler="serial")
        made.append(config.output.path)
    return made


def test_two_routes_differ_in_bits(tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="the fast route needs numba")
    found = compare_runs(*(load(path) for path in routes(tmp_path)))
    assert found.level == "bits"
    assert "numerics" in " ".join(found.causes) or "engine" in " ".join(found.causes)
    assert "of a row's rms" in found.first
    assert "bits differ, values agree within 2e-05" in found.lines()[-1]


def test_another_quantisation_that_keeps_the_likeliest_token_differs_in_values(tmp_path: Path) -> None:
    """Nothing is captured and nothing generated: only the likeliest five tokens tell the two models apart."""
    runs = []
    for quant in ("F32", "F16"):
        tiny_llama(tmp_path / f"{quant}.gguf", n_layers=3, context=256, quant=quant)
        told: dict[str, Any] = {"model": {"path": f"{quant}.gguf"}, "hooks": None, "score": {"top_k": 5}}
        config = make_config(tmp_path, ITEMS, name=quant, **told)
        run(config, scheduler="serial")
        runs.append(load(config.output.path))
    first, second = ([ids[0] for ids in one.generations["top_ids"].to_pylist()] for one in runs)
    assert first == second
    found = compare_runs(*runs)
    assert (found.level, found.exit_status) == ("values", 1)
    assert found.first.startswith("top_")
    assert found.lines()[-1] == "values differ"


def test_tokens_come_first(tmp_path: Path) -> None:
    runs = []
    for i, bos in enumerate((False, True)):
        config = make_config(tmp_path, ITEMS, name=f"t{i}", tokenizer={"add_bos": bos})
        run(config, scheduler="serial")
        runs.append(load(config.output.path))
    found = compare_runs(*runs)
    assert found.level == "tokens"
    assert ", token 0: " in found.first


def test_stored_stimuli_are_the_built_ones(tmp_path: Path) -> None:
    item = {"id": "a", "prompt": "ا\u0654ب كتاب", "target": "كتاب", "expected": " x", "template": "t",
            "labels": {"root": "r"}, "reveals": ["root"]}  # fmt: skip
    items = [item, {"id": "b", "prompt": "two"}]
    config = make_config(tmp_path, items, tokenizer={"normalize": "nfc"})
    run(config, scheduler="serial")
    from pipelines.stimuli import build_set

    manifest = read_manifest(config.output.path)
    stored, built = read_stored(config.output.path, manifest), build_set(config)
    assert stored.stimuli == built.stimuli
    assert stored.stimuli[0].original == "ا\u0654ب كتاب"
    assert stored.record == built.record


def test_runs_that_cannot_be_made_anew_are_refused(finished: Path, tmp_path: Path) -> None:
    config = finished / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("max_tokens: 2", "max_tokens: 3"))
    with pytest.raises(VerifyError, match="it was edited, or belongs to another run"):
        reproduce(finished, scheduler="serial")
    config.write_text(text)
    with pytest.raises(EmberError, match=r"absent\.gguf"):
        reproduce(finished, str(tmp_path / "absent.gguf"), scheduler="serial")
    (finished / "manifest.json").unlink()
    with pytest.raises(RunError, match="holds no finished run"):
        reproduce(finished, scheduler="serial")
    assert not finished.with_name("run-reproduced").exists()


def test_a_directory_with_something_else_is_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    with pytest.raises(RunError, match="holds no run that could be continued"):
        reproduce(finished, out=tmp_path / "mine", scheduler="serial")


def test_a_run_is_never_compared_with_itself(finished: Path) -> None:
    for out in (finished, finished / "again"):
        with pytest.raises(InputError, match="lies in the run directory"):
            reproduce(finished, out=out, scheduler="serial")
    assert not (finished / "again").exists()


def test_the_command(finished: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        pipeline, ["reproduce", str(finished), "--out", str(tmp_path / "again"), "--serial", "--json"],
        standalone_mode=False,
    )  # fmt: skip
    assert done.return_value == 0, done.output
    told = json.loads(done.stdout)
    assert (told["level"], told["comparison"]) == ("nothing", None)
    assert told["semantic_hash"] == told["semantic_hash_now"] == read_manifest(finished).semantic_hash


@pytest.mark.realmodel
def test_a_real_model_comes_back_to_the_bit(smollm2: Path, tmp_path: Path) -> None:
    items = [{"prompt": "The capital of France is", "expected": " Paris"}, {"prompt": "كتب الطالب على"}]
    config = make_config(tmp_path, items, model={"path": str(smollm2)}, generate={"max_tokens": 3})
    assert run(config, scheduler="serial").status == "complete"
    assert reproduce(config.output.path, str(smollm2), scheduler="serial").level == "nothing"
