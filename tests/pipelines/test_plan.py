import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ember.errors import EmberError, InputError, ModelError
from ember.positions import Position
from ember.units import build_tree
from pipelines.canonical import sha256_of
from pipelines.errors import ConfigError, RunError
from pipelines.estimates import check_disk, table_bytes, worker_memory
from pipelines.identity import plan_sha256
from pipelines.plan import Plan, make_plan
from pipelines.plan_report import plan_lines, plan_record
from pipelines.unit_file import read_unit_file, write_unit_file
from tests.faults.rig import make_config, prompts
from tests.foundry.tiny import tiny_llama


def plan_of(folder: Path, items: list[Any], **changes: Any) -> Plan:
    return make_plan(make_config(folder, items, **changes))


def test_samples_are_sorted_by_their_tokens_and_units_follow(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, prompts(40))
    tokens = [sample.tokens.tolist() for sample in plan.samples]
    assert tokens == sorted(tokens)
    assert [sample.sample_index for sample in plan.samples] == list(range(40))
    assert sorted(sample.stimulus.source_index for sample in plan.samples) == list(range(40))
    assert [unit.start for unit in plan.units] == [0, *(unit.end for unit in plan.units[:-1])]
    assert plan.units[-1].end == 40
    for unit in plan.units:
        mine = [np.array(t, np.int32) for t in tokens[unit.start : unit.end]]
        assert unit.rows == sum(map(len, mine))
        assert unit.rows_shared == len(build_tree(mine).tokens) <= 64


def test_the_same_config_makes_the_same_plan(tmp_path: Path) -> None:
    first, second = (plan_of(tmp_path, prompts(40)) for _ in range(2))
    assert first.units == second.units
    assert write_unit_file(tmp_path, first) == write_unit_file(tmp_path, second)


def test_unit_rows_default_to_a_sixteenth_but_not_to_a_few(tmp_path: Path) -> None:
    few = plan_of(tmp_path, prompts(40), engine={})
    assert (few.unit_rows, len(few.units)) == (512, 1)
    many = plan_of(tmp_path, [f"{i * 7919 % 10_007:05d} {i}" * 2 for i in range(1_000)], engine={})
    whole = build_tree([sample.tokens for sample in many.samples])
    assert many.unit_rows == -(-len(whole.tokens) // 16) > 512


def test_bytes_of_tokens_tile_the_prompt(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ["كَتَبَ الطالبُ رسالةً", "naïve 🙂 text"])
    for sample in plan.samples:
        assert sample.offsets[0, 0] == 0
        assert sample.offsets[-1, 1] == len(sample.stimulus.prompt.encode())
        assert (sample.offsets[1:, 0] == sample.offsets[:-1, 1]).all()


@pytest.mark.parametrize(
    ("in_file", "wanted", "has"),
    [
        (None, "file", False),
        (True, "file", True),
        (True, False, False),
        (False, True, True),
        (True, True, True),
    ],
)
def test_bos_follows_the_file_unless_told_otherwise(
    tmp_path: Path, in_file: bool | None, wanted: Any, has: bool
) -> None:
    tiny_llama(tmp_path / "tiny.gguf", n_layers=3, context=256, add_bos=in_file)
    plan = plan_of(tmp_path, ["one two"], tokenizer={"add_bos": wanted})
    bos = plan.source.tokenizer.bos_id
    assert plan.samples[0].tokens.tolist().count(bos) == int(has)
    assert plan.special_ids == ({bos} if has else set())
    if has:
        assert plan.samples[0].tokens[0] == bos
        assert plan.samples[0].offsets[0].tolist() == [0, 0]


def test_a_bos_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    tiny_llama(tmp_path / "tiny.gguf", n_layers=3, context=256, metadata={"tokenizer.ggml.bos_token_id": None})
    with pytest.raises(InputError, match="BOS") as refused:
        plan_of(tmp_path, ["one two"], tokenizer={"add_bos": True})
    assert refused.value.exit_status == 2


def test_an_empty_prompt_is_refused_with_its_id(tmp_path: Path) -> None:
    """T22: at the latest here, whatever made the prompt."""
    with pytest.raises(ConfigError, match="bad-one"):
        plan_of(tmp_path, [{"id": "good", "prompt": "x"}, {"id": "bad-one", "prompt": ""}])


def test_prompts_over_the_context_are_all_named(tmp_path: Path) -> None:
    long = [{"id": f"long-{i}", "prompt": "q " * 300} for i in range(7)]
    with pytest.raises(
        ConfigError, match=r"7 stimuli over the model's context of 256 tokens: 'long-0' \(\d+ tokens\)"
    ) as refused:
        plan_of(tmp_path, [{"id": "good", "prompt": "x"}, *long])
    assert "'long-4'" in str(refused.value)
    assert "'long-5'" not in str(refused.value)
    assert "and 2 more" in str(refused.value)
    assert refused.value.exit_status == 2


def test_the_context_must_hold_what_is_generated_too(tmp_path: Path) -> None:
    items = [{"id": "just", "prompt": "q" * 200}]
    n = len(plan_of(tmp_path, items).samples[0].tokens)
    assert plan_of(tmp_path, items, generate={"max_tokens": 256 - n}).max_tokens == 256 - n
    with pytest.raises(ConfigError, match=rf"'just' \({n} tokens \+ {257 - n} to generate\)"):
        plan_of(tmp_path, items, generate={"max_tokens": 257 - n})


def test_spans_by_byte(tmp_path: Path) -> None:
    """The target's tokens, Arabic marks included; the second occurrence when asked."""
    items = [
        {"id": "a", "prompt": "قرأ كِتَابًا جديدا", "target": "كِتَابًا"},
        {"id": "b", "prompt": "كتاب الكتاب كتاب", "target": "كتاب", "occurrence": 3},
    ]
    capture = {"capture": [{"site": "after_layer", "position": {"span": "all"}}]}
    plan = plan_of(tmp_path, items, hooks=capture)
    for i, sample in enumerate(plan.samples):
        start, end = sample.span_tokens or (0, 0)
        assert plan.captures[0].positions[i] == tuple(range(start, end))
        covered = sample.stimulus.prompt.encode()[sample.offsets[start, 0] : sample.offsets[end - 1, 1]]
        assert sample.stimulus.target is not None
        assert sample.stimulus.target.text.encode() in covered
        if sample.stimulus.id == "b":
            assert sample.offsets[end - 1, 1] == len(sample.stimulus.prompt.encode())


def test_captures_without_their_position_name_the_stimuli(tmp_path: Path) -> None:
    items = [{"id": "with", "prompt": "one two", "target": "two"}, {"id": "without", "prompt": "one two three"}]
    with pytest.raises(
        ConfigError, match=r"1 stimulus without the position that capture 'after_layer' asks for: 'without'"
    ):
        plan_of(tmp_path, items, hooks={"capture": [{"site": "after_layer", "position": "span"}]})
    with pytest.raises(ConfigError, match=r"'with' \(position index 9 does not exist in a prompt of \d tokens"):
        plan_of(tmp_path, items[:1], hooks={"capture": [{"site": "after_layer", "position": {"index": 9}}]})


def test_a_reason_that_all_stimuli_share_is_said_once(tmp_path: Path) -> None:
    span = {"capture": [{"site": "after_layer", "position": "span"}]}
    with pytest.raises(ConfigError) as refused:
        plan_of(tmp_path, [f"{word} two three" for word in "abcdefg"], hooks=span)
    reason = "(position span needs a target text that occurs in the prompt; none was found)"
    said = (
        f"7 stimuli without the position that capture 'after_layer' asks for {reason}: 'item-000000', 'item-000001', "
    )
    assert str(refused.value).startswith(said)
    assert str(refused.value).count(reason) == 1
    assert "'item-000004' and 2 more; change the capture's position" in str(refused.value)
    with pytest.raises(ConfigError, match=r"2 stimuli .* asks for: 'a' \(.* of 1 tokens; .*\), 'b' \(.* of 3 tokens; "):
        plan_of(
            tmp_path,
            [{"id": "a", "prompt": "x"}, {"id": "b", "prompt": "xyz"}],
            hooks={"capture": [{"site": "after_layer", "position": {"index": 9}}]},
        )


def test_layers_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"capture 'c': layers \[4, -5\] do not exist; the model has 3"):
        plan_of(tmp_path, ["x"], hooks={"capture": [{"name": "c", "site": "after_layer", "layers": [0, 4, -5]}]})


def test_another_file_than_the_config_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"sha256 is [0-9a-f]{{64}}, model.sha256 in the config is {'0' * 64}"):
        plan_of(tmp_path, ["x"], model={"path": "tiny.gguf", "sha256": "0" * 64})
    digest = make_plan(make_config(tmp_path, ["x"])).source.file.sha256()
    assert plan_of(tmp_path, ["x"], model={"path": "tiny.gguf", "sha256": digest}).samples


def test_a_missing_model_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(EmberError, match=r"absent\.gguf"):
        plan_of(tmp_path, ["x"], model={"path": "absent.gguf"})


def test_the_unit_file_gives_back_the_plan(tmp_path: Path) -> None:
    items = [{"prompt": p, "target": "number", "expected": " ok" if i % 2 else None} for i, p in enumerate(prompts(20))]
    items = [{k: v for k, v in item.items() if v is not None} for item in items]
    captures = [
        {"site": "after_layer", "position": {"span": "all"}},
        {"name": "m", "site": "after_mlp", "position": "mean"},
    ]
    plan = plan_of(tmp_path, items, hooks={"capture": captures}, generate={"max_tokens": 2})
    found = read_unit_file(tmp_path / write_unit_file(tmp_path, plan))
    stimuli = [sample.stimulus for sample in plan.samples]
    assert list(found.ids) == [stimulus.id for stimulus in stimuli]
    assert list(found.expected) == [stimulus.expected for stimulus in stimuli]
    assert list(found.expect_modes) == [stimulus.expect_mode for stimulus in stimuli]
    assert (found.max_tokens, found.stop_ids) == (2, tuple(plan.source.tokenizer.stop_ids))
    work = found.work(3, 7, 5)
    assert [p.tolist() for p in work.prompts] == [plan.samples[i].tokens.tolist() for i in range(3, 7)]
    assert work.captures[0].positions == plan.captures[0].positions[3:7]
    assert (work.captures[0].pooled, work.captures[1].pooled, work.guard_positions) == (False, True, 5)


def test_a_damaged_unit_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / write_unit_file(tmp_path, plan_of(tmp_path, prompts(20)))
    body = bytearray(path.read_bytes())
    body[-70] ^= 1
    path.write_bytes(body)
    with pytest.raises(RunError, match=r"units-\w+.arrays: the plan for workers cannot be read.*Delete the file"):
        read_unit_file(path)


def test_estimates(tmp_path: Path) -> None:
    captures = [
        {"site": "after_layer", "layers": [0, 2]},
        {"name": "all", "site": "after_mlp", "layers": [1], "position": "all"},
    ]
    plan = plan_of(tmp_path, prompts(40), hooks={"capture": captures})
    values = (2 * 40 + plan.rows) * 64 * 4
    assert values <= table_bytes(plan)["activations"] <= 2 * values + len(plan.units) * (6_000 + 3 * 1_600)
    assert worker_memory(plan).total > worker_memory(plan).process
    assert worker_memory(plan).cache == 0
    check_disk(tmp_path / "not/yet/there", 1000)
    with pytest.raises(RunError, match=r"up to 1000000000\.0 GB .* are free; free some space"):
        check_disk(tmp_path, 10**18)


def test_what_the_plan_says(tmp_path: Path) -> None:
    items = [
        {"id": "a", "prompt": "say <|end|> now"},
        {"id": "b", "prompt": "say it now"},
        {"id": "c", "prompt": "say it now"},
    ]
    told = plan_record(plan_of(tmp_path, items, generate={"max_tokens": 2}))
    assert (told["prompts"], told["max_tokens"], told["units"]) == (3, 2, 1)
    (capture,) = told["captures"]
    assert capture == {
        "name": "after_layer", "site": "after_layer", "layers": [0, 1, 2], "position": "last", "observe": "after",
        "where": {}, "rows": 3,
    }  # fmt: skip
    lines = plan_lines(told)
    assert any("all prompts end in the same token" in line for line in lines)
    assert any("prompt 'say <|end|> now'" in line for line in lines)
    assert any(line.startswith("note") and "another one" in line for line in lines)
    assert "workers   1 (by units)" in "\n".join(lines)


def test_positions_of_a_config_reach_the_plan(tmp_path: Path) -> None:
    captures = [{"site": "after_layer", "position": {"from_end": 1}}]
    config = make_config(tmp_path, ["one two three"], hooks={"capture": captures})
    assert config.hooks.capture[0].position == Position("from_end", 1)
    plan = make_plan(config)
    assert plan.captures[0].positions[0] == (len(plan.samples[0].tokens) - 2,)


def test_what_was_selected_and_changed_is_said(tmp_path):
    from pipelines.plan_report import plan_lines, plan_record
    from tests.faults.rig import make_config

    items = [{"prompt": f"كتـاب {i}", "labels": {"odd": str(i % 2)}} for i in range(8)]
    section = {
        "items": items,
        "normalize": ["strip_tatweel"],
        "select": {"where": {"odd": "1"}, "sample": {"count": 3}},
    }
    told = plan_record(make_plan(make_config(tmp_path, [], stimuli=section)))
    assert "stimuli   8 read, 4 after where, 3 after sample, 4 changed by strip_tatweel" in plan_lines(told)
    plain = plan_record(make_plan(make_config(tmp_path, items, name="plain")))
    assert not any(line.startswith("stimuli ") for line in plan_lines(plain))


def test_the_plans_hash_is_the_one_that_finished_runs_have(tmp_path: Path) -> None:
    """Spelt out, since a run made before must go on: units, tokens, positions, scored tokens, and nothing else."""
    plan = plan_of(tmp_path, prompts(6))
    ids = hashlib.sha256()
    for sample in plan.samples:
        ids.update(len(sample.tokens).to_bytes(4, "little") + sample.tokens.astype("<i4").tobytes())
    captures = [[c.name, c.site, c.layers, c.pooled, sha256_of([*c.positions])] for c in plan.captures]
    nothing = [sha256_of(array) for array in ([], [0], [0] * 7, [], [False] * 6)]
    units = [[unit.start, unit.end] for unit in plan.units]
    assert captures
    assert plan_sha256(plan) == sha256_of([units, ids.hexdigest(), captures, 0, nothing])
