"""Controls that see only the text: what is counted, where a state was taken, and what a word's own spelling gives."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from pipelines.manifest import CaptureRecord
from pipelines.probes import ProbeConfig, probe, texts
from pipelines.probes.seen import Place, places
from pipelines.probes.texts import character_features, most, token_features
from pipelines.reading import load
from pipelines.stimuli.record import Stimulus, Target
from tests.foundry.fake_run import make_run
from tests.foundry.probe_run import Word, write_probe_run

WIDTH = 8
FINAL = '{"span": "final"}'


def counted(listed: Sequence[str]) -> list[tuple[int, ...]]:
    """Columns that differ between texts, as scikit-learn counts runs of 1 to 3 characters."""
    found = CountVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False).fit_transform(listed).toarray()
    return sorted(tuple(column) for column in found.T.tolist() if len(set(column)) > 1)


def columns(features: Any) -> list[tuple[int, ...]]:
    return sorted(tuple(map(int, column)) for column in features.counts.T)


# --- what is counted --------------------------------------------------------------------------------------------------


def test_characters_are_counted_in_the_prompt_and_apart_where_the_state_was_taken() -> None:
    prompts, words = ["abc de", "abc de", "bca d"], ["abc", "de", "bca"]
    assert columns(character_features(prompts)) == counted(prompts)
    seen = [Place(word, [0]) for word in words]
    marked = [f"\x02{word}\x03" for word in words]
    assert columns(character_features(prompts, seen)) == sorted(counted(prompts) + counted(marked))


def test_tokens_are_counted_in_the_prompt_and_apart_where_the_state_was_taken() -> None:
    ids = [[1, 2, 3], [1, 2, 3], [1, 2, 4]]
    # the prompts' 3 and 4, and each of the last tokens once more
    assert columns(token_features(ids)) == [(0, 0, 1), (0, 0, 1), (1, 1, 0), (1, 1, 0)]
    seen = [Place("", [1]), Place("", [2], [1]), Place("", [4])]
    expected = [(0, 0, 1), (1, 1, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0)]
    assert columns(token_features(ids, seen)) == sorted(expected)


def test_the_most_frequent_features_are_kept_and_all_are_counted() -> None:
    assert [most(rows) for rows in (480, 2048, 4096, 8192, 20_000)] == [8192, 8192, 4096, 2048, 2048]
    random = np.random.default_rng(0)
    prompts = ["".join(map(chr, random.integers(0x61, 0x61 + 26, 40))) for _ in range(400)]
    found = character_features(prompts)
    everything = counted(prompts)
    assert (found.counts.shape, found.found) == ((400, 8192), len(everything))
    assert len(everything) > 9000
    present = [sum(n > 0 for n in column) for column in columns(found)]
    assert sorted(present, reverse=True) == sorted((sum(n > 0 for n in c) for c in everything), reverse=True)[:8192]


# --- where states were taken ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "place"),
    [
        (FINAL, Place("كتب", [6], [5])),
        ('{"span": "first"}', Place("كتب", [5], [6])),
        ('{"span": "mean"}', Place("كتب", [5, 6], [])),
        ('{"span": "final", "occurrence": 2}', Place("كتب", [8], [])),
        ('{"index": 2}', Place(" في ", [7])),
        ('{"from_end": 3}', Place("كت", [5])),
    ],
)
def test_places_are_those_of_the_capture(tmp_path: Path, position: str, place: Place) -> None:
    word = Word({"x": "y"}, "كتب في كتب", (5, 6, 7, 8), target=Target("كتب", 0, 6),
                offsets=((0, 4), (4, 6), (6, 12), (12, 18)))  # fmt: skip
    captures = [CaptureRecord("c", "after_layer", (0,), "last", WIDTH)]
    run = write_probe_run(tmp_path, [word], lambda *_: np.zeros((1, WIDTH), np.float32), captures=captures)
    assert places(load(run), position, [0]) == [place]


def test_of_generated_steps_the_continuation_so_far_is_seen(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    run = load(tmp_path / "run")
    # sample i produced i % 3 tokens, the first of them i
    assert places(run, '{"generated": 0}', [5, 2]) == [Place("", [5], []), Place("", [2], [])]
    assert places(run, '{"generated": 1}', [5]) == [Place("", [6], [5])]


# --- a word's own spelling --------------------------------------------------------------------------------------------


SUFFIX = {"n": 900, "v": 901}


def sentences() -> list[Word]:
    """60 sentences of three words, hardly one of them twice, and a stimulus for each; the last letter is the class.

    A word is two tokens, of which the second is its last letter.
    """
    random = np.random.default_rng(3)
    made = []
    for _ in range(60):
        stems, classes = random.integers(0, 26, (3, 2)), random.choice(["n", "v"], 3).tolist()
        told = [f"{chr(0x61 + a)}{chr(0x61 + b)}{end}" for (a, b), end in zip(stems.tolist(), classes, strict=True)]
        ids = [one for (a, b), end in zip(stems.tolist(), classes, strict=True) for one in (26 * a + b, SUFFIX[end])]
        offsets = tuple(pair for at in (0, 4, 8) for pair in ((at, at + 2), (at + 2, at + 3)))
        for place, (word, end) in enumerate(zip(told, classes, strict=True)):
            target = Target(word, 4 * place, 4 * place + 3)
            made.append(Word({"class": end}, " ".join(told), tuple(ids), target=target, offsets=offsets))
    return made


def spelt(_capture: str, layer: int, stimuli: Sequence[Stimulus]) -> Any:
    """What an embedding gives: a vector of the word's last token, and some noise."""
    noise = np.random.default_rng(layer).standard_normal((len(stimuli), WIDTH))
    noise[:, 0] += [20 * (s.labels["class"] == "n") for s in stimuli]
    return noise.astype(np.float32)


CAPTURES = (
    CaptureRecord("word", "after_layer", (0, 1), FINAL, WIDTH),
    CaptureRecord("end", "after_layer", (2,), "last", WIDTH),
)


def swept(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Rows and manifest of a sweep over the sentences, and what it says."""
    run = write_probe_run(folder / "run", sentences(), spelt, captures=CAPTURES)
    keys = {"probes": ["logistic"], "splits": ["random"], "labels": ["class"], "draws": 200}
    config = ProbeConfig.model_validate(keys | {"runs": [str(run)], "output": {"dir": str(folder / "out")}})
    [summary] = probe(config, scheduler="serial")
    table = pq.read_table(folder / "out" / "results.parquet").to_pylist()
    return table, json.loads((folder / "out" / "manifest.json").read_text()), summary.lines()


def test_a_words_own_spelling_is_not_above_controls(tmp_path: Path) -> None:
    """All words of a sentence have one bag of tokens: only what is captured tells a control which of them is meant."""
    rows, manifest, _ = swept(tmp_path)
    alone = {(row["features"], row["capture"]): row for row in rows if row["features"] in ("characters", "tokens")}
    assert set(alone) == {(name, capture) for name in ("characters", "tokens") for capture in ("", "word")}
    assert [alone["tokens", capture]["position"] for capture in ("", "word")] == ["last", FINAL]
    for capture, own in (("word", "word"), ("end", "")):
        for row in rows:
            if row["features"] == "states" and row["capture"] == capture:
                assert row["accuracy"] > 0.95
                assert row["characters_accuracy"] == alone["characters", own]["accuracy"]
                assert row["tokens_accuracy"] == alone["tokens", own]["accuracy"]
    assert alone["tokens", "word"]["accuracy"] > 0.98
    assert alone["characters", "word"]["accuracy"] > 0.9
    assert max(alone[name, ""]["accuracy"] for name in ("characters", "tokens")) < 0.85
    # what a state of the last token knows of one word, its prompt and last token do not tell
    assert {row["capture"] for row in rows if row["above_controls_corrected"]} == {"end"}
    [highlight] = [one for one in manifest["highlights"] if one["capture"] == "word"]
    assert highlight["controls"]["tokens"] == alone["tokens", "word"]["accuracy"]


def test_features_that_were_not_kept_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MOST", 5)
    monkeypatch.setattr(texts, "ALWAYS", 5)
    rows, manifest, said = swept(tmp_path)
    words = sentences()
    plain = len(counted([word.prompt for word in words]))
    apart = len(counted([f"\x02{word.target.text}\x03" for word in words if word.target]))
    told = {(one["features"], one["capture"]): (one["kept"], one["found"]) for one in manifest["texts"]}
    assert told["characters", ""] == (5, plain)
    assert told["characters", "word"] == (5, plain + apart)
    # stems and two suffixes anywhere, two suffixes where states were taken, stems beside them
    stems = len({one for word in words for one in word.ids} - set(SUFFIX.values()))
    assert told["tokens", ""] == (5, stems + 2 + 2)
    assert told["tokens", "word"] == (5, stems + 2 + 2 + stems)
    assert {row["width"] for row in rows if row["features"] == "characters"} == {5}
    assert f"characters of word: the 5 most frequent of {plain + apart:,} features" in said
