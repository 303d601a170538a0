"""Reports from one end to the other: figures, files, what is absent, what is refused, causal traces, the command."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import pipelines
from ember.cli.main import cli
from ember.errors import EmberError, InputError
from pipelines.causal_trace import TraceConfig, run_trace
from pipelines.errors import RunError, VerifyError
from pipelines.report import Report, make_report, write_report
from pipelines.report.charts import VARIABLES, inline_svg
from tests.foundry.fake_run import make_run
from tests.foundry.probe_run import Word, write_probe_run

Runs = Callable[..., Path]


def copy(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to / run.name))


# --- figures ----------------------------------------------------------------------------------------------------------


def test_every_figure_is_there_twice(report: Report) -> None:
    names = {name.rpartition(".")[0] for name in report.figures}
    assert {"right-by-1-kind", "right-by-2-pattern", "right-by-3-root", "right-crossed", "norms", "cosines"} <= names
    for name in names:
        assert report.figures[f"{name}.png"].startswith(b"\x89PNG")
        assert b"<svg" in report.figures[f"{name}.svg"]
        assert f'id="figure-{name}"' in report.html


def test_a_figure_in_the_page_follows_its_colours(report: Report) -> None:
    svg = report.figures["norms.svg"]
    inlined = inline_svg(svg, "norms")
    assert "#0072b2" in svg.decode()
    assert not [colour for colour in VARIABLES if colour in inlined]
    assert "var(--series-1)" in inlined
    assert "xmlns" not in inlined
    assert "<metadata" not in inlined
    assert inlined.count('id="norms-') == inlined.count('id="')


def test_no_text_of_the_user_becomes_mathematics_or_markup(report: Report) -> None:
    svg = report.figures["right-by-1-kind.svg"]
    # Matplotlib keeps the texts that it drew as comments, escaped; none of them reaches the page.
    assert b"<img" not in svg
    assert b"&lt;img" in svg
    assert "img" not in inline_svg(svg, "x")


# --- what is absent ---------------------------------------------------------------------------------------------------


def test_sections_without_data_are_left_out_and_said(run_small: Runs, tmp_path: Path) -> None:
    bare = make_report(run_small(tmp_path / "bare", generate=None, score=None))
    assert "behaviour" not in bare.record
    assert "scores" not in bare.record
    assert "Nothing was generated and nothing scored" in bare.html
    assert any("No answers were judged" in one for one in bare.record["limits"]["limits"])
    alone = make_report(run_small(tmp_path / "alone", hooks={"capture": []}))
    assert "states" not in alone.record
    assert "No hidden states were kept." in alone.html
    assert not any("No probe" in one for one in alone.record["limits"]["limits"])


def test_a_run_in_which_prompts_failed_says_so_first(tmp_path: Path) -> None:
    make_run(tmp_path / "run", failed=(2, 5))
    found = make_report(tmp_path / "run")
    assert found.record["provenance"]["failed"] == 2
    assert found.record["warnings"]["warnings"][0].startswith("2 of 13 prompts failed")
    assert "2 of them failed and are left out" in found.html
    assert any("rung of validation is smoke" in one for one in found.record["warnings"]["warnings"])


def test_a_run_in_which_all_prompts_failed_still_has_a_page(tmp_path: Path) -> None:
    make_run(tmp_path / "run", units=(2, 1), failed=(0, 1, 2))
    found = make_report(tmp_path / "run")
    assert not {"behaviour", "scores", "states"} & found.record.keys()
    assert found.record["warnings"]["warnings"][0].startswith("3 of 3 prompts failed")


def test_predictions_far_worse_than_chance_are_not_said_to_be_near_it(run_small: Runs, tmp_path: Path) -> None:
    """Words that sarf-nano never read: its loss is far above that of guessing."""
    items = [{"prompt": f"seven letters in the {word} window were written"} for word in ("green", "old")]
    more = {"stimuli": {"items": items}, "guard": {"allow_chance": True}, "generate": None, "score": None}
    found = make_report(run_small(tmp_path / "strange", **more))
    (said,) = (one for one in found.record["warnings"]["warnings"] if "chance" in one)
    assert said == "The model’s predictions on its own prompts are no better than chance."
    assert "near chance" not in found.html


def test_what_acted_on_the_model_is_said(run_small: Runs, tmp_path: Path) -> None:
    act = {"operation": "zero", "site": "after_mlp", "layers": [1], "position": "last"}
    hooks = {"intervene": [act], "capture": [{"site": "after_layer", "observe": "after"}]}
    found = make_report(run_small(tmp_path / "acted", hooks=hooks))
    assert "those of the changed model" in found.html
    assert "after_mlp" in found.html
    assert any("The model was changed" in one for one in found.record["warnings"]["warnings"])


def test_warnings_are_those_of_this_run(report: Report) -> None:
    told = " ".join(report.record["warnings"]["warnings"])
    assert "Prompts give the label pattern (21 of 21) away" in told
    assert "5 classes of root have fewer than 5 prompts" in told
    assert "The label kind is uneven" in told
    assert "U+202E" in told


def test_prompts_of_the_same_tokens_are_a_matter_for_other_splits_than_embers(tmp_path: Path) -> None:
    """Three of five prompts are one text of the same two tokens; two repeat the first."""
    words = [Word({"kind": f"k{i % 2}"}, "a b" if i < 3 else f"c {i}", (1, 2 + max(0, i - 2))) for i in range(5)]
    states = np.zeros((5, 4), np.float32)
    run = write_probe_run(tmp_path / "run", words, lambda *_: states, width=4)
    told = " ".join(make_report(run).record["warnings"]["warnings"])
    assert "2 prompts repeat the very tokens of an earlier one. Ember’s own probes keep such prompts in" in told
    assert "whoever splits otherwise must see to it" in told
    assert "may put both on its two sides" not in told


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_damaged_run_is_refused(small: Path, tmp_path: Path) -> None:
    run = copy(small, tmp_path)
    part = next((run / "generations").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(VerifyError, match="bytes, the manifest says"):
        make_report(run)


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a directory"):
        make_report(tmp_path / "absent")
    with pytest.raises(RunError, match="no finished run"):
        make_report(tmp_path)


def test_without_matplotlib_it_says_what_to_install(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(EmberError, match=r"pip install \"ember\[analysis\]\""):
        make_report(small)


def test_probes_belong_to_one_run(small: Path) -> None:
    with pytest.raises(InputError, match="probes belong to one run"):
        make_report(small, small, probes=small)


def test_a_page_is_written_whole_or_not_at_all(report: Report, tmp_path: Path) -> None:
    written = write_report(report, tmp_path / "new/page.html", tmp_path / "new/figures")
    assert (tmp_path / "new/page.html").read_text(encoding="utf-8") == report.html
    assert len(written) == 1 + len(report.figures) == 1 + len(list((tmp_path / "new/figures").iterdir()))
    with pytest.raises(RunError, match="is a directory"):
        write_report(report, tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["figures", "page.html"]


# --- two runs ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def acted(run_small: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run with the states after layer 1 set to zero at the last token, and one prompt fewer."""
    act = {"operation": "zero", "site": "after_layer", "layers": [1], "position": "last"}
    hooks = {"intervene": [act], "capture": [{"site": "after_layer", "position": "last", "observe": "after"}]}
    return run_small(tmp_path_factory.mktemp("acted") / "acted", hooks=hooks)


def test_two_runs_side_by_side(small: Path, acted: Path) -> None:
    found = make_report(small, acted)
    correct = [
        pd.concat([pd.read_parquet(path) for path in (run / "generations").glob("*.parquet")]).set_index("stimulus_id")
        for run in (small, acted)
    ]
    right = pd.DataFrame({"a": correct[0]["correct"], "b": correct[1]["correct"]})
    told = found.record["answers"]
    assert (told["n"], told["a"]["right"], told["b"]["right"]) == (21, right["a"].sum(), right["b"].sum())
    assert told["only_a"] == (right["a"] & ~right["b"]).sum() > 0
    assert told["difference"] == pytest.approx((right["b"].astype(int) - right["a"]).mean())
    assert found.record["parted"]["after_layer"]["first_apart"] == 1
    assert found.record["differences"] == {"identical": False, "comparable": True}
    sections = [
        f'<section id="{name}"'
        for name in ("provenance-a", "provenance-b", "differences", "answers", "parted", "warnings-a", "warnings-b")
    ]
    places = [found.html.index(one) for one in sections]
    assert places == sorted(places)


def test_a_run_beside_itself_is_identical(small: Path) -> None:
    found = make_report(small, small)
    assert found.record["differences"] == {"identical": True, "comparable": True}
    assert found.record["answers"]["p"] == 1.0
    assert "Both runs are identical in everything compared." in found.html


def test_what_is_so_for_one_of_two_runs_alone_is_not_said_of_both(small: Path, run_small: Runs, tmp_path: Path) -> None:
    drawn = run_small(tmp_path / "drawn", generate={"max_tokens": 12, "temperature": 0.5, "seed": 1})
    likeliest = "Answers were the likeliest token at every step"

    def said(a: Path, b: Path) -> list[str]:
        limits = make_report(a, b).record["limits"]["limits"]
        return [one.partition(likeliest)[0] for one in limits if likeliest in one]

    assert (said(small, small), said(small, drawn), said(drawn, small)) == ([""], ["A: "], ["B: "])
    assert said(drawn, drawn) == []


# --- causal traces ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal trace of one pair."""
    out = tmp_path_factory.mktemp("trace") / "trace"
    pair = {
        "pair": "كتب", "clean": "اسم الفاعل من الجذر ك ت ب:", "corrupt": "اسم الفاعل من الجذر ر ت ب:",
        "group": "radical", "expected": " كَاتِب",
    }  # fmt: skip
    told: dict[str, Any] = {
        "schema": "ember.causal-trace/v1", "name": "one", "model": {"path": "builtin:sarf-nano"}, "layers": [0, 2, 4],
        "pairs": {"items": [pair]}, "sites": ["before_layer", "after_mlp"], "output": {"dir": str(out)},
    }  # fmt: skip
    run_trace(TraceConfig.model_validate(told), scheduler="serial")
    return out


def test_a_causal_trace_is_reported_from_its_effects(trace: Path) -> None:
    found = make_report(trace)
    effects = pd.read_parquet(trace / "effects.parquet")
    told = found.record["trace"]
    assert (told["pairs"], told["patches"]) == (1, len(effects))
    assert {one["site"]: one["strongest"][0]["recovery"] for one in told["panels"]} == pytest.approx(
        effects[effects["role"] != "all"].groupby("site")["recovery"].max().to_dict()
    )
    assert told["control"]["pairs"] == 1
    assert told["control"]["max_difference"] < 1e-6
    assert {"trace-before-layer.png", "trace-after-mlp.svg"} <= set(found.figures)
    assert "Prompts are read from right to left" in found.html


def test_effects_that_the_runs_do_not_give_are_refused(trace: Path, tmp_path: Path) -> None:
    edited = copy(trace, tmp_path)
    effects = pd.read_parquet(edited / "effects.parquet")
    effects.loc[3, "patched"] += 1.0
    effects.to_parquet(edited / "effects.parquet")
    with pytest.raises(VerifyError, match="the two runs give"):
        make_report(edited)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_beside_the_run_which_stays_sound(small: Path, tmp_path: Path) -> None:
    run = copy(small, tmp_path)
    done = CliRunner().invoke(cli, ["report", str(run)])
    assert done.exit_code == 0, done.output
    assert (run / "report.html").read_text(encoding="utf-8") == make_report(run).html
    assert str(run / "report.html") in done.output
    assert pipelines.load(run, verify=True).manifest.samples == 21


def test_the_command_for_machines(small: Path, tmp_path: Path) -> None:
    arguments = ["report", str(small), "--out", str(tmp_path / "x.html"), "--figures", str(tmp_path / "f"), "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["behaviour"]["all"]["right"] == 14
    assert sorted(record["written"]) == sorted(str(path) for path in [tmp_path / "x.html", *(tmp_path / "f").iterdir()])


def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["report", str(tmp_path)])
    assert isinstance(done.exception, EmberError)


def test_findings_of_experiments_are_counted(run_small: Runs, tmp_path: Path) -> None:
    found = make_report(run_small(tmp_path / "run", hooks={"experiment": [{"use": "activation_stats"}]}, score=None))
    assert "What experiments found stands in the run under" in found.html
    assert "(21 prompts)" in found.html
    assert "looked on while the model ran and changed nothing" in found.html
    assert "The model was changed" not in found.html
    assert not any("The model was changed" in one for one in found.record["warnings"]["warnings"])
