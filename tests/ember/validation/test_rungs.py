"""The data of what has been shown: sane, answered by the least shown type, and the page made from it."""

import json
from pathlib import Path
from typing import Any

import pytest

import ember
from ember.errors import InputError
from ember.models import FAMILIES
from ember.tolerances import TOLERANCES
from ember.validation import page, rung_of, rungs
from ember.validation.compare import compare
from ember.validation.ladder import RUNGS, height
from ember.validation.recording import read_recording
from ember.validation.report import make_record


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "architecture": "llama",
        "quant_types": ["F32", "Q8_0"],
        "route": "fast",
        "rung": "activation reference",
        "model": {"name": "one", "sha256": "aa"},
        "reference": {"name": "llama.cpp"},
    } | changes


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    two = entry(quant_types=["F32", "Q4_K"], rung="golden logits", model={"name": "two", "sha256": "bb"})
    plain = entry(quant_types=["F32"], route="reference", model={"name": "three", "sha256": "cc"})
    monkeypatch.setattr(rungs, "entries", lambda: (entry(), two, plain))


@pytest.mark.usefixtures("known")
def test_the_least_shown_type_decides() -> None:
    assert rung_of("llama", ["F32", "Q8_0"], "fast").rung == "activation reference"
    mixed = rung_of("llama", {"F32": 9, "Q8_0": 4, "Q4_K": 2}, "fast")
    assert mixed.record() == {
        "rung": "golden logits",
        "by_type": {"Q4_K": "golden logits", "Q8_0": "activation reference"},
        "models": ["one", "two"],
    }
    assert rung_of("llama", ["F32", "Q8_0", "IQ1_S"], "fast").rung == "none"
    assert rung_of("llama", ["F32", "Q8_0"], "reference").rung == "none"
    assert rung_of("gpt2", ["F32", "Q8_0"], "fast").rung == "none"


@pytest.mark.usefixtures("known")
def test_vectors_of_a_quantised_file_do_not_speak_for_f32() -> None:
    assert rung_of("llama", ["F32"], "fast").rung == "none"
    assert rung_of("llama", ["F32"], "reference").rung == "activation reference"


def test_the_page_is_that_of_the_data() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: python -m ember.validation.page"


def test_every_entry_is_within_the_tolerances() -> None:
    for one in rungs.entries():
        assert one["architecture"] in FAMILIES
        assert one["rung"] in RUNGS
        assert one["route"] in page.ROUTES
        assert max(one["worst"].values()) < TOLERANCES["real_model_contribution"].bound
        assert one["cosine"] > 0.999999
        assert one["quant_types"] == sorted(one["quant_types"])
    assert list(rungs.entries()) == page.merged(rungs.entries(), [])


def test_every_family_and_both_routes_have_reached_the_activation_reference() -> None:
    for family in FAMILIES:
        for route in page.ROUTES:
            assert rung_of(family, ["F32"], route).rung == "activation reference", (family, route)


def test_rungs_are_ordered() -> None:
    assert [height(rung) for rung in ("none", *RUNGS)] == [0, 1, 2, 3, 4, 5]


def test_a_record_becomes_an_entry_and_takes_the_place_of_an_older_one(tiny: Path, recorded: Path) -> None:
    model, recording = ember.open(tiny, route="reference"), read_recording(recorded)
    record = json.loads(json.dumps(make_record(model, recording, compare(model, recording), named="tiny")))
    made = page.entry_of(record)
    assert (made["architecture"], made["rung"], made["greedy"]) == ("llama", "activation reference", "60/60")
    assert made["quant_types"] == ["F32", "Q4_0"]
    older = made | {"date": "2020-01-01"}
    assert page.merged([older], [made]) == [made]
    with pytest.raises(InputError, match="only what has been shown"):
        page.entry_of(record | {"rung": None})
    with pytest.raises(InputError, match="expected a record of `ember validate --out`"):
        page.entry_of({"a": 1})
