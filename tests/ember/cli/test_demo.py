"""`ember demo`: what it says is what the model does."""

import json

import pytest

from ember.cli.demo import PROMPTS
from ember.cli.main import cli, run

FORMS = {
    # worked out by the rules of Arabic morphology, not by the model
    "الجذر د ر س على وزن مَفْعُول:": " مَدْرُوس",
    "اسم الفاعل من الجذر ك ت ب:": " كَاتِب",
    "صيغة المبالغة من الجذر ك ز ف:": " كَزَّاف",
    "اسم الفاعل من الجذر ق و ل:": " قَائِل",
    "ماضي الافتعال من الجذر ص ب ر:": " اِصْطَبَرَ",
    "مصدر الافتعال من الجذر و ص ل:": " اِتِّصَال",
}


def call(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> str:
    assert run(lambda: cli.main(["demo", *arguments], standalone_mode=False)) == 0
    out, err = capfdbinary.readouterr()
    assert err == b""
    return out.decode()


@pytest.mark.parametrize("route", ["reference", "auto"])
def test_the_model_forms_the_words(capfdbinary, route: str) -> None:
    found = json.loads(call(capfdbinary, "--route", route, "--json"))["prompts"]
    assert {one["prompt"]: one["text"] for one in found if one["prompt"] in FORMS} == FORMS
    assert all(one["stopped"] == "stop" for one in found if one["prompt"] in FORMS)
    assert [one["prompt"] for one in found] == [prompt for prompt, _ in PROMPTS]


def test_prompts_are_shown_with_what_follows_them_arabic_first(capfdbinary) -> None:
    lines = call(capfdbinary).splitlines()
    shown = [line for line in lines[1:] if line and not line.startswith("#")]
    assert shown[: len(FORMS)] == [prompt + form for prompt, form in FORMS.items()]
    assert lines[0].startswith("builtin:sarf-nano: 5 layers of width 128")


def test_what_is_said_of_the_prompts_is_true() -> None:
    """Which roots and pairs were read stands in the split file (its roots are transliterated)."""
    from ember.assets_path import ASSETS

    split = json.loads((ASSETS / "sarf-nano.split.json").read_text(encoding="utf-8"))
    unseen_pairs = split["unseen_pairs"]
    assert "drs" in split["read"]
    assert "drs" not in unseen_pairs["passive_participle"]
    assert "ktb" in split["unseen"]
    assert "kzf" in split["unseen"]
    assert "qwl" in unseen_pairs["active_participle"]
    assert "ṣbr" in split["unnamed"]
    assert "wṣl" in unseen_pairs["masdar_viii"]
