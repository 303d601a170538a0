"""A manifest's plain data in words: no JSON stands in the prose of a page, and numbers agree with their nouns."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.report import Report, make_report
from pipelines.report.cautions import as_text
from pipelines.report.wording import acted_said, position_said, source_said, where_said
from tests.foundry.probe_run import Word, write_probe_run
from tests.pipelines.report.test_page import parsed
from tests.pipelines.report.test_probing import plant, row


def test_a_treebank_is_told_in_sentences() -> None:
    source = {"kind": "file", "format": "conllu", "rows": 72, "sentences": 1, "tokens_of_several_words": 0,
              "empty_nodes_left_out": 1, "texts_rebuilt": 2}  # fmt: skip
    steps = [
        {"step": "read", "after": 72},
        {"step": "deduplicate", "by": "text", "before": 72, "after": 60, "left_out_with_other_labels": 3},
    ]
    assert as_text(source_said({"source": source, "steps": steps, "normalize": {"nfc": 1, "tatweel": 0}})) == (
        "The prompts were read from a file in CoNLL-U, one for each word of its sentences (72 rows, 1 sentence, "
        "1 empty node left out and 2 texts rebuilt from their words). Of 72 prompts 60 were kept, the first of those "
        "with the same prompt, target and expected text; 3 of those left out had other labels. Texts were normalised: "
        "nfc changed 1 prompt."
    )


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"step": "where", "labels": {"upos": ["NOUN", "VERB"], "span": ["word"]}},
         "kept: those whose upos is NOUN or VERB and whose span is word."),
        ({"step": "sample", "count": 3, "seed": 5, "per": "upos"},
         "kept, drawn with the seed 5: 3 of each value of upos."),
        ({"step": "sample", "count": 1, "seed": 0, "group": "sentence"},
         "kept, drawn with the seed 0: all of 1 value of sentence."),
        ({"step": "sample", "count": 6, "seed": 0}, "kept, drawn with the seed 0."),
        ({"step": "sieve"}, "kept by sieve."),
    ],
)  # fmt: skip
def test_every_step_has_its_sentence(step: dict[str, Any], said: str) -> None:
    told = as_text(source_said({"source": {"kind": "items"}, "steps": [step | {"before": 9, "after": 6}]}))
    assert told == f"The prompts are listed in the config. Of 9 prompts 6 were {said} Texts stand as they were given."


def test_a_source_without_steps() -> None:
    assert as_text(source_said({"source": {"kind": "root_pattern", "without_form": 1}, "steps": []})) == (
        "The prompts were made by Ember from roots, patterns and templates (1 combination left out for want of a "
        "form). None of them was left out. Texts stand as they were given."
    )
    assert "of the kind new (seen twice: 4)." in as_text(source_said({"source": {"kind": "new", "seen_twice": 4}}))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("last", "the last token"),
        ('{"span": "final"}', "the last token of the target"),
        ('{"span": "first", "occurrence": 2}', "the first token of the target, at place 2 of its text"),
        ({"index": 0}, "token 0 (from 0)"),
        ('{"from_end": 0}', "the last token"),
        ('{"from_end": 2}', "the token 2 before the last"),
        ('{"generated": 3}', "generated token 3 (from 0)"),
        ("{place}", "what {place} says"),
    ],
)
def test_positions_in_words(written: Any, said: str) -> None:
    assert position_said(written) == said


def test_what_acted_in_words() -> None:
    one = {
        "operation": "steer", "site": "after_layer", "layers": [1, 2], "position": {"span": "all"}, "strength": 2.0,
        "where": {"kind": ["a"]}, "samples": 1, "source": {"vector_sha256": "ab", "layers": [1, 2]},
    }  # fmt: skip
    assert as_text(acted_said(one)) == (
        "steer at after_layer, layers 1, 2, every token of the target, in 1 prompt whose kind is a; strength 2.0; "
        "source vector sha256 ab; source layers 1 and 2"
    )
    assert as_text(where_said({})) == ""


def test_no_page_holds_json_in_its_prose(report: Report, run_small: Callable[..., Path], tmp_path: Path) -> None:
    act = {"operation": "zero", "site": "after_mlp", "layers": {"from": 0, "to": 1}, "position": {"from_end": 1}}
    capture = {"site": "after_layer", "position": {"span": "final"}, "where": {"pattern": "active"}}
    hooks = {"intervene": [act], "capture": [capture | {"observe": "after"}]}
    acted = make_report(run_small(tmp_path / "acted", hooks=hooks, generate=None))
    for html in (report.html, acted.html):
        assert not re.search(r'\{"|\["', "".join(parsed(html).text))
    told = "".join(parsed(acted.html).text)
    assert "the last token of the target of prompts whose pattern is" in told
    assert "zero at after_mlp, layers 0 to 1, the token 1 before the last, in 21 prompts" in told
    assert "Scores and hidden states are those of the changed model." in told


def test_numbers_agree_with_their_nouns(tmp_path: Path) -> None:
    """Five prompts of two tokens, nothing generated, one problem at two layers, a prompt of an unseen class."""
    words = [Word({"kind": f"k{i % 2}"}, f"w {i}", (1, 2 + i)) for i in range(5)]
    run = write_probe_run(tmp_path / "run", words, lambda *_: np.zeros((5, 4), np.float32), width=4)
    plant(run, [row("kind", "random", layer, 0.9, unseen=1) for layer in (0, 1)])
    found = make_report(run)
    assert "They have 2 tokens each." in found.html
    assert "hidden states are its own" in found.html
    assert "answers" not in found.html[found.html.index("Nothing acted on") :].split("</p>")[0]
    limits = " ".join(found.record["limits"]["limits"])
    assert "1 problem at 2 places (a capture at a layer) gave 2 numbers" in limits
    assert "1 prompt was tested whose class" in " ".join(found.record["warnings"]["warnings"])
    plant(run, [row("kind", "random", 0, 0.9)])
    assert "too good by itself" not in " ".join(make_report(run).record["limits"]["limits"])
