"""From a treebank to states: the captured token is one of the word's own bytes, and the manifest says what was used."""

import pytest

from pipelines.reading import Run, load
from pipelines.running import run
from pipelines.verify import verify
from tests.faults.rig import make_config

ROWS = """# sent_id = a
# text = كتب الطالب للمعلم، وقرأ كتابا.
1	كتب	كَتَب	VERB	_	Number=Sing	0	root	_	Root=ktb
2	الطالب	طَالِب	NOUN	_	Case=Nom	1	nsubj	_	_
3-4	للمعلم	_	_	_	_	_	_	_	SpaceAfter=No
3	ل	لِ	ADP	_	_	4	case	_	_
4	المعلم	مُعَلِّم	NOUN	_	Case=Gen	1	obl	_	_
5	،	،	PUNCT	_	_	1	punct	_	_
6-7	وقرأ	_	_	_	_	_	_	_	_
6	و	وَ	CCONJ	_	_	7	cc	_	_
7	قرأ	قَرَأ	VERB	_	Number=Sing	1	conj	_	_
8	كتابا	كِتَاب	NOUN	_	Case=Acc	7	obj	_	SpaceAfter=No
9	.	.	PUNCT	_	_	1	punct	_	_

"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Nouns and verbs of one sentence, at the last token of each word and everywhere."""
    folder = tmp_path_factory.mktemp("treebank")
    (folder / "x.conllu").write_text(ROWS, encoding="utf-8")
    config = make_config(
        folder,
        [],
        model={"path": "builtin:sarf-nano"},
        stimuli={"file": "x.conllu", "select": {"where": {"upos": ["NOUN", "VERB"]}}},
        hooks={
            "capture": [
                {"name": "word", "site": "after_layer", "position": {"span": "final"}},
                {"name": "all", "site": "after_layer", "layers": [2], "position": "all"},
            ]
        },
    )
    assert run(config, scheduler="serial").status == "complete"
    verify(config.output.path)
    return load(config.output.path)


def test_the_captured_token_holds_the_word_s_last_byte(finished: Run) -> None:
    stimuli = {row["id"]: row for row in finished.stimuli.to_pylist()}
    rows = finished.rows(site="after_layer", layer=2, capture="word").to_pylist()
    assert len(rows) == len(stimuli) == 5
    for row in rows:
        stimulus, at = stimuli[row["stimulus_id"]], row["position"]
        assert stimulus["byte_start"][at] < stimulus["target_byte_end"] <= stimulus["byte_end"][at]
        whole = stimulus["prompt"].encode()[stimulus["target_byte_start"] : stimulus["target_byte_end"]].decode()
        assert whole == stimulus["target_text"]
    texts = {row["id"]: row["target_text"] for row in stimuli.values()}
    assert texts == {"a:1": "كتب", "a:2": "الطالب", "a:4": "للمعلم", "a:7": "قرأ", "a:8": "كتابا"}


def test_one_sentence_is_computed_once_and_its_words_share_every_bit(finished: Run) -> None:
    everywhere = finished.to_pandas(site="after_layer", layer=2, capture="all")
    words = finished.to_pandas(site="after_layer", layer=2, capture="word")
    for _, word in words.iterrows():
        same = everywhere[everywhere["position"] == word["position"]]
        assert len(same) == 5
        assert all((row == word["activation"]).all() for row in same["activation"])


def test_the_manifest_says_where_the_words_came_from(finished: Run) -> None:
    told = finished.manifest.origin.stimuli
    assert told is not None
    assert told["source"] == {
        "kind": "file", "format": "conllu", "rows": 9, "sentences": 1, "tokens_of_several_words": 2,
        "empty_nodes_left_out": 0, "texts_rebuilt": 0,
    }  # fmt: skip
    assert [(step["step"], step["after"]) for step in told["steps"]] == [("read", 9), ("where", 5)]
    assert finished.to_polars()["label_sentence"].to_list() == ["a"] * 5


def test_two_selections_are_told_apart_by_their_records(finished: Run, tmp_path) -> None:
    from pipelines.comparison import compare

    (tmp_path / "x.conllu").write_text(ROWS, encoding="utf-8")
    stimuli = {"file": "x.conllu", "select": {"where": {"upos": ["NOUN", "VERB"]}, "sample": {"count": 3}}}
    config = make_config(tmp_path, [], model={"path": "builtin:sarf-nano"}, stimuli=stimuli)
    run(config, scheduler="serial")
    told = compare(finished.directory, config.output.path).differences["stimuli"]
    assert any(line.startswith("stimuli.steps: had 2 entries, has 3") for line in told)
