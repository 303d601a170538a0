"""`ember pipeline lint`: planted trouble is found with its ids, nothing is changed, nothing is run."""

import json

import pytest
from click.testing import CliRunner

from pipelines.cli.main import pipeline
from pipelines.config import load_config
from pipelines.lint import lint
from tests.faults.rig import ROOT, prompts, write_config

ROOTS = ROOT / "configs/roots.yaml"


@pytest.fixture
def linted(tmp_path):
    """Lint items with the built-in model; findings by code."""

    def look(items, **changes):
        model = {"path": "builtin:sarf-nano"}
        report = lint(load_config(write_config(tmp_path, items, model=model, **changes)))
        return {finding.code: finding for finding in report.findings}, report

    return look


def test_the_main_job_has_one_finding_and_it_is_meant():
    report = lint(load_config(ROOTS))
    assert [(f.code, f.severity) for f in report.findings] == [("same_last_token", "warning")]
    assert report.stimuli == 480
    assert report.tokens["targets"] == {"min": 5, "mean": 5.0, "max": 5, "bytes_per_token": 1.6}


def test_leaks_are_errors_with_their_stimuli(linted):
    found, report = linted(
        [{"id": "a", "prompt": "جمع كتاب", "labels": {"number": "جمع"}}, {"id": "b", "prompt": "قلم"}]
    )
    assert found["leak_in_text"].ids == ("a",)
    assert report.findings[0].severity == "error"
    assert report.strict_status == 1


def test_leaks_that_are_allowed_are_still_told(linted):
    items = [{"id": "a", "prompt": "جمع كتاب", "labels": {"number": "جمع"}}]
    found, report = linted(items, stimuli={"items": items, "allow_leaks": True})
    assert (found["leak_in_text"].severity, report.count("error")) == ("warning", 0)


def test_tokens_are_looked_at(linted):
    items = [
        {"id": "a", "prompt": "كتاب جديد", "labels": {"x": "1"}},
        {"id": "b", "prompt": "كتاب جديد", "labels": {"x": "1"}},
        {"id": "c", "prompt": "قلم"},
    ]
    found, _ = linted(items)
    assert found["same_tokens"].ids == ("a", "b")
    assert found["duplicate_text"].ids == ("a", "b")
    assert "same_last_token" not in found


def test_a_label_that_the_number_of_tokens_tells(linted):
    """M11: vocalised forms have more tokens than bare ones."""
    bare, full = ["كتب", "درس", "قلم", "علم"], ["كَتَبَ", "دَرَسَ", "قَلَمَ", "عَلِمَ"]
    items = [{"prompt": p, "labels": {"form": "bare"}} for p in bare]
    items += [{"prompt": p, "labels": {"form": "vocalised"}} for p in full]
    found, _ = linted(items)
    assert "tells the label 'form' for 100% of the stimuli" in found["length_tells_label"].message
    mixed = [item | {"labels": {"form": "xy"[i % 2]}} for i, item in enumerate(items)]
    assert "length_tells_label" not in linted(mixed)[0]


def test_control_tokens_and_prompts_that_do_not_fit(tmp_path):
    items = [{"id": "a", "prompt": "the <|endoftext|> end"}, {"id": "long", "prompt": "word " * 300}]
    found = {f.code: f for f in lint(load_config(write_config(tmp_path, items))).findings}
    assert "'long'" in found["unfit"].message
    assert found["unfit"].severity == "error"
    assert "trailing_space" in found


def test_treebanks_have_one_note_about_uneven_features(linted, tmp_path):
    rows = ["1\tكتب\tk\tVERB\t_\tA=1|B=2\t0\troot\t_\t_", "2\tقلم\tq\tNOUN\t_\tC=1\t1\tobj\t_\t_"]
    (tmp_path / "x.conllu").write_text("\n".join(rows) + "\n\n")
    found, report = linted([], stimuli={"file": "x.conllu"})
    assert found["uneven_label"].severity == "note"
    assert "3 labels stand on some stimuli only" in found["uneven_label"].message
    assert report.plain["source"]["sentences"] == 1


def test_words_and_machines_and_strictness(tmp_path):
    config = write_config(tmp_path, [f"{p} " for p in prompts(30)])
    run = CliRunner()
    told = run.invoke(pipeline, ["lint", str(config)], standalone_mode=False)
    assert told.return_value == 0
    assert "warning   [trailing_space] 30 prompts end in white space" in told.output
    assert "'item-000009', … (30 in all)" in told.output
    assert "item-000010" not in told.output
    record = json.loads(run.invoke(pipeline, ["lint", str(config), "--json"]).output)
    (spaced,) = [f for f in record["findings"] if f["code"] == "trailing_space"]
    assert (spaced["stimuli"], len(spaced["ids"]), spaced["severity"]) == (30, 10, "warning")
    assert record["steps"] == [{"step": "read", "after": 30}]
    assert run.invoke(pipeline, ["lint", str(config), "--strict"], standalone_mode=False).return_value == 1
    assert not (tmp_path / "run").exists()


def test_tokens_of_forms_and_sizes_of_classes_are_told(linted):
    items = [
        {"prompt": f"{word} هنا", "target": word, "template": script, "labels": {"script": script}}
        for script, words in {"bare": ["كتب", "درس"], "vocalised": ["كَتَبَ", "دَرَسَ", "عَلِمَ"]}.items()
        for word in words
    ]
    _, report = linted(items, stimuli={"items": items, "allow_leaks": True})
    assert report.tokens["targets of bare"]["max"] < report.tokens["targets of vocalised"]["min"]
    assert report.labels == {"script": {"values": 2, "rarest": 2, "commonest": 3}}
    assert "labels    values of each, and stimuli a value: script 2 (2 to 3)" in report.lines()
