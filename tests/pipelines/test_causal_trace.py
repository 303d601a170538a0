"""Causal tracing: pairs, patches, effects, the two runs on the built-in model, and the picture."""

import csv
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

import ember
import pipelines
from ember.work import Continuation, InterventionWork, UnitWork
from pipelines.causal_trace import TraceConfig, load_trace, run_trace
from pipelines.causal_trace.config import SCHEMA, PairConfig
from pipelines.causal_trace.effects import Cell, Column, Effect, Panel, average
from pipelines.causal_trace.effects_table import effects_parquet, read_effects
from pipelines.causal_trace.heat_map import column_label, draw, picture
from pipelines.causal_trace.pairs import EVERYWHERE, Place, align_pairs, read_pairs
from pipelines.causal_trace.runs import baseline_config, patch_id
from pipelines.causal_trace.tracing import reads_right_to_left
from pipelines.cli.main import pipeline
from pipelines.errors import ConfigError, IdentityError, RunError
from pipelines.plan import make_plan
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import PLAIN

ROOT = Path(__file__).resolve().parents[2]
SWAP = {
    "pair": "كتب", "clean": "اسم الفاعل من الجذر ك ت ب:", "corrupt": "اسم المفعول من الجذر ك ت ب:",
    "expected": " كَاتِب", "roles": {"pattern": "اسم الفاعل", "root": "ك ت ب"},
}  # fmt: skip
SAME = SWAP | {"pair": "same", "corrupt": SWAP["clean"]}
LETTER = {
    "pair": "one token", "expected": "د",
    "clean": "اسم الفاعل من الجذر د ر س:", "corrupt": "اسم الفاعل من الجذر غ ر س:",
}  # fmt: skip


def trace_config(folder: Path, items: Sequence[dict[str, Any]], **more: Any) -> TraceConfig:
    told = {"schema": SCHEMA, "name": "small", "model": {"path": "builtin:sarf-nano"}, "pairs": {"items": list(items)}}
    return TraceConfig.model_validate(told | {"output": {"dir": str(folder / "trace")}} | more)


def run_serial(config: TraceConfig) -> Any:
    return run_trace(config, scheduler="serial")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A finished trace of three pairs at two sites."""
    config = trace_config(tmp_path_factory.mktemp("traced"), [SWAP, SAME, LETTER], sites=["after_layer", "after_mlp"])
    return config.output.path, run_serial(config)


# --- the runs ---------------------------------------------------------------------------------------------------------


def test_both_runs_are_sound_and_hold_what_was_asked(traced: tuple[Path, Any]) -> None:
    folder, summary = traced
    baseline, patched = (pipelines.load(folder / which, verify=True) for which in ("baseline", "patched"))
    assert len(baseline.stimuli) == 6
    assert {c.name: (c.site, c.layers) for c in baseline.captures} == {
        "after_layer": ("after_layer", (0, 1, 2, 3, 4)),
        "after_mlp": ("after_mlp", (0, 1, 2, 3, 4)),
        "control": ("before_layer", (0, 1, 2, 3, 4)),
    }
    assert len(patched.stimuli) == 3 * (2 * 5 * 13 + 1)
    assert len(patched.manifest.parts_of("generations")) < 12  # many patches in a unit
    assert (summary.pairs, summary.patches, summary.failed, summary.exit_status) == (3, 390, 0, 0)
    assert summary.control["pairs"] == 3
    assert summary.control["max_difference"] < 1e-5


def test_effects_are_those_of_the_engine_acted_on_by_hand(traced: tuple[Path, Any]) -> None:
    """Some patches, computed anew from captured rows, without plan, units or configs."""
    folder, _ = traced
    found = {(e.pair, e.site, e.layer, e.place.position): e for e in read_effects(folder / "effects.parquet")}
    model = ember.open("builtin:sarf-nano")
    for pair, site, layer, position in [
        ("كتب", "after_layer", 0, 2), ("كتب", "after_layer", 3, 11), ("كتب", "after_mlp", 1, 2),
        ("one token", "after_layer", 4, 11),
    ]:  # fmt: skip
        given = {"كتب": SWAP, "one token": LETTER}[pair]
        rows = model.capture([given["clean"]], site=site, layers=[layer], position="all")[site]
        clean, corrupt = (
            np.array(model.tokenizer.encode_ids([given[side]])[0], np.int32) for side in ("clean", "corrupt")
        )
        answer = tuple(model.tokenizer.encode_ids([given["clean"] + given["expected"]])[0][len(clean) :])
        act = InterventionWork("replace", site, (layer,), ((position,),), rows=rows[position].reshape(1, 1, -1))
        unit = UnitWork((corrupt,), continuations=(Continuation(0, answer),), interventions=(act,))
        wanted = sum(model.run_unit(unit).scores[0].log_probabilities)
        effect = found[pair, site, layer, position]
        assert effect.patched == pytest.approx(wanted, rel=2e-6, abs=1e-5)
        plain = UnitWork((corrupt,), continuations=(Continuation(0, answer),))
        assert effect.corrupt == pytest.approx(
            sum(model.run_unit(plain).scores[0].log_probabilities), rel=2e-6, abs=1e-5
        )


def restored_everywhere(model: ember.Model, site: str, layer: int) -> float:
    rows = model.capture([SWAP["clean"]], site=site, layers=[layer], position="all")[site]
    corrupt = np.array(model.tokenizer.encode_ids([SWAP["corrupt"]])[0], np.int32)
    answer = tuple(model.tokenizer.encode_ids([SWAP["clean"] + SWAP["expected"]])[0][len(corrupt) :])
    act = InterventionWork(
        "replace", site, (layer,), (tuple(range(len(corrupt))),), rows=rows.reshape(1, len(rows), -1)
    )
    unit = UnitWork((corrupt,), continuations=(Continuation(0, answer),), interventions=(act,))
    return sum(model.run_unit(unit).scores[0].log_probabilities)


def test_what_must_come_back_does_and_what_is_the_same_does_nothing(traced: tuple[Path, Any]) -> None:
    folder, summary = traced
    effects = read_effects(folder / "effects.parquet")
    same = [e for e in effects if e.pair == "same"]
    assert len(same) == 130
    assert all(abs(e.effect) < 1e-6 for e in same)
    # An answer of one token hangs on the last state alone.
    (last,) = [e for e in effects if (e.pair, e.site, e.layer, e.place.from_end) == ("one token", "after_layer", 4, 0)]
    assert last.patched == pytest.approx(last.clean, abs=1e-6)
    assert abs(last.clean - last.corrupt) > 0.1
    (everywhere,) = [e for e in effects if (e.pair, e.site, e.layer, e.place) == ("كتب", "after_layer", 3, EVERYWHERE)]
    wanted = restored_everywhere(ember.open("builtin:sarf-nano"), "after_layer", 3)
    assert everywhere.patched == pytest.approx(wanted, rel=2e-6, abs=1e-5)
    assert summary.control["max_difference"] < 1e-5


def family_control(folder: Path, name: str) -> dict[str, Any]:
    """How exactly everything comes back in a tiny model of a family."""
    folder.mkdir()
    model = tiny_family(folder / "m.gguf", PLAIN[name])
    pair = {"pair": "p", "clean": "the scribe wrote", "corrupt": "the scribk wrote", "expected": " ab"}
    more = {"model": {"path": str(model)}, "layers": [0], "guard": {"allow_chance": True}}
    summary = run_serial(trace_config(folder, [pair], **more))
    assert abs(summary.differences[0][1] - summary.differences[0][2]) > 0.1
    found: dict[str, Any] = summary.control
    return found


@pytest.mark.parametrize("name", PLAIN)
def test_everything_comes_back_in_every_family(tmp_path: Path, name: str) -> None:
    found = family_control(tmp_path / "family", name)
    assert found["pairs"] == 1
    assert found["max_difference"] < 1e-5


EXACT = """
import json, sys
from tests.pipelines.test_causal_trace import LETTER, SAME, SWAP, Path, pipelines, read_effects
from tests.pipelines.test_causal_trace import family_control, run_serial, trace_config
from tests.foundry.families_cases import PLAIN
folder = Path(sys.argv[1])
summary = run_serial(trace_config(folder, [SWAP, SAME, LETTER]))
effects = read_effects(folder / "trace/effects.parquet")
last = [e for e in effects if (e.pair, e.layer, e.place.from_end) == ("one token", 4, 0)][0]
print(json.dumps({
    "contract": pipelines.load(folder / "trace/baseline").manifest.origin.numerics["contract"],
    "control": summary.control, "same": max(abs(e.effect) for e in effects if e.pair == "same"),
    "last": [last.patched, last.clean],
    "families": {name: family_control(folder / name, name)["max_difference"] for name in PLAIN},
}))
"""


def test_under_contract_2_it_comes_back_bit_for_bit(tmp_path: Path) -> None:
    """Where a prompt's bits do not depend on its unit, nothing but equality will do."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    done = subprocess.run(
        [sys.executable, "-c", EXACT, str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    if told["contract"] != 2:
        pytest.skip("this processor's BLAS gives contract 1: bits depend on the unit")
    assert told["control"] == {"pairs": 3, "exact": 3, "max_difference": 0.0}
    assert told["same"] == 0.0
    assert told["last"][0] == told["last"][1]
    assert told["families"] == dict.fromkeys(PLAIN, 0.0)


def test_running_again_does_nothing_and_what_was_lost_is_made_again(traced: tuple[Path, Any], tmp_path: Path) -> None:
    folder, _ = traced
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert set(before) == {"patches.jsonl", "effects.parquet", "summary.json", "heat-map.png", "heat-map.svg"}
    copy = tmp_path / "trace"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "patched")
    (copy / "effects.parquet").unlink()
    config = trace_config(tmp_path, [SWAP, SAME, LETTER], sites=["after_layer", "after_mlp"])
    run_serial(config)
    told = [json.loads((one / "patched/manifest.json").read_bytes()) for one in (folder, copy)]
    parts = [[(p["path"], p["content_sha256"]) for p in one["parts"]] for one in told]
    assert parts[0] == parts[1]
    assert (copy / "effects.parquet").read_bytes() == before["effects.parquet"]
    for name in ("heat-map.png", "heat-map.svg"):
        assert (copy / name).read_bytes() == before[name]


def test_other_pairs_or_foreign_files_are_refused(traced: tuple[Path, Any], tmp_path: Path) -> None:
    folder, _ = traced
    shutil.copytree(folder, tmp_path / "trace")
    with pytest.raises(IdentityError, match="another run"):
        run_serial(trace_config(tmp_path, [SWAP, LETTER], sites=["after_layer", "after_mlp"]))
    (tmp_path / "trace/notes.txt").write_text("mine")
    with pytest.raises(IdentityError, match=r"notes\.txt"):
        run_serial(trace_config(tmp_path, [SWAP]))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        run_serial(trace_config(tmp_path, [SWAP], output={"dir": str(tmp_path / "file")}))


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "trace.yaml"
    told = {
        "schema": SCHEMA,
        "name": "cli",
        "model": {"path": "builtin:sarf-nano"},
        "layers": [-1],
        "pairs": {"items": [SWAP]},
    }
    path.write_text(json.dumps(told | {"output": {"dir": str(tmp_path / "out")}}), encoding="utf-8")
    done = CliRunner().invoke(pipeline, ["causal-trace", str(path), "--serial", "--json"])
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record == json.loads((tmp_path / "out/summary.json").read_bytes())
    assert record["patches"] == 13
    assert record["panels"][0]["layers"] == [4]
    words = CliRunner().invoke(pipeline, ["causal-trace", str(path), "--serial"])
    assert "1 pair, 13 patches" in words.stdout
    compared = CliRunner().invoke(pipeline, ["compare", str(tmp_path / "out/baseline"), str(tmp_path / "out/baseline")])
    assert "score       expected_log_probability: 2 of 2 the same" in compared.stdout


class Breaking:
    """A model that fails on units with the marked prompt: those that act on something, or those that do not."""

    def __init__(self, acting: bool) -> None:
        self._model, self._acting = ember.open("builtin:sarf-nano"), acting

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def run_unit(self, work: UnitWork, *more: Any, **named: Any) -> Any:
        marked = any("المفعول" in self._model.tokenizer.decode(prompt) for prompt in work.prompts)
        if marked and bool(work.interventions) == self._acting:
            raise ValueError("as ordered")
        return self._model.run_unit(work, *more, **named)


def open_breaking_patches(*_: Any, **__: Any) -> Any:
    return Breaking(acting=True)


def open_breaking_baseline(*_: Any, **__: Any) -> Any:
    return Breaking(acting=False)


def test_patches_that_fail_are_left_out_and_counted(tmp_path: Path) -> None:
    config = trace_config(tmp_path, [SWAP, LETTER], layers=[1])
    summary = run_trace(config, scheduler="serial", opener="tests.pipelines.test_causal_trace:open_breaking_patches")
    assert (summary.pairs, summary.patches, summary.failed, summary.exit_status) == (1, 13, 14, 3)
    assert {e.pair for e in read_effects(config.output.path / "effects.parquet")} == {"one token"}
    assert "13 patches, 14 failed" in summary.lines()[0]
    assert len((config.output.path / "patched/failures.jsonl").read_text().splitlines()) == 14


def test_a_baseline_with_failures_ends_the_trace(tmp_path: Path) -> None:
    config = trace_config(tmp_path, [SWAP, LETTER], layers=[1])
    with pytest.raises(RunError, match=r"prompts of .*baseline failed, 1 in all .*remove their pairs"):
        run_trace(config, scheduler="serial", opener="tests.pipelines.test_causal_trace:open_breaking_baseline")
    assert not (config.output.path / "patched").exists()


@pytest.mark.realmodel
def test_smollm2_moves_the_country_to_the_last_token(smollm2: Path, tmp_path: Path) -> None:
    pair = {
        "pair": "France", "expected": " Paris",
        "clean": "The capital of France is", "corrupt": "The capital of Italy is",
    }  # fmt: skip
    config = trace_config(tmp_path, [pair], model={"path": str(smollm2)}, layers=[0, 20, 26, 29])
    summary = run_serial(config)
    assert summary.control["max_difference"] < 1e-4
    effects = read_effects(config.output.path / "effects.parquet")
    (country,) = {e.place.position for e in effects if e.place.changed}
    found = {
        (e.layer, e.place.from_end == 0): e.recovery for e in effects if e.place.position in (country, country + 1)
    }
    assert [found[layer, False] > 0.9 for layer in (0, 20, 26, 29)] == [True, True, False, False]
    assert [found[layer, True] > 0.9 for layer in (0, 20, 26, 29)] == [False, False, True, True]
    assert found[29, True] == pytest.approx(1.0, abs=1e-5)


# --- pairs ------------------------------------------------------------------------------------------------------------


def aligned(folder: Path, items: Sequence[dict[str, Any]], align: str = "equal") -> Any:
    config = trace_config(folder, items, align=align)
    configs = read_pairs(config)
    return align_pairs(configs, make_plan(baseline_config(config, configs)), align)


def test_tokens_get_the_part_of_the_prompt_that_they_belong_to(tmp_path: Path) -> None:
    (pair,) = aligned(tmp_path, [SWAP])
    assert [(p.clean_token, p.role, p.role_index) for p in pair.places] == [
        ("<|begin|>", "text", 0), ("اسم", "pattern", 0), (" الفاعل", "pattern", 1), (" من", "after pattern", 0),
        (" الجذر", "after pattern", 1), (" ", "after pattern", 2), ("ك", "root", 0), (" ", "inside root", 0),
        ("ت", "root", 1), (" ", "inside root", 1), ("ب", "root", 2), (":", "last", 0),
    ]  # fmt: skip
    assert [p.position for p in pair.places if p.changed] == [2]
    assert pair.places[2].token == " المفعول"
    assert not (tmp_path / "trace").exists()


def test_a_part_that_normalising_changed_is_refused(tmp_path: Path) -> None:
    pair = SWAP | {"clean": "اسم الفاعل من الجذر ا\u0654 ت ب:", "roles": {"root": "ا\u0654 ت ب"}}
    pair |= {"corrupt": "اسم الفاعل من الجذر ا\u0654 ك ب:"}
    config = trace_config(tmp_path, [pair], tokenizer={"normalize": "nfc"}, layers=[0])
    with pytest.raises(ConfigError, match=r"'root' .*normal form"):
        run_serial(config)


LONGER = SWAP | {"corrupt": "ماضي الثلاثي على وزن من الجذر ك ت ب:"}


def test_prompts_of_unequal_length_are_refused_with_both_lists(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        run_serial(trace_config(tmp_path, [SAME, LONGER]))
    said = str(refused.value)
    assert "the clean prompt has 12 tokens, the corrupt one 14" in said
    assert "'اسم' | ' الفاعل' | ' من'" in said
    assert "'ماضي' | ' الثلاثي' | ' على' | ' وزن'" in said
    assert "align: end" in said
    assert not (tmp_path / "trace").exists()


def test_prompts_of_unequal_length_can_be_aligned_at_the_end(tmp_path: Path) -> None:
    summary = run_serial(trace_config(tmp_path, [SAME, LONGER], align="end", layers=[4]))
    assert summary.patches == 25
    assert len(summary.controls) == 1  # only where everything can be put back
    effects = [e for e in read_effects(tmp_path / "trace/effects.parquet") if e.pair == "كتب"]
    assert [(e.place.position, e.place.clean_position, e.place.from_end) for e in effects] == [
        (back + 2, back, 11 - back) for back in range(12)
    ]
    one = trace_config(tmp_path / "one", [LONGER | {"expected": "ك"}], align="end", layers=[4])
    run_serial(one)
    last = read_effects(one.output.path / "effects.parquet")[-1]
    assert last.patched == pytest.approx(last.clean, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": {"items": [SWAP, SWAP]}}, "listed twice"),
        (
            {"pairs": {"items": [SWAP | {"roles": {"x": "من "}, "pair": "p"}, SWAP | {"roles": {"x": "zz"}}]}},
            "occurs 0 times",
        ),
        ({"pairs": {"items": [SWAP | {"roles": {"last": ":"}}]}}, "choose another"),
        ({"pairs": {"items": [SWAP | {"roles": {"after root": ":"}}]}}, "choose another"),
        ({"pairs": {"items": [SWAP], "file": "x.csv"}}, "exactly one of the keys items and file"),
        ({"sites": ["after_logits"]}, "only sites of layers can be traced"),
        ({"sites": ["after_layer", "after_layer"]}, "listed twice"),
        ({"site": "after_layer"}, "did you mean 'sites'"),
        ({"schema": "ember.pipeline/v1"}, "expected ember.causal-trace/v1"),
        ({"align": "middle"}, "align"),
    ],
)
def test_configs_that_cannot_be_are_refused_with_their_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    told = {"schema": SCHEMA, "name": "bad", "model": {"path": "builtin:sarf-nano"}, "pairs": {"items": [SWAP]}}
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps(told | {"output": {"dir": str(tmp_path / "out")}} | change), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_trace(path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{path}:1: ")


def test_pairs_from_a_file(tmp_path: Path) -> None:
    def written(text: str) -> TraceConfig:
        (tmp_path / "pairs.csv").write_text(text, encoding="utf-8")
        return trace_config(tmp_path, [], pairs={"file": str(tmp_path / "pairs.csv"), "roles": ["root"]})

    head = "pair,clean,corrupt,expected,root\n"
    found = read_pairs(written(head + "a,الجذر ك ت ب:,الجذر ك ذ ب:, ك,ك ت ب\nb,x:,y:,z,\n"))
    assert found[0].roles == {"root": "ك ت ب"}
    assert found[0].expected == " ك"
    assert found[1] == PairConfig(pair="b", clean="x:", corrupt="y:", expected="z")
    for text, message in [
        (head, "no pairs in this file"),
        (head + "a,x,y,z,\na,x,y,z,\n", "is there 2 times"),
        (head + "a,x,y,,\n", r"pairs.csv:2: expected"),
        (head + "a,x,y,z,q\n", r"pairs.csv:2: .*occurs 0 times"),
        ("pair,clean,corrupt,root\na,x,y,z\n", "no column 'expected'"),
        (head.strip() + ",note\na,x,y,z,,n\n", "nothing uses the column 'note'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            read_pairs(written(text))


def test_the_pairs_that_ship_are_what_the_generator_states(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("causal_trace_figure", ROOT / "docs/figures/causal_trace.py")
    assert spec is not None
    assert spec.loader is not None
    figure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figure)
    with (ROOT / "configs/causal_trace.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == figure.rows()
    config = load_trace(ROOT / "configs/causal_trace.yaml")
    configs = read_pairs(config)
    pairs = align_pairs(configs, make_plan(baseline_config(config, configs)), "equal")
    assert all(sum(place.changed for place in pair.places) in (1, 2) for pair in pairs)


# --- effects and the picture ------------------------------------------------------------------------------------------


def effect(pair: str, layer: int, index: int, patched: float, *, clean: float = -1.0, role: str = "root") -> Effect:
    place = Place(index + 1, index + 1, 5 - index, 7, "ب", "ت" if pair == "b" else "ب", role, index)
    return Effect(pair, "g", "after_layer", layer, place, clean, -5.0, patched)


def test_effects_are_averaged_over_pairs_place_by_place() -> None:
    effects = [
        effect("a", 0, 0, -5.0), effect("a", 0, 1, -3.0), effect("a", 2, 0, -1.0), effect("a", 2, 1, -6.0),
        effect("b", 0, 0, -4.0, clean=-3.0), effect("b", 2, 0, -3.0, clean=-3.0),
    ]  # fmt: skip
    (panel,) = average(effects)
    assert (panel.pairs, panel.gap, panel.layers) == (2, 3.0, (0, 2))
    assert panel.columns == (Column("root", 0, "", 2, 1), Column("root", 1, "ب", 1, 0))
    assert panel.cells[0] == (Cell(2, 0.5, 1 / 6), Cell(1, 2.0, 0.5))
    assert panel.cells[1] == (Cell(2, 3.0, 1.0), Cell(1, -1.0, -0.25))


def test_a_pair_without_a_difference_recovers_nothing_and_says_so() -> None:
    for clean in (-5.0, -5.0 + 1e-6):
        (panel,) = average([effect("a", 0, 0, -5.0, clean=clean)])
        assert panel.cells[0][0].effect == 0.0
        assert math.isnan(panel.cells[0][0].recovery)


def test_effects_survive_their_table(tmp_path: Path) -> None:
    effects = [effect("a", 0, 0, -5.0), effect("b", 3, 1, -2.5, clean=-5.5), effect("b", 3, 2, -2.5, clean=-5.5)]
    path = tmp_path / "effects.parquet"
    path.write_bytes(effects_parquet(effects))
    assert read_effects(path) == effects
    table = pq.read_table(path)
    assert table["recovery"].to_pylist()[0] == 0.0
    assert not any(column.null_count for column in table.columns)
    path.write_bytes(b"no table")
    with pytest.raises(RunError, match="run it again"):
        read_effects(path)


@pytest.mark.parametrize(
    ("token", "role", "label"),
    [
        ("", "all", "all"),
        (" الجذر", "text", "الجذر"),
        (" ", "text", "␣"),
        ("َ", "text", "ـَ"),
        ("", "root", "root 3"),
        ("<s>", "text", "<s>"),
    ],
)
def test_labels_of_columns(token: str, role: str, label: str) -> None:
    assert column_label(Column(role, 2, token, 1, 0)) == label


def test_the_picture_is_drawn_from_right_to_left_and_is_the_same_each_time() -> None:
    columns = (Column("root", 0, "", 2, 2), Column("text", 0, "ب", 2, 0))
    cells = tuple(tuple(Cell(2, 1.0, value) for value in row) for row in ((0.5, -0.1), (math.nan, 1.2)))
    panel = Panel("group", "after_layer", 2, 3.0, (0, 1), columns, cells)
    other = replace(panel, group="other")
    figure, again = (draw([panel, other], "title", "caption " * 30, right_to_left=True) for _ in range(2))
    axis = figure.axes[0]
    assert axis.get_xlim()[0] > axis.get_xlim()[1]
    assert axis.get_ylim()[0] < axis.get_ylim()[1]  # layer 0 below
    weights = [label.get_fontweight() for label in axis.get_xticklabels()]
    assert weights == ["bold", "normal"]
    assert [text.get_text() for text in axis.texts] == ["50", "−10", "120"]
    for kind, begin in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        found = picture(figure, kind)
        assert found.startswith(begin)
        assert picture(again, kind) == found
    sites = draw([panel, replace(panel, site="after_mlp"), other], "", "", right_to_left=True).axes
    assert [axis.get_visible() for axis in sites[:4]] == [True, True, True, False]
    assert draw([panel], "", "", right_to_left=False).axes[0].get_xlim()[0] < 0


def test_dollar_signs_are_no_formulas() -> None:
    columns = (Column("$x_{$", 0, "", 1, 1), Column("text", 0, "$\\frac$", 1, 0))
    panel = Panel("a_{$ $b^$", "after_layer", 1, 3.0, (0,), columns, ((Cell(1, 1.0, 0.5), Cell(1, 1.0, 0.1)),))
    figure = draw([panel], "$\\no{$", "$^$", right_to_left=False)
    for kind in ("png", "svg"):
        assert len(picture(figure, kind)) > 1000
    assert "$x_{$ 1" in [label.get_text() for label in figure.axes[0].get_xticklabels()]


def test_direction_of_reading() -> None:
    assert reads_right_to_left(["الجذر ك ت ب:", "x"])
    assert not reads_right_to_left(["The root is ك ت ب", "form:"])


def test_ids_of_patches_say_where() -> None:
    place = effect("a", 0, 10, -1.0).place
    assert patch_id("كتب", "after_layer", 3, place) == "كتب/after_layer/3/11"
    assert patch_id("كتب", "after_layer", 3, EVERYWHERE) == "كتب/after_layer/3/all"


def test_the_blocks_of_the_tutorial(traced: tuple[Path, Any]) -> None:
    page = (ROOT / "docs/tutorials/causal-tracing.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(block.replace("outputs/causal-trace", str(traced[0])).replace("before_layer", "after_layer"), {})
    shown, short = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    told = [yaml.safe_load(text) for text in (shown, (ROOT / "configs/causal_trace.yaml").read_text(encoding="utf-8"))]
    assert told[0] == told[1]
    (restore,) = yaml.safe_load(short)["hooks"]["intervene"]
    kept = yaml.safe_load((traced[0] / "patched/config.yaml").read_text(encoding="utf-8"))["hooks"]["intervene"]
    assert restore.keys() <= kept[0].keys()
    assert [restore[key] for key in ("operation", "layers", "position")] == [
        kept[0][key] for key in ("operation", "layers", "position")
    ]
