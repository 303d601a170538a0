"""The built-in model: its split, its vocabulary, what llama.cpp makes of it, and how often it is right."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember
from ember.assets_path import ASSETS, resolve_model
from pipelines.config import load_config
from pipelines.stimuli import build_stimuli
from pipelines.stimuli.patterns import PATTERNS
from pipelines.stimuli.roots import real_roots
from pipelines.stimuli.translit import radicals
from tests.foundry.files import tensors_sha256
from tests.foundry.sarf.card import with_tables
from tests.foundry.sarf.corpus import (
    CONFIG,
    FORM_VIII,
    ROOT,
    changes_in_form8,
    example,
    held_out_sets,
    is_read,
    load_split,
    make_split,
    names_only,
    templates,
    training_set,
    words,
)
from tests.foundry.sarf.evaluate import evaluate, some
from tests.foundry.sarf.vocabulary import LETTERS, MARKS, build

CARD = json.loads((ASSETS / "sarf-nano.json").read_text(encoding="utf-8"))
STATES = {"after_attention": "attn_contrib", "after_mlp": "mlp_contrib", "after_layer": "l_out"}
TOLERANCE = 2e-5
SAMPLE = 48


@pytest.fixture(scope="module")
def recording() -> Any:
    with np.load(Path(__file__).parent / "recording.npz") as stored:
        return dict(stored)


@pytest.fixture(scope="module", params=["reference", "fast"])
def model(request: pytest.FixtureRequest) -> Any:
    with ember.open("builtin:sarf-nano", route=request.param, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def fast() -> Any:
    with ember.open("builtin:sarf-nano", threads=1) as opened:
        yield opened


def prompts_of(recording: Any) -> list[list[int]]:
    return [[int(token) for token in row if token >= 0] for row in recording["tokens"]]


def test_the_split_file_is_what_the_corpus_decides() -> None:
    assert load_split() == make_split()


def test_nothing_held_out_is_read() -> None:
    split = load_split()
    held = held_out_sets(split)
    kept = [one for name, several in held.items() if not name.startswith("seen") for one in several]
    assert not [one for one in kept if is_read(one, split)]
    assert all(is_read(one, split) for name in ("seen_by_measure", "seen_by_name") for one in held[name])
    assert not set(split.read) & set(split.unseen)


def test_form_viii_of_roots_that_change_there_is_read_by_measure_only() -> None:
    split = load_split()
    root = min(split.unnamed)
    shown, named = example(root, "past_viii", "by_measure"), example(root, "past_viii", "by_name")
    assert shown is not None
    assert named is not None
    assert not is_read(named, split)
    assert is_read(shown, split) == ((root, "past_viii") not in split.unseen_pairs)
    changing = {root for root in split.read if changes_in_form8(root)}
    assert split.unnamed < changing
    assert len(split.unnamed) > 0.9 * len(changing)
    assert set(FORM_VIII) <= set(PATTERNS)


@pytest.mark.parametrize("template", ["by_measure", "by_name"])
def test_prompts_are_those_of_the_main_job(template: str) -> None:
    made = [one for one in build_stimuli(load_config(CONFIG)) if one.template == template]
    assert len(made) >= 200
    for one in made:
        trained = example("".join(radicals(one.labels["root"])), one.labels["pattern"], template)
        assert trained is not None
        assert (one.prompt, one.expected) == (trained.prompt, " " + trained.form.surface)


@pytest.mark.slow
def test_prompts_are_read_once_and_cover_templates_and_real_roots() -> None:
    read = training_set(load_split())
    assert len({one.prompt for one in read}) == len(read)
    assert {one.template for one in read} == set(templates())
    assert {one.pattern for one in read} == set(PATTERNS)
    assert {one.form.root for one in read} > {root for root in real_roots() if root not in load_split().unseen}


def test_templates_say_whether_they_show_the_measure() -> None:
    assert [names_only(name) for name in ("by_measure", "by_name", "what_measure", "what_name")] == [False, True] * 2


def test_words_are_one_token_and_forms_are_letters(fast: Any) -> None:
    def tokens(text: str) -> list[str]:
        return [fast.tokenizer.decode([token]) for token in fast.tokenizer.encode(text, add_special=False).ids]

    assert all(tokens(word) == [word] and tokens(f" {word}") == [f" {word}"] for word in words())
    for one in some(held_out_sets(load_split())["seen_by_name"], 300):
        assert tokens(f" {one.form.surface}") == [" ", *one.form.surface]
    assert all(tokens(letter) == [letter] for letter in LETTERS + MARKS)


def test_the_file_holds_the_vocabulary(fast: Any) -> None:
    vocabulary = build(words())
    assert list(fast.file.metadata["tokenizer.ggml.tokens"]) == [token.encode() for token in vocabulary.tokens]
    assert list(fast.file.metadata["tokenizer.ggml.merges"]) == [merge.encode() for merge in vocabulary.merges]
    assert (fast.tokenizer.bos_id, fast.tokenizer.eos_id) == (vocabulary.bos_id, vocabulary.eos_id)


def test_the_card_belongs_to_the_file() -> None:
    path = resolve_model("builtin:sarf-nano")
    assert CARD["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert CARD["bytes"] == path.stat().st_size
    assert 1_000_000 <= path.stat().st_size <= 2_000_000


def test_the_recording_belongs_to_the_file(recording: Any) -> None:
    assert str(recording["tensors_sha256"]) == tensors_sha256(resolve_model("builtin:sarf-nano"))


def test_ids_are_those_of_llama_cpp(model: Any, recording: Any) -> None:
    encoded = [model.tokenizer.encode(str(prompt)).ids for prompt in recording["prompts"]]
    assert encoded == prompts_of(recording)


def test_states_are_those_of_llama_cpp(model: Any, recording: Any) -> None:
    captures = model.capture(tokens=prompts_of(recording), site=[*STATES, "before_logits", "after_logits"])
    for site, key in STATES.items():
        assert worst(captures[site], recording[key]) < TOLERANCE, site
    assert worst(captures["before_logits"], recording["result_norm"]) < TOLERANCE
    assert worst(captures["after_logits"], recording["logits"]) < TOLERANCE


def worst(found: Any, recorded: Any) -> float:
    """The largest difference in a row, relative to the row's root mean square."""
    return float((np.abs(found - recorded).max(-1) / np.sqrt((recorded**2).mean(-1))).max())


def test_greedy_ids_are_those_of_llama_cpp(model: Any, recording: Any) -> None:
    steps = recording["greedy"].shape[1]
    for ids, greedy in zip(prompts_of(recording), recording["greedy"], strict=True):
        given = model.generate(tokens=ids, max_tokens=steps, stop_at_eos=False).token_ids
        assert given == greedy.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", CARD["accuracy"])
def test_accuracy_is_about_what_the_card_says(fast: Any, name: str) -> None:
    """Within four standard errors of a sample of this size (a share of 2 % wrong at least)."""
    stated = CARD["accuracy"][name]["accuracy"]
    measured = evaluate(fast, some(held_out_sets(load_split())[name], SAMPLE))["accuracy"]
    assert abs(measured - stated) <= 4 * (max(0.02, stated * (1 - stated)) / SAMPLE) ** 0.5


def test_the_hardest_set_leaves_behaviour_and_representation_room_to_differ() -> None:
    accuracy = {name: entry["accuracy"] for name, entry in CARD["accuracy"].items()}
    assert 0.60 <= min(accuracy.values()) <= 0.95
    assert accuracy["seen_by_measure"] > 0.99
    assert accuracy["seen_by_name"] > 0.99


def test_the_tables_of_the_card_are_the_measured_figures() -> None:
    text = (ROOT / "docs/sarf-nano.md").read_text(encoding="utf-8")
    assert with_tables(text, CARD) == text
    assert CARD["sha256"] in text


def test_probes_beat_their_control_somewhere_and_not_everywhere() -> None:
    beaten = [cell["beats"] for layers in CARD["probes"].values() for row in layers.values() for cell in row.values()]
    assert any(beaten)
    assert not all(beaten)
