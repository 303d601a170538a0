import json
from pathlib import Path

import numpy as np
import pytest

import ember
import pipelines
from ember.errors import GuardError
from pipelines.drive import Step
from pipelines.errors import IdentityError
from pipelines.progress import Silent
from pipelines.running import run
from pipelines.verify import verify
from tests.faults.rig import failures, make_config, manifest, passes, prompts, tables
from tests.foundry.tiny import tiny_llama

CAPTURES = [
    {"site": "after_layer"},
    {"name": "words", "site": "after_mlp", "layers": [0, -1], "position": {"span": "all"}},
    {"name": "pooled", "site": "before_layer", "layers": [1], "position": "mean"},
    {"site": "before_logits"},
    {"site": "after_logits"},
]


def items(n: int) -> list[dict[str, str]]:
    return [{"id": f"s{i}", "prompt": p, "target": "number", "expected": " x"} for i, p in enumerate(prompts(n))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A serial run with every kind of capture and continuations."""
    folder = tmp_path_factory.mktemp("finished")
    config = make_config(folder, items(24), hooks={"capture": CAPTURES}, generate={"max_tokens": 3})
    summary = run(config, scheduler="serial")
    assert summary.status == "complete"
    assert summary.exit_status == 0
    return folder / "run"


def test_states_are_those_of_the_instrument(finished: Path) -> None:
    loaded = pipelines.load(finished)
    texts = loaded.stimuli["prompt"].to_pylist()
    with ember.open(finished.parent / "tiny.gguf", threads=1) as model:
        direct = model.capture(texts, site=["after_layer", "before_logits", "after_logits"])
        for layer in range(3):
            found = loaded.matrix(site="after_layer", layer=layer)
            np.testing.assert_allclose(found, direct["after_layer"][:, layer], rtol=0, atol=2e-5)
        np.testing.assert_allclose(loaded.matrix(site="before_logits"), direct["before_logits"], rtol=0, atol=2e-5)
        np.testing.assert_allclose(loaded.matrix(site="after_logits"), direct["after_logits"], rtol=0, atol=1e-4)
        pooled = model.capture(texts, site="before_layer", layers=[1], position="mean")["before_layer"][:, 0]
        np.testing.assert_allclose(loaded.matrix(site="before_layer", layer=1), pooled, rtol=0, atol=2e-5)


def test_rows_of_a_span_carry_their_positions_and_tokens(finished: Path) -> None:
    loaded = pipelines.load(finished)
    rows = loaded.rows(site="after_mlp", layer=-1).to_pylist()
    stimuli = {row["sample_index"]: row for row in loaded.stimuli.to_pylist()}
    assert {row["sample_index"] for row in rows} == set(range(24))
    for row in rows:
        stimulus = stimuli[row["sample_index"]]
        assert row["stimulus_id"] == stimulus["id"]
        assert stimulus["span_first"] <= row["position"] < stimulus["span_end"]
        assert row["token_id"] == stimulus["token_ids"][row["position"]]
        start, end = stimulus["byte_start"][row["position"]], stimulus["byte_end"][row["position"]]
        at = stimulus["prompt"].encode().index(b"number")
        assert start < at + len("number")
        assert end > at


def test_continuations_are_those_of_the_instrument(finished: Path) -> None:
    loaded = pipelines.load(finished)
    texts = loaded.stimuli["prompt"].to_pylist()
    with ember.open(finished.parent / "tiny.gguf", threads=1) as model:
        for text, row in zip(texts, loaded.generations.to_pylist(), strict=True):
            wanted = model.generate(text, max_tokens=3)
            assert (row["token_ids"], row["text"], row["stopped"]) == (wanted.token_ids, wanted.text, wanted.stopped)
            assert row["correct"] == (wanted.text.strip() == "x")


def test_the_directory_is_as_promised(finished: Path) -> None:
    assert verify(finished).sound
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "README.md",
        "manifest.json",
        "config.yaml",
        "stimuli.parquet",
        "activations",
        "logits",
        "generations",
        ".ember",
    }
    told = manifest(finished)
    assert (told["status"], told["samples"], told["splits"], told["failed_samples"]) == ("complete", 24, [], [])
    assert told["guard"]["positions"] > 0
    assert told["numerics"]["blas_threads"] == 1
    assert set(told["tensor_contract"]["phases"]) == {"prefill", "decode"}
    runtime = json.loads((finished / ".ember/runtime.json").read_text())["sessions"]
    assert [session["outcome"] for session in runtime] == ["finished"]
    assert not list((finished / ".ember/staging").iterdir())


def test_the_written_config_is_the_same_run(finished: Path) -> None:
    summary = run(finished / "config.yaml", scheduler="serial")
    assert summary.units_computed == 0


class Listener(Silent):
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, step: Step) -> None:
        self.steps.append(step)


def test_a_second_run_does_nothing_and_says_so(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*.parquet")}
    passed, listener = passes(finished), Listener()
    config = make_config(finished.parent, items(24), hooks={"capture": CAPTURES}, generate={"max_tokens": 3})
    summary = run(config, scheduler="serial", reporter=listener)
    assert summary.lines()[0] == f"nothing to do: {finished} is complete (24 prompts)"
    assert summary.status == "complete"
    assert (listener.steps, passes(finished)) == ([], passed)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*.parquet")} == before


def test_what_the_summary_says_to_look_at_works(finished: Path) -> None:
    config = make_config(finished.parent, items(24), hooks={"capture": CAPTURES}, generate={"max_tokens": 3})
    looks = run(config, scheduler="serial").looks
    scope: dict[str, object] = {}
    exec("\n".join(looks), scope)
    matrix = scope["X"]
    assert isinstance(matrix, np.ndarray)
    assert matrix.shape == (24, 64)
    assert f"[{matrix.shape[0]}, {matrix.shape[1]}]" in looks[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hooks": {"capture": [{"site": "after_mlp"}]}}, r"config\.hooks\.capture"),
        ({"generate": {"max_tokens": 2}}, r"config\.generate"),
        ({"tokenizer": {"add_bos": True}}, r"config\.tokenizer\.add_bos"),
        ({"engine": {"unit_rows": 32}}, r"config\.engine\.unit_rows: was 64, is 32"),
        ({"engine": {"unit_rows": 64, "route": "reference"}}, r"config\.engine\.route"),
    ],
)
def test_a_changed_config_is_refused_by_name(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    run(make_config(tmp_path, prompts(4)), scheduler="serial")
    before = tables(tmp_path / "run")
    with pytest.raises(IdentityError, match=message):
        run(make_config(tmp_path, prompts(4), **changes), scheduler="serial")
    assert tables(tmp_path / "run") == before
    assert (tmp_path / "run/manifest.json").exists()


def test_changed_stimuli_are_refused_with_the_first_difference(tmp_path: Path) -> None:
    source = tmp_path / "set.csv"
    source.write_text("id,prompt,kind\na,one two,x\nb,one three,y\n")
    section = {"file": "set.csv", "columns": {"id": "id", "prompt": "prompt", "labels": ["kind"]}}
    run(make_config(tmp_path, [], stimuli=section), scheduler="serial")
    source.write_text("id,prompt,kind\na,one two,x\nb,one three,z\n")
    with pytest.raises(IdentityError, match="stimuli: first difference at number 1: 'b' was changed"):
        run(make_config(tmp_path, [], stimuli=section), scheduler="serial")
    source.write_text("id,prompt,kind\na,one two,x\nb,one three,y\nc,four,y\n")
    with pytest.raises(IdentityError, match="stimuli: were 2, are 3"):
        run(make_config(tmp_path, [], stimuli=section), scheduler="serial")


def test_another_model_under_the_same_name_is_refused(tmp_path: Path) -> None:
    run(make_config(tmp_path, prompts(4)), scheduler="serial")
    tiny_llama(tmp_path / "tiny.gguf", n_layers=3, context=256, quant="Q8_0")
    with pytest.raises(IdentityError, match=r"model file: was sha256 [0-9a-f]{16}, is sha256"):
        run(make_config(tmp_path, prompts(4)), scheduler="serial")


def test_another_version_of_the_program_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(make_config(tmp_path, prompts(4)), scheduler="serial")
    monkeypatch.setattr("pipelines.session.__version__", "9.9.9")
    with pytest.raises(IdentityError, match=r"version of Ember: was \S+, is 9\.9\.9"):
        run(make_config(tmp_path, prompts(4)), scheduler="serial")


def test_other_numerics_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(make_config(tmp_path, prompts(4)), scheduler="serial")
    monkeypatch.setattr("ember.numerics.NUMERICS_VERSION", 99)
    with pytest.raises(IdentityError, match=r"numerics\.numerics_version: was \d+, is 99"):
        run(make_config(tmp_path, prompts(4)), scheduler="serial")


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.tex").write_text("years of work")
    with pytest.raises(IdentityError, match=r"not empty \(thesis.tex\)"):
        run(make_config(tmp_path, prompts(4)), scheduler="serial")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_a_model_that_was_replaced_between_two_runs_is_opened_anew(tmp_path: Path) -> None:
    run(make_config(tmp_path, prompts(4)), scheduler="serial")
    tiny_llama(tmp_path / "tiny.gguf", seed=3, n_layers=3, context=256)
    run(make_config(tmp_path, prompts(4), "second"), scheduler="serial")
    first, second = (manifest(tmp_path / name) for name in ("run", "second"))
    assert first["model_sha256"] != second["model_sha256"]
    assert first["semantic_hash"] != second["semantic_hash"]


def test_units_that_are_finished_are_kept(tmp_path: Path) -> None:
    config = make_config(tmp_path, prompts(24))
    run(config, scheduler="serial")
    whole, told = tables(tmp_path / "run"), manifest(tmp_path / "run")
    units = len(told["parts"]) - 1
    assert units > 3
    (tmp_path / "run/manifest.json").unlink()
    (tmp_path / "run/activations/part-00001.parquet").write_bytes(b"torn")
    (tmp_path / "run/.ember/receipts/00002.json").unlink()
    listener = Listener()
    summary = run(config, scheduler="serial", reporter=listener)
    assert summary.units_computed == 2
    assert f"going on: {units - 2} units are finished, 2 are open" in listener.lines
    assert tables(tmp_path / "run") == whole
    assert manifest(tmp_path / "run") == told


def test_damaged_stimuli_are_written_again(tmp_path: Path) -> None:
    config = make_config(tmp_path, prompts(4))
    run(config, scheduler="serial")
    whole = tables(tmp_path / "run")
    (tmp_path / "run/manifest.json").unlink()
    (tmp_path / "run/stimuli.parquet").write_bytes(b"torn")
    run(config, scheduler="serial")
    assert tables(tmp_path / "run") == whole
    assert verify(tmp_path / "run").sound


def test_values_that_are_not_finite_fail_their_prompt_alone(tmp_path: Path) -> None:
    """N20: a weight that is NaN in the row of one token's embedding."""
    items = [{"id": f"s{i}", "prompt": text} for i, text in enumerate(["one two", "one three", "one Q", "one five"])]
    path = tmp_path / "tiny.gguf"
    tiny_llama(path, n_layers=3, context=256)
    with ember.open(path) as model:
        token = model.tokenizer.encode("Q").ids[0]
        info = model.file.tensors["token_embd.weight"]
    row = 4 * info.shape[1]
    with path.open("r+b") as file:
        file.seek(info.offset + token * row)
        file.write(np.full(info.shape[1], np.nan, np.float32).tobytes())
    config = make_config(tmp_path, items, engine={"unit_rows": 1000}, generate={"max_tokens": 2})
    summary = run(config, scheduler="serial")
    assert (summary.status, summary.failed, summary.exit_status) == ("partial", 1, 3)
    (failure,) = failures(tmp_path / "run")
    assert failure["stimulus_id"] == "s2"
    assert failure["kind"] == "non-finite"
    assert failure["detail"].startswith("non-finite after ")
    loaded = pipelines.load(tmp_path / "run", partial=True)
    assert sorted(loaded.stimuli["id"].to_pylist()) == ["s0", "s1", "s3"]
    assert np.isfinite(loaded.matrix(site="after_layer", layer=2)).all()
    assert len(loaded.matrix(site="after_layer", layer=2)) == 3
    assert verify(tmp_path / "run").sound
    # The same bits would come again: nothing is retried.
    again = run(config, scheduler="serial")
    assert (again.units_computed, again.exit_status) == (0, 3)


def test_chance_is_an_error_unless_allowed(tmp_path: Path) -> None:
    with pytest.raises(GuardError, match=r"no better than chance.*guard\.allow_chance: true"):
        run(make_config(tmp_path, prompts(12), guard={"allow_chance": False}), scheduler="serial")
    assert len(list((tmp_path / "run/activations").iterdir())) == 1  # the other units were not run
    assert not (tmp_path / "run/manifest.json").exists()
    # Allowing it changes no value: the first unit is kept.
    summary = run(make_config(tmp_path, prompts(12), guard={"allow_chance": True}), scheduler="serial")
    assert summary.status == "complete"
    assert passes(tmp_path / "run")["00000"] == 1


def test_a_guard_that_failed_fails_again(tmp_path: Path) -> None:
    """Also where the first unit is the only one, and so everything is finished but the verdict."""
    config = make_config(tmp_path, prompts(4), engine={"unit_rows": 4096}, guard={"allow_chance": False})
    for _ in range(2):
        with pytest.raises(GuardError, match="no better than chance"):
            run(config, scheduler="serial")
    assert not (tmp_path / "run/manifest.json").exists()


def test_a_damaged_manifest_is_written_again(tmp_path: Path) -> None:
    config = make_config(tmp_path, prompts(4))
    run(config, scheduler="serial")
    whole = (tmp_path / "run/manifest.json").read_bytes()
    (tmp_path / "run/manifest.json").write_bytes(whole[:100])
    run(config, scheduler="serial")
    assert (tmp_path / "run/manifest.json").read_bytes() == whole


def test_a_run_of_continuations_only(tmp_path: Path) -> None:
    config = make_config(tmp_path, prompts(4), hooks={}, generate={"max_tokens": 2})
    summary = run(config, scheduler="serial")
    assert not (tmp_path / "run/activations").exists()
    assert "generations" in summary.looks[-1]
    assert len(pipelines.load(tmp_path / "run").generations) == 4
