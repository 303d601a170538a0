"""Version first, paths, sweeps."""

import os
from pathlib import Path

import pytest

from pipelines.config import load_config, load_configs
from pipelines.errors import ConfigError


def test_the_version_is_checked_before_anything_else(problems):
    assert problems("schema: ember.pipeline/v2\nfuture: {x: 1}\n") == [
        "x.yaml:1: schema: found 'ember.pipeline/v2', expected ember.pipeline/v1, the only version this Ember reads"
    ]
    assert problems("name: x\n") == ["x.yaml:1: schema: missing; write `schema: ember.pipeline/v1` first"]
    assert "is 'shema' a slip?" in problems("shema: ember.pipeline/v1\n")[0]


@pytest.mark.parametrize("text", ["", "- a\n", "text\n", "12\n"])
def test_a_config_is_a_mapping(problems, text):
    assert problems(text) == ["x.yaml:1: expected a mapping that begins with `schema: ember.pipeline/v1`"]


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yaml: no such file"):
        load_config(tmp_path / "absent.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file(write, minimal):
    path = write(minimal)
    path.chmod(0)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(path)


def test_input_paths_count_from_the_config(load, tmp_path, changed):
    config = load(changed("model", "model: {path: models/a.gguf}"))
    assert config.model.path == str(tmp_path / "models/a.gguf")
    config = load(changed("stimuli", "stimuli: {file: ../x.csv}"))
    assert Path(config.stimuli.file) == tmp_path / "../x.csv"
    assert load(changed("model", "model: {path: /m/a.gguf}")).model.path == "/m/a.gguf"
    assert load(changed("model", "model: {path: builtin:sarf-nano}")).model.path == "builtin:sarf-nano"


def test_the_output_folder_counts_from_the_working_directory(load, minimal):
    assert load(minimal).output.dir == "outputs/small"


@pytest.mark.parametrize("path", ["$HOME/m.gguf", "${HOME}/m.gguf", "~/m.gguf", "%HOME%/m.gguf"])
def test_no_environment_expansion(load, tmp_path, changed, path):
    assert load(changed("model", f'model: {{path: "{path}"}}')).model.path == str(tmp_path / path)


def test_the_source_is_known(write, minimal):
    path = write(minimal)
    assert load_config(path).source == path


def test_a_sweep_is_one_run_for_each_model(write, changed, tmp_path):
    digest = "0" * 64
    models = f"models: [a/one.Q8_0.gguf, {{path: two.gguf, sha256: '{digest}'}}, builtin:sarf-nano]"
    path = write(changed("model", models))
    configs = load_configs(path)
    assert [c.output.dir for c in configs] == [
        "outputs/small/one.Q8_0",
        "outputs/small/two",
        "outputs/small/sarf-nano",
    ]
    assert [c.name for c in configs] == ["small-one.Q8_0", "small-two", "small-sarf-nano"]
    assert configs[0].model.path == str(tmp_path / "a/one.Q8_0.gguf")
    assert configs[1].model.sha256 == digest
    assert all(c.source == path for c in configs)
    with pytest.raises(ConfigError, match="describes 3 runs"):
        load_config(path)


def test_a_sweep_of_one_loads_as_one_run(load, changed):
    assert load(changed("model", "models: [a.gguf]")).output.dir == "outputs/small/a"


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ("models: []", "models: found an empty list, expected a list of models"),
        ("models: a.gguf", "models: found 'a.gguf', expected a list of models"),
        ("models: [a/m.gguf, b/m.gguf]", "two of them would write 'outputs/small/m'"),
        ("models: [12]", "model: found 12, expected a mapping"),
        ("models:\n  - a.gguf\n  - {path: hf://x}", "x.yaml:5: model.path: found 'hf://x'"),
    ],
)
def test_sweeps_refused(problems, changed, models, said):
    assert said in "\n".join(problems(changed("model", models)))


def test_problems_that_all_runs_of_a_sweep_share_are_said_once(problems, changed):
    text = changed("model", "models: [a.gguf, b.gguf]") + "guard: 5\n"
    assert len(problems(text)) == 1


def test_model_and_models_exclude_each_other(problems, minimal):
    assert problems(minimal + "models: [a.gguf]\n") == ["x.yaml:7: models: found beside `model`; keep one of the two"]


def test_a_byte_order_mark_changes_nothing(write, minimal):
    plain = load_config(write(minimal))
    assert load_config(write("\ufeff" + minimal)) == plain
