"""From a whole run to its stimuli; the main job's own."""

from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.stimuli import build_set, build_stimuli
from pipelines.stimuli.checks import find
from pipelines.stimuli.morphology import apply

ROOTS = Path(__file__).parents[3] / "configs" / "roots.yaml"


@pytest.fixture(scope="module")
def roots():
    return load_config(ROOTS)


def test_the_main_job_is_large_enough(roots):
    assert len(roots.stimuli.roots) >= 20
    assert len(roots.stimuli.patterns) == 10
    assert len(roots.stimuli.templates) == 2
    stimuli = build_stimuli(roots)
    assert len(stimuli) == len(roots.stimuli.roots) * 10 * 2 >= 400
    assert len({s.prompt for s in stimuli}) == len(stimuli)
    assert len({s.id for s in stimuli}) == len(stimuli)


def test_the_main_job_covers_every_kind_of_root(roots):
    kinds = {root.labels["root_class"] for root in roots.stimuli.roots}
    assert kinds == {"strong", "assimilated", "hollow", "defective", "geminate", "hamzated", "nonce"}


def test_the_main_job_s_first_stimulus(roots):
    """Fixed on purpose: the built-in model is trained on exactly these strings."""
    first, second = build_stimuli(roots)[:2]
    assert first.prompt == "الجذر ك ت ب على وزن فَاعِل:"
    assert second.prompt == "اسم الفاعل من الجذر ك ت ب:"
    assert first.expected == second.expected == " كَاتِب"
    assert first.prompt.encode()[first.target.start : first.target.end].decode() == "ك ت ب"
    assert first.labels == {"root": "كتب", "pattern": "active_participle", "gloss": "write", "root_class": "strong"}


def test_every_target_is_the_root_and_every_prompt_ends_in_a_colon(roots):
    for stimulus in build_stimuli(roots):
        data = stimulus.prompt.encode()
        letters = data[stimulus.target.start : stimulus.target.end].decode()
        form = apply(stimulus.labels["root"], roots.stimuli.patterns[stimulus.labels["pattern"]].pattern)
        assert letters == " ".join(form.root_ar)
        assert stimulus.expected == f" {form.surface}"
        assert stimulus.prompt.endswith(":")


def test_the_main_job_has_one_finding_and_it_is_meant(roots):
    found = build_set(roots)
    assert found.dropped == ()
    assert [finding.code for finding in find(found.stimuli)] == ["same_ending"]


def test_another_model_takes_one_line(roots, tmp_path):
    lines = ROOTS.read_text(encoding="utf-8").splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("model:")]
    lines[at] = "model: {path: /data/other.gguf}"
    path = tmp_path / "roots.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    other = load_config(path)
    assert other.model.path == "/data/other.gguf"
    assert build_stimuli(other) == build_stimuli(roots)


def test_building_twice_gives_the_same(roots):
    assert build_stimuli(roots) == build_stimuli(load_config(ROOTS))


def test_normalisation_is_the_run_s(tmp_path):
    path = tmp_path / "x.yaml"
    text = (
        "schema: ember.pipeline/v1\nname: x\nmodel: {path: m.gguf}\noutput: {dir: o}\ngenerate: {max_tokens: 1}\n"
        "stimuli: {items: ['\u0627\u0654']}\n"
    )
    path.write_text(text, encoding="utf-8")
    assert build_stimuli(load_config(path))[0].prompt == "\u0627\u0654"
    path.write_text(text + "tokenizer: {normalize: nfc}\n", encoding="utf-8")
    (stimulus,) = build_stimuli(load_config(path))
    assert (stimulus.prompt, stimulus.original) == ("\u0623", "\u0627\u0654")


def test_files_count_from_the_config(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "s.csv").write_text("prompt\nكتاب\n", encoding="utf-8")
    path = tmp_path / "x.yaml"
    path.write_text(
        "schema: ember.pipeline/v1\nname: x\nmodel: {path: m.gguf}\noutput: {dir: o}\ngenerate: {max_tokens: 1}\n"
        "stimuli: {file: data/s.csv}\n",
        encoding="utf-8",
    )
    assert build_stimuli(load_config(path))[0].prompt == "كتاب"


@pytest.mark.parametrize(
    ("scalar", "prompt"),
    [("كلمة  ", "كلمة"), ('"كلمة "', "كلمة "), ("|\n        كلمة", "كلمة\n"), ("|-\n        كلمة", "كلمة")],
)
def test_white_space_of_yaml_scalars_is_kept_and_reported(tmp_path, scalar, prompt):
    """T25."""
    path = tmp_path / "x.yaml"
    path.write_text(
        "schema: ember.pipeline/v1\nname: x\nmodel: {path: m.gguf}\noutput: {dir: o}\ngenerate: {max_tokens: 1}\n"
        f"stimuli:\n  items:\n    - prompt: {scalar}\n",
        encoding="utf-8",
    )
    stimuli = build_stimuli(load_config(path))
    assert stimuli[0].prompt == prompt
    assert bool(find(stimuli)) is prompt[-1].isspace()
