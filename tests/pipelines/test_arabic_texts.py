"""Arabic that is hard on tools, carried whole from the config to the run, its exports, comparisons and pages.

Marks in two orders, tatweel, the ligature lam-alef, two directions in one text, digits of three kinds, emoji that are
several code points, and a null-like name: no byte may be lost, added, reordered or taken for markup.
"""

import csv
import html
import json
from pathlib import Path

import pytest

import ember
import pipelines
from pipelines.export import Exported

HARD = {
    "marks": "كَتَّبَ الطَّالِبُ",
    "marks-turned": "كَت\u0651\u064eبَ الط\u0651\u064eالِبُ",  # shadda before fatha: the same to the eye
    "tatweel": "كـــتـاب جمـيل",
    "ligature": "\ufefb بأس، \ufef7مر",  # presentation forms of لا and لأ
    "lam-alef": "لا بأس، لأمر",
    "directions": "قال John Smith (ابن علي) إن 3+4=7، و12٪ من ١٢",
    "isolates": "اسم \u2067كتاب\u2069 و\u202bعربي\u202c \u200fهنا\u200e",
    "emoji": "كتاب 👩🏽‍💻📚 ممتاز 🇪🇬",
    "markup": "<b>كتاب</b> & \"علم\", 'x'; =1+1 | ${درس}",
    "joiners": "می\u200cخواهم ه\u200d",
    "lines": "سطر أول\u2028سطر ثان\tبعد",
    "persian": "کتاب یک ۱۲",
}
TARGETS = {name: text.split()[-1] for name, text in HARD.items()}
LABELS = {name: {"نوع": "صَعْب" if i % 2 else "صعـب", "kind": name} for i, name in enumerate(HARD)}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hard")
    items = [
        {
            "id": f"{name}-ن",
            "prompt": text,
            "labels": LABELS[name],
            "target": TARGETS[name],
            "expected": " " + TARGETS[name],
        }
        for name, text in HARD.items()
    ]
    config = {
        "schema": "ember.pipeline/v1",
        "name": "hard",
        "model": {"path": "builtin:sarf-nano"},
        "stimuli": {"items": items, "allow_leaks": True},
        "hooks": {
            "capture": [{"site": "after_layer", "layers": [1], "position": {"span": "final"}}],
            "attention": [{"layers": [0]}],
        },
        "generate": {"max_tokens": 3},
        "guard": {"allow_chance": True},  # sarf-nano knows none of this
        "output": {"dir": str(folder / "run")},
    }
    (folder / "hard.yaml").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    pipelines.run(folder / "hard.yaml", scheduler="serial")
    return folder / "run"


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_byte_is_in_the_run(run_dir: Path) -> None:
    rows = {row["id"].removesuffix("-ن"): row for row in pipelines.load(run_dir, verify=True).stimuli.to_pylist()}
    with ember.open("builtin:sarf-nano", threads=1) as model:
        for name, text in HARD.items():
            row = rows[name]
            assert row["prompt"] == text
            assert row["label_نوع"] == LABELS[name]["نوع"]
            covered = text.encode()[row["target_byte_start"] : row["target_byte_end"]]
            assert covered.decode() == TARGETS[name]
            assert row["token_ids"] == list(model.tokenizer.encode(text).ids)


def test_lint_names_what_is_hard_and_only_that(run_dir: Path) -> None:
    found = {one.code: one for one in pipelines.lint_run(run_dir.parent / "hard.yaml").findings}
    stem = {code: {one.removesuffix("-ن") for one in finding.ids} for code, finding in found.items()}
    assert stem["tatweel"] == {"tatweel"}
    assert stem["presentation_forms"] == {"ligature"}
    assert stem["bidi_marks"] == {"isolates"}
    assert "marks-turned" in stem["mark_order"]
    assert "marks" not in stem["mark_order"]
    assert "persian" in stem["mixed_kaf"]
    assert "label_spelling" not in found  # صَعْب and صعـب are two texts for `fold`, which touches no letter or mark


@pytest.fixture(scope="module")
def exported(run_dir: Path) -> dict[str, Exported]:
    return {"npy": pipelines.export_run(run_dir, "npy"), "csv": pipelines.export_run(run_dir, "csv")}


@pytest.mark.parametrize("kind", ["npy", "csv"])
def test_every_byte_is_in_the_exports(run_dir: Path, exported: dict[str, Exported], kind: str) -> None:
    folder = exported[kind].directory
    stimuli = {row["label_kind"]: row for row in read_csv(folder / "hard_stimuli.csv")}
    assert {name: row["prompt"] for name, row in stimuli.items()} == HARD
    assert {name: row["target_text"] for name, row in stimuli.items()} == TARGETS
    assert not (folder / "hard_stimuli.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    answers = {row["stimulus_id"]: row["text"] for row in pipelines.load(run_dir).generations.to_pylist()}
    if kind == "csv":
        assert {row["stimulus_id"]: row["text"] for row in read_csv(folder / "hard_generations.csv")} == answers
    else:
        told = json.loads((folder / "hard_correctness.json").read_text(encoding="utf-8"))["stimuli"]
        assert {one["id"]: one["produced"] for one in told} == answers
        assert {one["id"].removesuffix("-ن"): one["expected"] for one in told} == {
            k: " " + v for k, v in TARGETS.items()
        }
    for name in ("hard_attention_attention", "hard_after_layer"):
        path = folder / (f"{name}_rows.csv" if kind == "npy" else f"{name}.csv")
        assert {row["stimulus_id"] for row in read_csv(path)} == {f"{key}-ن" for key in HARD}


def test_the_run_is_itself_and_comes_back(run_dir: Path) -> None:
    found = pipelines.compare(run_dir, run_dir)
    assert (found.identical, found.stimuli.common, found.stimuli.other_prompt) == (True, len(HARD), 0)
    assert pipelines.reproduce_run(run_dir, scheduler="serial").level == "nothing"


def test_pages_show_texts_as_texts(run_dir: Path) -> None:
    page = pipelines.report_run(run_dir).html
    assert "<b>كتاب" not in page
    card = (run_dir / "README.md").read_text(encoding="utf-8")
    assert "<b>كتاب</b>" not in card
    beside = pipelines.report_run(run_dir, run_dir).html
    assert "<b>كتاب" not in beside
    shown = html.unescape(page)
    assert "صعـب" in shown
    for control in ("\u202b", "\u2067", "\u200e", "\u200f"):
        assert control not in page  # what would turn the page's own text is named, not shown
