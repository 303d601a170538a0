"""Identity: what decides values and nothing else. Dump: a config that means the same."""

import hashlib
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config import RunConfig, canonical_json, config_sha256, dump, identity, load_config, resolved


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("name", "name: other"),
        ("model", "model: {path: other.gguf}"),  # contents are hashed on their own
        ("run", "run: {workers: 7, memory_per_worker: 2GiB, scheduler: serial}"),
        ("output", "output: {dir: elsewhere}"),
        ("guard", "guard: {allow_chance: true}"),
        ("stimuli", "stimuli: {items: [one, two], allow_leaks: true}"),
        (
            "hooks",
            "hooks: {intervene: [], capture: [{layers: all, site: after_layer, name: after_layer, position: last}]}",
        ),
        ("engine", "engine: {unit_rows: auto}"),
    ],
)
def test_what_decides_no_value_is_no_part(load, minimal, changed, key, line):
    assert config_sha256(load(changed(key, line))) == config_sha256(load(minimal))


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("tokenizer", "tokenizer: {add_bos: false}"),
        ("tokenizer", "tokenizer: {normalize: nfc}"),
        ("stimuli", "stimuli: {items: [two, one]}"),
        ("stimuli", "stimuli: {items: [one, {prompt: two, labels: {a: b}}]}"),
        ("hooks", "hooks: {capture: [{site: after_mlp}]}"),
        ("hooks", "hooks: {capture: [{site: after_layer, position: {from_end: 0}}]}"),
        ("generate", "generate: {max_tokens: 1}"),
        ("engine", "engine: {unit_rows: 100}"),
        ("engine", "engine: {blas_threads: 2}"),
        ("guard", "guard: {positions: 0}"),  # the guard's rows take part in the last layer's products
    ],
)
def test_what_decides_values_is_part(load, minimal, changed, key, line):
    assert config_sha256(load(changed(key, line))) != config_sha256(load(minimal))


def test_identity_is_plain_sorted_and_hashed_as_canonical_json(load, minimal):
    config = load(minimal)
    text = json.dumps(identity(config), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert canonical_json(identity(config)) == text
    assert config_sha256(config) == hashlib.sha256(text.encode()).hexdigest()
    assert list(identity(config)) == sorted(identity(config))


def test_canonical_json_has_one_form():
    assert canonical_json({"b": [1, None, True], "a": "كتب"}) == '{"a":"كتب","b":[1,null,true]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(float("nan"))


def test_identity_of_the_minimal_config_is_pinned(load, minimal):
    """A change here makes every existing run directory another run: change it knowingly."""
    assert identity(load(minimal)) == {
        "schema": "ember.pipeline/v1",
        "tokenizer": {"add_bos": "file", "parse_special": False, "normalize": "none"},
        "stimuli": {
            "expect_mode": "exact",
            "reveals": [],
            "items": [{"prompt": "one", "labels": {}}, {"prompt": "two", "labels": {}}],
        },
        "hooks": {"capture": [{"name": "after_layer", "site": "after_layer", "layers": "all", "position": "last"}]},
        "generate": None,
        "score": None,
        "engine": {"route": "auto", "numerics": "f32", "blas_threads": 1},
        "dtype": "float32",
        "guard_positions": 256,
    }


def test_dump_round_trips(load, write, minimal):
    config = load(minimal + "generate: {max_tokens: 3}\nrun: {memory_per_worker: 2GiB}\nengine: {unit_rows: 9}\n")
    again = load_config(write(dump(config), "again.yaml"))
    assert resolved(again) == resolved(config)
    assert config_sha256(again) == config_sha256(config)


def test_every_shape_of_value_is_written_without_a_warning(load, minimal, recwarn):
    text = minimal.replace("{site: after_layer}", "{site: after_layer, layers: [0, -1], position: {index: 3}}")
    config = load(text + "run: {workers: 2, memory_per_worker: 1GiB}\nengine: {unit_rows: 5}\n")
    found = resolved(config)
    assert not recwarn.list
    assert found["hooks"]["capture"][0]["layers"] == [0, -1]
    assert found["hooks"]["capture"][0]["position"] == {"index": 3}
    assert found["run"] == {"workers": 2, "memory_per_worker": 1024**3, "scheduler": "local"}
    assert found["engine"]["unit_rows"] == 5


def test_dump_begins_with_the_schema(load, minimal):
    assert dump(load(minimal)).startswith("schema: ember.pipeline/v1\nname: small\n")


texts = st.text(min_size=1, max_size=30) | st.sampled_from(
    [
        "no",
        "012",
        "0o14",
        "1e3",
        "1e23",
        "12:30",
        "~",
        "null",
        "<<",
        "- a",
        "a: b",
        " a ",
        "\n",
        "x\u2028y",
        "x\x85",
        "\ufeffa",
        *[
            "شَّ",
            "ش\u0651\u064e",
            "كتـــاب",
            "\ufefb",
            "🦙",
            "\\n",
            "'\"",
            "#",
            "%",
            "=",
            "y",
            ".inf",
            "2001-01-01",
            "\t",
        ],
    ]
)


@settings(deadline=None, max_examples=200)
@given(st.lists(texts, min_size=1, max_size=4))
def test_any_text_survives_the_dump(tmp_path_factory, prompts):
    config = RunConfig.model_validate(
        {
            "schema": "ember.pipeline/v1",
            "name": "x",
            "model": {"path": "builtin:sarf-nano"},
            "stimuli": {"items": prompts},
            "generate": {"max_tokens": 1},
            "output": {"dir": "x"},
        }
    )
    path = tmp_path_factory.mktemp("dump") / "x.yaml"
    path.write_text(dump(config), encoding="utf-8", newline="")
    assert [item.prompt for item in load_config(path).stimuli.items] == prompts
    by_11 = yaml.safe_load(path.read_text(encoding="utf-8"))  # readers of YAML 1.1 see the same
    assert [item["prompt"] for item in by_11["stimuli"]["items"]] == prompts
