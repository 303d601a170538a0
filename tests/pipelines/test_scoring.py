"""Scoring and drawing in the factory: what is planned, refused, written, and the same for any number of workers."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ember
import pipelines
from ember.sampling import draw, generator
from pipelines.config import RunConfig, load_config
from pipelines.continuations import ContinuationTable, SampleTexts
from pipelines.errors import ConfigError
from pipelines.plan import Plan, make_plan
from pipelines.plan_report import plan_lines, plan_record
from pipelines.running import run
from pipelines.scoring import extra_rows
from pipelines.unit_file import read_unit_file, write_unit_file
from pipelines.verify import verify
from tests.faults.rig import make_config, manifest, prompts

Edit = Callable[[dict[str, Any]], object]


def items(n: int, **more: Any) -> list[dict[str, Any]]:
    texts = ("ing", " the end", " x")
    return [
        {"id": f"s{i}", "prompt": p, "expected": texts[i % 3], "labels": {"foil": f" {'abc'[i % 3]}"}, **more}
        for i, p in enumerate(prompts(n))
    ]


def plan_of(folder: Path, listed: list[Any], **changes: Any) -> Plan:
    return make_plan(make_config(folder, listed, **changes))


# --- plan -------------------------------------------------------------------------------------------------------------


def test_continuations_are_cut_in_the_client_and_reach_the_workers(tmp_path: Path) -> None:
    score = {"expected": True, "choices": [" a", "{foil}", "{expected}"], "top_k": 4}
    plan = plan_of(tmp_path, items(12), score=score)
    units = read_unit_file(tmp_path / write_unit_file(tmp_path, plan))
    assert (units.top_k, units.answers, units.max_tokens) == (4, True, 0)
    tokenizer = plan.source.tokenizer
    for unit in plan.units:
        work = units.work(unit.start, unit.end, 0)
        assert (work.top_k, work.sampling) == (4, None)
        assert [one.prompt for one in work.continuations] == [i for i in range(unit.end - unit.start) for _ in range(4)]
        for number, one in enumerate(work.continuations):
            sample = plan.samples[unit.start + one.prompt].stimulus
            text = [sample.expected, " a", sample.labels["foil"], sample.expected][number % 4]
            assert tokenizer.decode_bytes(one.tokens) == text.encode()
    assert units.scores.of_sample(3).choices[2] == plan.samples[3].stimulus.expected


def test_a_table_gives_back_what_it_was_made_of() -> None:
    from ember.scoring import Cut

    samples = [
        SampleTexts(Cut((1, 2), True), ("a", "b"), (Cut((3,), False), Cut((4, 5, 6), True))),
        SampleTexts(None, (), ()),
        SampleTexts(None, ("c",), (Cut((7,), False),)),
        SampleTexts(Cut((8,), False), (), ()),
    ]
    table = ContinuationTable.of(samples)
    again = ContinuationTable.read(table.arrays())
    assert [again.of_sample(i) for i in range(4)] == samples
    assert extra_rows(again) == [3, 0, 0, 0]
    assert [(one.prompt, one.tokens) for one in again.work(1, 4)] == [(1, (7,)), (2, (8,))]


def test_scored_rows_count_in_units(tmp_path: Path) -> None:
    long = " and so on and so on and so on and so on and so on"
    bare, scored = (plan_of(tmp_path, prompts(24), score=score) for score in (None, {"choices": [long]}))
    assert len(scored.units) > len(bare.units)
    for unit in scored.units:
        rows = sum(extra_rows(scored.scores)[unit.start : unit.end])
        assert unit.rows_scored == rows
        assert unit.rows_shared + rows <= 64 or unit.end - unit.start == 1
    told = plan_record(scored)
    assert (told["scores"], told["rows_scored"]) == (
        {"texts": 24, "merged": 0, "top_k": 0}, sum(extra_rows(scored.scores)),
    )  # fmt: skip
    (line,) = [line for line in plan_lines(told) if line.startswith("scores")]
    assert "24 texts" in line
    assert told["bytes"]["generations"] > 24 * 200


def test_merging_texts_are_noted(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [{"id": "a", "prompt": "the scri", "expected": "be"}, {"id": "b", "prompt": "c"}],
                   score={"expected": True})  # fmt: skip
    merged = [bool(cut.merged) for i in range(2) for cut in plan.scores.of_sample(i).all_cuts]
    joined = plan.source.tokenizer.encode("the scribe").ids[: len(plan.source.tokenizer.encode("the scri").ids)]
    assert merged == [joined != plan.source.tokenizer.encode("the scri").ids] == [True]
    assert any("1 of 1 scored texts merge" in note for note in plan.notes)
    assert any("1 stimuli have no expected text" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("listed", "score", "says"),
    [
        ([*items(2), {"id": "odd", "prompt": "x"}], {"choices": ["{foil}"]}, r"1 stimulus without .*: 'odd' \(foil\)"),
        ([{"id": "odd", "prompt": "x"}], {"choices": ["{expected}"]}, r"'odd' \(expected\)"),
        ([{"id": "odd", "prompt": "x", "labels": {"foil": ""}}], {"choices": ["{foil}"]}, r"'odd' \(an empty contin"),
        ([{"id": "odd", "prompt": "x"}], {"expected": True}, "no stimulus has an expected text"),
        (
            [{"id": "odd", "prompt": "x"}],
            {"choices": ["q z " * 200]},
            r"context of 256 tokens: 'odd' \(1 tokens",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused_with_its_id(tmp_path: Path, listed: list[Any], score: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan_of(tmp_path, listed, score=score)


def test_scores_beside_experiments_are_refused(tmp_path: Path) -> None:
    hooks = {"experiment": ["activation_stats"]}
    with pytest.raises(ConfigError, match="not shown to experiments"):
        make_config(tmp_path, items(2), hooks=hooks, score={"expected": True})
    assert make_config(tmp_path, items(2), hooks=hooks, score={"top_k": 2}).score is not None


# --- runs -------------------------------------------------------------------------------------------------------------


SCORE = {"expected": True, "choices": [" the end", "{foil}", "{expected}"], "top_k": 3}


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that only scores."""
    folder = tmp_path_factory.mktemp("scored")
    summary = run(make_config(folder, items(12), hooks=None, score=SCORE), scheduler="serial")
    assert summary.status == "complete"
    scope: dict[str, Any] = {}
    exec("\n".join(summary.looks), scope)
    assert [row["sample_index"] for row in scope["scores"]] == list(range(12))
    return folder


def test_scores_are_those_of_the_instrument(scored: Path) -> None:
    loaded = pipelines.load(scored / "run")
    rows, texts = loaded.generations.to_pylist(), loaded.stimuli["prompt"].to_pylist()
    assert len(rows) == 12
    lists = [[row["expected"], *row["choices"]] for row in rows]
    with ember.open(scored / "tiny.gguf", threads=1) as model:
        found = model.score(texts, lists, top_k=3)
    for row, scores in zip(rows, found, strict=True):
        expected, *choices = scores
        assert row["expected_token_ids"] == list(expected.token_ids)
        assert row["expected_ranks"] == list(expected.ranks)
        assert row["expected_rank"] == expected.rank
        assert row["merged"] == expected.merged
        np.testing.assert_allclose(row["expected_log_probabilities"], expected.log_probabilities, rtol=0, atol=1e-4)
        assert row["expected_log_probability"] == math.fsum(row["expected_log_probabilities"])
        assert (row["expected_tokens"], row["expected_bytes"]) == (len(expected.token_ids), expected.n_bytes)
        np.testing.assert_allclose(
            row["choice_log_probabilities"], [one.log_probability for one in choices], rtol=0, atol=1e-4
        )
        assert row["choice_log_probabilities"][2] == row["expected_log_probability"]
        assert row["choice"] == int(np.argmax(row["choice_log_probabilities"]))
        assert row["choice_correct"] == (row["choices"][row["choice"]] == row["expected"])
        assert row["top_ids"] == list(expected.top.token_ids)
        np.testing.assert_allclose(row["top_log_probabilities"], expected.top.log_probabilities, rtol=0, atol=1e-4)
        assert (row["token_ids"], row["text"], row["stopped"], row["seed"], row["correct"]) == ([], "", "", -1, False)


def test_the_manifest_states_the_rule(scored: Path) -> None:
    told = manifest(scored / "run")
    assert told["generation"] is None
    assert told["scoring"] == {
        "boundary_rule": "joint tokens if they begin with the prompt's, else a fragment, flagged merged",
        "choices": SCORE["choices"],
        "continuations": 48,
        "expected": True,
        "logarithm": "natural",
        "merged": sum(row["merged"] + sum(row["choice_merged"]) for row in _rows(scored / "run")),
        "top_k": 3,
    }
    verify(scored / "run")


def test_another_choice_is_another_run(scored: Path) -> None:
    from pipelines.errors import IdentityError

    with pytest.raises(IdentityError, match=r"config\.score\.choices"):
        run(make_config(scored, items(12), hooks=None, score=SCORE | {"choices": [" x"]}), scheduler="serial")


def _rows(directory: Path) -> list[dict[str, Any]]:
    return pipelines.load(directory).generations.to_pylist()


def test_interventions_change_scores_where_they_act(tmp_path: Path) -> None:
    zero = {"operation": "zero", "site": "after_layer", "layers": [1], "position": "last", "where": {"foil": " a"}}
    plain = make_config(tmp_path, items(6), "plain", hooks=None, score=SCORE, engine={})
    acted = make_config(tmp_path, items(6), "acted", hooks={"intervene": [zero]}, score=SCORE, engine={})
    for config in (plain, acted):
        run(config, scheduler="serial")
    pairs = zip(_rows(tmp_path / "plain"), _rows(tmp_path / "acted"), strict=True)
    for before, after in pairs:
        hit = before["choices"][1] == " a"
        difference = abs(before["expected_log_probability"] - after["expected_log_probability"])
        assert (difference > 1e-3) if hit else (difference < 1e-4)


# --- drawing ----------------------------------------------------------------------------------------------------------


def test_draws_belong_to_seed_and_stimulus_whatever_the_units(tmp_path: Path) -> None:
    generate = {"max_tokens": 6, "temperature": 0.9, "top_k": 40, "top_p": 0.95, "seed": 11}
    found = []
    for name, rows, seed in (("a", 64, 11), ("b", 4096, 11), ("c", 64, 12)):
        config = make_config(
            tmp_path, items(10), name, hooks=None, generate=generate | {"seed": seed}, engine={"unit_rows": rows}
        )
        run(config, scheduler="serial")
        verify(tmp_path / name)
        found.append({row["stimulus_id"]: row["token_ids"] for row in _rows(tmp_path / name)})
    assert found[0] == found[1]
    assert sum(found[0][key] != found[2][key] for key in found[0]) > 5
    assert manifest(tmp_path / "a")["generation"] == generate | {
        "stop": [], "normalize": ["trim"],
        "chosen": "temperature, top_k, top_p, softmax, inverse CDF; Philox keyed by (seed, stimulus_id)",
    }  # fmt: skip


def test_a_part_that_is_computed_again_is_the_same(tmp_path: Path) -> None:
    config = make_config(tmp_path, items(12), hooks=None, generate={"max_tokens": 4, "temperature": 1}, score=SCORE)
    first = run(config, scheduler="serial")
    assert len(list((tmp_path / "run/generations").iterdir())) > 3
    (tmp_path / "run/generations/part-00001.parquet").unlink()
    again = run(config, scheduler="serial")
    assert (again.units_computed, again.semantic_hash) == (1, first.semantic_hash)


def test_a_draw_is_the_samplers_own(tmp_path: Path) -> None:
    generate = {"max_tokens": 3, "temperature": 0.7, "top_p": 0.9, "seed": 5}
    run(make_config(tmp_path, items(3), hooks=None, generate=generate), scheduler="serial")
    loaded = pipelines.load(tmp_path / "run")
    with ember.open(tmp_path / "tiny.gguf", threads=1) as model:
        for row, prompt in zip(loaded.generations.to_pylist(), loaded.stimuli.to_pylist(), strict=True):
            numbers, ids = generator(5, row["stimulus_id"]), list(prompt["token_ids"])
            for token in row["token_ids"]:
                assert draw(model.logits(tokens=[ids])[0], 0.7, 0, 0.9, numbers.random()) == token
                ids.append(token)
            assert row["seed"] == 5


def test_stop_texts_end_a_continuation_and_are_no_part_of_it(tmp_path: Path) -> None:
    generate = {"max_tokens": 12, "temperature": 1.5, "seed": 2}
    run(make_config(tmp_path, items(12), "free", hooks=None, generate=generate), scheduler="serial")
    free = {row["stimulus_id"]: row for row in _rows(tmp_path / "free")}
    letters = [
        text[len(text) // 2] for text in (row["text"] for row in free.values()) if len(text) > 3 and text.isprintable()
    ]
    stop = sorted(set(letters) - {"\ufffd"})[:2]
    assert stop
    config = make_config(tmp_path, items(12), "ended", hooks=None, generate=generate | {"stop": stop})
    run(config, scheduler="serial")
    verify(tmp_path / "ended")
    ends = 0
    for row in _rows(tmp_path / "ended"):
        whole = free[row["stimulus_id"]]
        assert whole["token_ids"][: len(row["token_ids"])] == row["token_ids"]
        at = min((found for found in (whole["text"].find(text) for text in stop) if found >= 0), default=None)
        if at is None:
            assert (row["token_ids"], row["stopped"], row["text"]) == (
                whole["token_ids"], whole["stopped"], whole["text"],
            )  # fmt: skip
        else:
            ends += 1
            assert (row["stopped"], row["text"]) == ("text", whole["text"][:at])
    assert ends


def test_comparison_follows_the_named_steps(tmp_path: Path) -> None:
    """The likeliest continuation with all its vowel marks taken for right once they are stripped."""
    generate = {"max_tokens": 12}
    listed = [{"id": "a", "prompt": "الجذر ك ت ب على وزن فَاعِل:", "expected": " كاتب"}]
    sarf = {"path": "builtin:sarf-nano"}
    found = {}
    for name, score in (("plain", None), ("bare", {"normalize": ["strip_diacritics"]})):
        run(
            make_config(tmp_path, listed, name, model=sarf, hooks=None, generate=generate, score=score),
            scheduler="serial",
        )
        verify(tmp_path / name)
        (found[name],) = _rows(tmp_path / name)
    assert found["plain"]["text"] == found["bare"]["text"] == " كَاتِب"
    assert [found[name]["correct"] for name in ("plain", "bare")] == [False, True]
    assert not found["bare"]["match_trimmed"]
    assert manifest(tmp_path / "bare")["generation"]["normalize"] == ["trim", "strip_diacritics"]


# --- the built-in model, on workers -----------------------------------------------------------------------------------


def sarf(folder: Path, name: str, **changes: Any) -> RunConfig:
    config: dict[str, Any] = {
        "schema": "ember.pipeline/v1",
        "name": name,
        "model": {"path": "builtin:sarf-nano"},
        "stimuli": {
            "generate": "root_pattern",
            "roots": ["كتب", "درس", "علم", "فتح"],
            "patterns": {
                "active": {"pattern": "1A2i3", "title": "اسم الفاعل", "labels": {"foil": " مَكْتَب"}},
                "passive": {"pattern": "ma12uu3", "title": "اسم المفعول", "labels": {"foil": " كَاتِب"}},
            },
            "templates": {"by_measure": {"text": "الجذر {root} على وزن {pattern}:", "reveals": ["root", "pattern"]}},
            "expect": " {surface}",
        },
        "generate": {"max_tokens": 12, "temperature": 0.8, "seed": 3, "stop": ["\n"]},
        "score": {"expected": True, "choices": ["{expected}", "{foil}"], "top_k": 2},
        "engine": {"unit_rows": 64},
        "output": {"dir": str(folder / name)},
    } | changes
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config, allow_unicode=True, sort_keys=False))
    return load_config(path)


@pytest.mark.slow
def test_two_workers_give_what_one_process_gives(tmp_path: Path) -> None:
    one = run(sarf(tmp_path, "one"), scheduler="serial")
    two = run(sarf(tmp_path, "two"), workers=2)
    assert one.semantic_hash == two.semantic_hash
    rows = _rows(tmp_path / "two")
    assert len(rows) == 8
    assert rows == _rows(tmp_path / "one")
    assert all(row["choice_correct"] and row["correct"] for row in rows)  # roots and measures that it has learnt
    assert all(row["expected_log_probability"] > -0.1 and set(row["expected_ranks"]) == {1} for row in rows)
    verify(tmp_path / "two")
