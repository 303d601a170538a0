"""Errors: file, line, key, what was found, what would do; all at once, in the order of the file."""

import pytest


def test_misspelt_values_are_recognised(problems, changed):
    assert problems(changed("hooks", "hooks:\n  capture:\n    - {site: after_layr}")) == [
        "x.yaml:7: hooks.capture.0.site: found 'after_layr', expected one of before_layer, after_attention, after_mlp, "
        "after_layer, before_logits, after_logits; did you mean 'after_layer'?"
    ]


@pytest.mark.parametrize(
    ("key", "line", "said"),
    [
        ("modle", "modle: {path: x}", "modle: unknown key; did you mean 'model'?; known here: engine, generate"),
        ("output", "output: {dir: x, dtyp: float32}", "output.dtyp: unknown key; did you mean 'dtype'?"),
        (
            "hooks",
            "hooks: {capture: [{site: after_mlp, sites: x}]}",
            "hooks.capture.0.sites: unknown key; did you mean",
        ),
        ("stimuli", "stimuli: {items: [{prompt: a, lables: {}}]}", "stimuli.items.0.lables: unknown key; did you mean"),
        (
            "stimuli",
            "stimuli: {items: [a], colums: {}}",
            "stimuli.colums: unknown key; known here: allow_leaks, expect",
        ),
    ],
)
def test_unknown_keys(problems, changed, key, line, said):
    (found,) = problems(changed(key, line))
    assert said in found


def test_unknown_keys_are_looked_up_in_the_kind_of_stimuli_at_hand(problems, changed):
    (found,) = problems(changed("stimuli", "stimuli: {file: x.csv, column: {}}"))
    assert "did you mean 'columns'?" in found
    assert "roots" not in found


@pytest.mark.parametrize(
    ("word", "instead"), [("no", "false"), ("off", "false"), ("yes", "true"), ("On", "true"), ("N", "false")]
)
def test_booleans_of_yaml_1_1_are_explained(problems, changed, word, instead):
    (line,) = problems(changed("tokenizer", f"tokenizer: {{parse_special: {word}}}"))
    assert line == (
        f"x.yaml:7: tokenizer.parse_special: found '{word}', expected true or false: YAML 1.2 reads {word} as text; "
        f"write {instead}"
    )
    (line,) = problems(changed("tokenizer", f"tokenizer: {{add_bos: {word}}}"))
    assert line.endswith(f"expected file, true or false: YAML 1.2 reads {word} as text; write {instead}")


def test_an_unquoted_no_is_text_where_text_is_wanted(load, changed):
    assert load(changed("name", "name: no")).name == "no"
    assert load(changed("stimuli", "stimuli: {items: [no, yes]}")).stimuli.items[0].prompt == "no"


@pytest.mark.parametrize(("written", "kind"), [("012", "number"), ("1.50", "number"), ("true", "boolean")])
def test_numbers_where_text_is_wanted_show_their_spelling(problems, changed, written, kind):
    (line,) = problems(changed("name", f"name: {written}"))
    assert line == f"x.yaml:2: name: found {written}, expected text (YAML reads this as a {kind}: put it in quotes)"


def test_shorthands_are_explained(problems, changed):
    (line,) = problems(changed("stimuli", "stimuli: {items: [12]}"))
    assert line == "x.yaml:4: stimuli.items.0: found 12, expected text, or a mapping with `prompt`; put it in quotes"


@pytest.mark.parametrize(
    ("key", "line", "said"),
    [
        ("guard", "guard: 5", "guard: found 5, expected a mapping (key: value)"),
        ("guard", "guard: {positions: -1}", "guard.positions: found -1, expected at least 0"),
        ("guard", "guard: {positions: 100000}", "guard.positions: found 100000, expected at most 65536"),
        (
            "engine",
            "engine: {route: fst}",
            "engine.route: found 'fst', expected auto, reference, fast; did you mean 'fast'?",
        ),
        ("engine", "engine: {numerics: f16}", "engine.numerics: found 'f16', expected f32"),
        ("output", "output: {dir: ''}", "output.dir: found '', expected text that is not empty"),
        ("output", "output: {}", "output.dir: missing: this key is required"),
        ("hooks", "hooks: {capture: after_layer}", "hooks.capture: found 'after_layer', expected a list"),
        ("stimuli", "stimuli: {items: []}", "stimuli.items: found an empty list, expected at least 1 of them"),
        ("stimuli", "stimuli: {items: [a], file: b}", "expected exactly one of the keys generate, items and file"),
        ("stimuli", "stimuli: {}", "stimuli: found an empty mapping, expected exactly one of the keys"),
        ("stimuli", "stimuli:", "stimuli: found nothing, expected exactly one of the keys"),
        ("name", "name: a/b", "name: found 'a/b', expected text that matches ^[A-Za-z0-9_]"),
        ("model", "model: {path: ''}", "model.path: found '', expected the path of a file"),
        ("model", "model: builtin:sarf-nano", "model: found 'builtin:sarf-nano', expected a mapping"),
    ],
)
def test_found_and_expected(problems, changed, key, line, said):
    (found,) = problems(changed(key, line))
    assert said in found


def test_all_problems_at_once_in_order(problems):
    lines = problems(
        "schema: ember.pipeline/v1\n"
        "name: x\n"
        "name: y\n"
        "model: {path: m.gguf, sha256: abc}\n"
        "stimuli: {items: [a]}\n"
        "hooks:\n"
        "  capture:\n"
        "    - {site: nowhere}\n"
        "    - {site: after_mlp, layers: 0}\n"
        "output: {}\n"
    )
    assert [line.split(":")[1] for line in lines] == ["3", "4", "8", "9", "10"]


def test_no_escape_sequence_reaches_the_terminal(problems, changed):
    (line,) = problems(changed("guard", 'guard: {"\\e[31mred": 1}'))
    assert "\x1b" not in line
    (line,) = problems(changed("output", 'output: {dir: "a\\0b"}'))
    assert "without control characters" in line


def test_long_values_are_cut(problems, changed):
    (line,) = problems(changed("engine", f"engine: {{route: {'a' * 500}}}"))
    assert len(line) < 160
    (line,) = problems(changed("hooks", f"hooks: {{capture: [{{site: [{', '.join('1' * 500)}]}}]}}"))
    assert "found a list of 500" in line
