"""Values and defaults of every section, and what each refuses."""

import pickle

import pytest
from pydantic import BaseModel

from ember.positions import Position
from pipelines.config import RunConfig


def test_defaults(load, minimal):
    config = load(minimal)
    assert config.tokenizer.add_bos == "file"
    assert config.tokenizer.parse_special is False
    assert config.tokenizer.normalize == "none"
    assert config.generate is None
    assert (config.engine.route, config.engine.numerics) == ("auto", "f32")
    assert (config.engine.unit_rows, config.engine.blas_threads) == (None, 1)
    assert (config.run.workers, config.run.memory_per_worker, config.run.scheduler) == ("auto", "auto", "local")
    assert (config.output.dtype, config.guard.positions, config.guard.allow_chance) == ("float32", 256, False)
    (capture,) = config.hooks.capture
    assert (capture.name, capture.layers, capture.position) == ("after_layer", "all", Position("last"))


def test_configs_are_frozen_and_travel(load, minimal):
    config = load(minimal)
    with pytest.raises(ValueError, match="frozen"):
        config.name = "other"
    assert pickle.loads(pickle.dumps(config)) == config
    assert pickle.loads(pickle.dumps(config)).source == config.source


@pytest.mark.parametrize(
    ("written", "position"),
    [
        ("last", Position("last")),
        ("all", Position("all")),
        ("mean", Position("mean")),
        ("{index: 0}", Position("index", 0)),
        ("{from_end: 2}", Position("from_end", 2)),
        ("span", Position("span", part="final")),
        ("{span: first}", Position("span", part="first")),
        ("{span: mean}", Position("span", part="mean")),
        ("{span: all, occurrence: 2}", Position("span", part="all", occurrence=2)),
    ],
)
def test_positions(load, changed, written, position):
    config = load(changed("hooks", f"hooks: {{capture: [{{site: after_mlp, position: {written}}}]}}"))
    assert config.hooks.capture[0].position == position


@pytest.mark.parametrize(
    "written",
    [
        "lst",
        "{index: -1}",
        "{index: true}",
        "{index: 1.0}",
        "{span: middle}",
        "{occurrence: 1}",
        "{span: all, occurrence: 0}",
        "{span: all, x: 1}",
        "{}",
        "[last]",
        "3",
        "null",
    ],
)
def test_positions_refused(problems, changed, written):
    (line,) = problems(changed("hooks", f"hooks: {{capture: [{{site: after_mlp, position: {written}}}]}}"))
    assert line.startswith("x.yaml:5: hooks.capture.0.position: found ")


@pytest.mark.parametrize(("written", "layers"), [("all", "all"), ("[0, 5, -1]", (0, 5, -1)), ("[3]", (3,))])
def test_layers(load, changed, written, layers):
    config = load(changed("hooks", f"hooks: {{capture: [{{site: after_layer, layers: {written}}}]}}"))
    assert config.hooks.capture[0].layers == layers


@pytest.mark.parametrize("written", ["[]", "[0, 0]", "[0.0]", "[true]", '["0"]', "0", "al", "null"])
def test_layers_refused(problems, changed, written):
    (line,) = problems(changed("hooks", f"hooks: {{capture: [{{site: after_layer, layers: {written}}}]}}"))
    assert line.startswith("x.yaml:5: hooks.capture.0.layers: found ")


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("2GiB", 2 * 1024**3),
        ("1500MB", 1_500_000_000),
        ("1.5GiB", 3 * 512 * 1024**2),
        ("512 MiB", 512 * 1024**2),
        ("1073741824", 1024**3),
        ("1TB", 10**12),
        ("auto", "auto"),
    ],
)
def test_memory_sizes(load, changed, written, size):
    assert load(changed("run", f"run: {{memory_per_worker: {written}}}")).run.memory_per_worker == size


@pytest.mark.parametrize("written", ["2 gigs", "2", "10MiB", "-2GiB", "1e9", "true", "GiB", "2Gi", "٢GiB"])
def test_memory_sizes_refused(problems, changed, written):
    (line,) = problems(changed("run", f"run: {{memory_per_worker: {written}}}"))
    assert line.startswith("x.yaml:7: run.memory_per_worker: found ")


@pytest.mark.parametrize("written", ["0", "-1", "true", "1.0", '"2"', "many"])
def test_workers_refused(problems, changed, written):
    (line,) = problems(changed("run", f"run: {{workers: {written}}}"))
    assert "expected auto or a whole number from 1" in line


@pytest.mark.parametrize("written", ["local", "serial", "tcp://10.0.0.1:8786", "cluster/scheduler.json"])
def test_schedulers(load, changed, written):
    assert load(changed("run", f"run: {{scheduler: {written}}}")).run.scheduler == written


def test_nothing_is_coerced(problems, minimal):
    lines = problems(
        minimal
        + "generate: {max_tokens: '8'}\n"
        + "tokenizer: {parse_special: 1}\n"
        + "engine: {blas_threads: 1.0, unit_rows: '4'}\n"
        + "guard: {positions: true, allow_chance: 0}\n"
    )
    assert [line.split(": found")[0] for line in lines] == [
        "x.yaml:7: generate.max_tokens",
        "x.yaml:8: tokenizer.parse_special",
        "x.yaml:9: engine.blas_threads",
        "x.yaml:9: engine.unit_rows",
        "x.yaml:10: guard.allow_chance",
        "x.yaml:10: guard.positions",
    ]


@pytest.mark.parametrize(
    ("line", "key", "named"),
    [
        ("model: {path: hf://owner/repo/file.gguf}", "model.path", "hf://"),
        ("output: {dir: x, dtype: float16}", "output.dtype", "half-precision"),
    ],
)
def test_what_comes_later_is_refused_by_name(problems, changed, line, key, named):
    (said,) = problems(changed(line.split(":")[0], line))
    assert f" {key}: found" in said
    assert named in said


def test_empty_reserved_keys_are_fine(load, changed):
    config = load(changed("hooks", "hooks: {intervene: [], capture: [{site: after_mlp}]}"))
    assert config.hooks.intervene == ()


@pytest.mark.parametrize("site", ["before_logits", "after_logits"])
def test_logits_sites_have_no_layers_and_one_position(load, problems, changed, site):
    assert load(changed("hooks", f"hooks: {{capture: [{{site: {site}}}]}}")).hooks.capture[0].site == site
    assert "remove `layers`" in problems(changed("hooks", f"hooks: {{capture: [{{site: {site}, layers: [0]}}]}}"))[0]
    assert "`last`" in problems(changed("hooks", f"hooks: {{capture: [{{site: {site}, position: all}}]}}"))[0]


def test_captures_have_distinct_names(load, problems, changed):
    two = "hooks: {{capture: [{{site: after_mlp}}, {{{name}site: after_mlp, position: mean}}]}}"
    assert "give each its own `name`" in problems(changed("hooks", two.format(name="")))[0]
    config = load(changed("hooks", two.format(name="name: pooled, ")))
    assert [capture.name for capture in config.hooks.capture] == ["after_mlp", "pooled"]


def test_a_run_that_does_nothing_is_refused(problems, changed):
    assert problems(changed("hooks", "hooks: {}")) == [
        "x.yaml:1: nothing to do: give `hooks.capture`, `hooks.attention`, `hooks.experiment`, `generate`, `score` or "
        "several of them"
    ]


def test_with_engine_fills_in_auto(load, minimal):
    config = load(minimal).with_engine(route="fast", unit_rows=77)
    assert (config.engine.route, config.engine.unit_rows) == ("fast", 77)
    assert config.source is not None


def models_in(annotation):
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for info in annotation.model_fields.values():
            yield from models_in(info.annotation)
    for argument in getattr(annotation, "__args__", ()):
        yield from models_in(argument)


def test_every_key_is_described():
    sections = set(models_in(RunConfig))
    assert len(sections) >= 15
    nested = {name for section in sections for name in section.model_fields}
    bare = {
        f"{section.__name__}.{name}"
        for section in sections
        for name, info in section.model_fields.items()
        if not info.description and not set(models_in(info.annotation))
    }
    assert "site" in nested
    assert bare == set()
