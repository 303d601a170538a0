"""The `hooks` section: what it means, and what it refuses, with file, line and key."""

import json

import pytest
import yaml

from ember.positions import Position
from ember.work import ALL_STEPS
from pipelines.config import config_sha256, dump, identity, load_config
from pipelines.config.hooks import CaptureSource, RunSource, VectorSource
from pipelines.config.selectors import FromLabel, LabelledPosition, LayerRange

GENERATE = "generate: {max_tokens: 4}\n"


@pytest.fixture
def hooks(changed):
    """The minimal config with another `hooks` section, written in one line."""
    return lambda text, more="": changed("hooks", f"hooks: {text}") + more


def test_a_whole_plan(load, hooks, tmp_path):
    text = hooks(
        """
  capture:
    - {site: after_layer, layers: {from: 2, to: -1}, position: generated, observe: before, where: {kind: [a, b], x: y}}
  intervene:
    - {operation: zero, site: after_mlp, layers: all}
    - {operation: scale, site: before_logits, strength: 2}
    - {operation: add, site: after_mlp, layers: [0], position: {index: "{at}"}, strength: -0.5, source: {vector: v.npy}}
    - {operation: interpolate, site: after_mlp, layers: "{l}", position: "{at}",
       source: {capture: after_layer, layer: 0}}
    - {operation: restore, site: after_mlp, layers: {from: "{a}", to: 3}, source: {run: runs/base}, where: {kind: a}}
    - {operation: replace, site: after_layer, layers: [1], position: {span: all},
       source: {run: runs/base, capture: c, stimulus: "{clean}", position: span, layer: -1}}
  experiment:
    - activation_stats
    - {use: mine.py:Mine, options: {depth: 2}, where: {kind: a}}
""",
        GENERATE,
    )
    found = load(text).hooks
    (capture,) = found.capture
    assert (capture.layers, capture.position) == (LayerRange(2, -1), Position("generated", ALL_STEPS))
    assert (capture.observe, capture.where) == ("before", (("kind", ("a", "b")), ("x", ("y",))))
    zero, scale, add, mix, restore, replace = found.intervene
    assert (zero.layers, zero.position, zero.source, zero.factor) == ("all", Position(), None, 1.0)
    assert (scale.layers, scale.factor) == (None, 2.0)
    assert add.source == VectorSource(vector=str(tmp_path / "v.npy"))
    assert (add.position, add.factor) == (LabelledPosition("index", FromLabel("at")), -0.5)
    assert (mix.layers, mix.position) == (FromLabel("l"), LabelledPosition("", FromLabel("at")))
    assert mix.source == CaptureSource(capture="after_layer", layer=0)
    assert restore.layers == LayerRange(FromLabel("a"), 3)
    assert restore.source == RunSource(run=str(tmp_path / "runs/base"))
    assert (restore.source.stimulus, restore.source.position, restore.source.layer) == ("same", "same", "same")
    assert (replace.source.stimulus, replace.source.position, replace.source.layer) == ("{clean}", Position("span"), -1)
    stats, mine = found.experiment
    assert (stats.use, stats.options, stats.where) == ("activation_stats", {}, ())
    assert (mine.use, mine.options) == (f"{tmp_path}/mine.py:Mine", {"depth": 2})


def test_a_plan_is_written_down_as_it_was_read(load, hooks, write, tmp_path):
    config = load(
        hooks(
            """
  capture:
    - {site: after_layer, layers: {from: 0, to: 1}, position: {span: all, occurrence: 2}, observe: after, where: {k: a}}
  intervene:
    - {operation: add, site: after_mlp, layers: ["{l}", 0], position: {from_end: "{at}"}, source: {vector: v.npy}}
    - {operation: restore, site: after_mlp, layers: {from: "{a}", to: 3}, source: {run: base, position: {index: 2}}}
  experiment: [{use: mine.py:Mine, options: {depth: [1, null, {x: 0.5}]}}]
""",
            GENERATE,
        )
    )
    again = load_config(write(dump(config)))
    assert again == config
    assert yaml.safe_load(dump(config))["hooks"]["intervene"][0]["layers"] == ["{l}", 0]
    assert config_sha256(again) == config_sha256(config)


def test_where_files_lie_is_no_part_of_the_identity(load, hooks):
    def hashed(folder: str) -> str:
        sources = f"{{vector: {folder}/v.npy}}", f"{{run: {folder}/base}}"
        acts = [f"{{operation: replace, site: after_mlp, layers: [0], source: {source}}}" for source in sources]
        section = f"{{intervene: [{', '.join(acts)}], capture: [], experiment: [{{use: {folder}/mine.py:Mine}}]}}"
        config = load(hooks(section, GENERATE))
        assert folder not in json.dumps(identity(config))
        return config_sha256(config)

    assert hashed("here") == hashed("there")


@pytest.mark.parametrize(
    ("section", "key", "said"),
    [
        (
            "{intervene: [{operation: zero, site: after_mlp, layers: all}], capture: [{site: after_mlp}]}",
            "hooks.capture.0",
            "write `observe: before` or `observe: after`",
        ),
        ("{intervene: [{operation: zer, site: after_mlp, layers: all}]}", "hooks.intervene.0.operation", "'zero'?"),
        ("{intervene: [{operation: zero, site: after_mlp}]}", "hooks.intervene.0", "needs `layers`"),
        ("{intervene: [{operation: zero, site: after_logits, layers: [0]}]}", "hooks.intervene.0", "remove `layers`"),
        (
            "{intervene: [{operation: zero, site: after_logits, position: {index: 0}}]}",
            "hooks.intervene.0",
            "last token and at generated ones",
        ),
        ("{intervene: [{operation: scale, site: after_mlp, layers: all}]}", "hooks.intervene.0", "needs `strength`"),
        (
            "{intervene: [{operation: zero, site: after_mlp, layers: all, strength: 1}]}",
            "hooks.intervene.0",
            "zero has no strength",
        ),
        ("{intervene: [{operation: add, site: after_mlp, layers: all}]}", "hooks.intervene.0", "needs a `source`"),
        (
            "{intervene: [{operation: zero, site: after_mlp, layers: all, source: {vector: v.npy}}]}",
            "hooks.intervene.0",
            "zero has no source",
        ),
        (
            "{intervene: [{operation: add, site: after_mlp, layers: all, source: {vector: v.npy, run: x}}]}",
            "hooks.intervene.0.source.run",
            "unknown key",
        ),
        (
            "{intervene: [{operation: add, site: after_mlp, layers: all, source: {}}]}",
            "hooks.intervene.0.source",
            "expected one of {vector: FILE.npy}",
        ),
        (
            "{intervene: [{operation: restore, site: after_mlp, layers: all, source: {vector: v.npy}}]}",
            "hooks.intervene.0",
            "restore takes what a finished run has",
        ),
        (
            "{intervene: [{operation: zero, site: after_mlp, layers: all, position: mean}]}",
            "hooks.intervene.0",
            "a mean is no place to act at",
        ),
        (
            "{intervene: [{operation: replace, site: after_mlp, layers: all, position: generated, source: {run: x}}]}",
            "hooks.intervene.0",
            "only a vector can be the source",
        ),
        ("{capture: [{site: after_mlp, position: generated}]}", "hooks.capture.0.position", "add `generate`"),
        ("{capture: [{site: after_mlp, layers: ['{l}']}]}", "hooks.capture.0.layers", "only interventions take them"),
        ("{capture: [{site: after_mlp, position: '{p}'}]}", "hooks.capture.0.position", "only interventions take them"),
        (
            "{intervene: [{operation: zero, site: after_mlp, layers: {l}}]}",
            "hooks.intervene.0.layers",
            'put it in quotes: "{l}"',
        ),
        (
            "{intervene: [{operation: zero, site: after_mlp, layers: all, position: {at}}]}",
            "hooks.intervene.0.position",
            'put it in quotes: "{at}"',
        ),
        ("{capture: [{site: after_mlp, layers: {from: 3, to: 2}}]}", "hooks.capture.0.layers", "which is empty"),
        ("{capture: [{site: after_mlp, layers: {from: 3}}]}", "hooks.capture.0.layers", "expected all, a list"),
        ("{capture: [{site: after_mlp, where: {}}]}", "hooks.capture.0.where", "expected a mapping"),
        ("{capture: [{site: after_mlp, where: {a: 3}}]}", "hooks.capture.0.where", "put it in quotes"),
        ("{capture: [{site: after_mlp, where: {a: []}}]}", "hooks.capture.0.where", "a text or a list of texts"),
        ("{capture: [{site: after_mlp, observe: both}]}", "hooks.capture.0.observe", "expected before, after"),
        ("{experiment: [{options: {}}]}", "hooks.experiment.0.use", "missing"),
        ("{experiment: [3]}", "hooks.experiment.0", "expected text, or a mapping with `use`"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(problems, hooks, section, key, said):
    line = problems(hooks(section))[0]
    assert line.startswith(f"x.yaml:5: {key}: ")
    assert said in line


@pytest.mark.parametrize(("step", "fits"), [(0, True), (2, True), (3, False)])
def test_n_tokens_are_n_minus_1_steps(load, problems, hooks, step, fits):
    text = hooks(f"{{capture: [{{site: after_mlp, position: {{generated: {step}}}}}]}}", GENERATE)
    if fits:
        assert load(text).hooks.capture[0].position.step == step
    else:
        assert problems(text) == [
            "x.yaml:5: hooks.capture.0.position: found step 3, but 4 tokens have 3 steps: the last is never fed back"
        ]


def test_an_experiment_alone_is_something_to_do(load, hooks):
    assert load(hooks("{experiment: [activation_stats]}")).hooks.experiment[0].use == "activation_stats"


def test_experiments_and_scores_exclude_each_other(load, problems, hooks):
    (line,) = problems(hooks("{experiment: [activation_stats]}", "score: {choices: [a, b]}\n"))
    assert line.startswith("x.yaml:5: hooks.experiment: found `score` beside `hooks.experiment`")
    assert load(hooks("{experiment: [activation_stats]}", "score: {top_k: 3}\n")).score.top_k == 3


def test_attention_has_names_and_tokens(load, problems, hooks):
    kept = load(hooks("{attention: [{layers: [0, -1], position: {span: all}, where: {a: b}}]}")).hooks.attention
    assert (kept[0].name, kept[0].layers, kept[0].where) == ("attention", (0, -1), (("a", ("b",)),))
    assert "two captures are called 'attention'" in problems(hooks("{attention: [{}, {layers: [0]}]}"))[0]


def test_observe_may_be_given_without_need(load, hooks):
    assert load(hooks("{capture: [{site: after_mlp, observe: before}]}")).hooks.capture[0].observe == "before"
