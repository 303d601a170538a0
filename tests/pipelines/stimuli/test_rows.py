"""Analyses, templates over columns, pairs, and the predecessor's prompt sets."""

import json

import pytest

KATAB = {"diac": "كَتَبَ", "lex": "كَتَب", "root": "ك.ت.ب", "pattern": "1َ2َ3َ", "pos": "verb", "gen": "m", "num": "s"}
KUTUB = {"diac": "كُتُب", "lex": "كِتاب", "root": "ك.ت.ب", "pattern": "1ُ2ُ3", "pos": "noun", "gen": "m", "num": "p"}
LI = {"diac": "لِ", "lex": "لِ", "root": "na", "pattern": "na", "pos": "prep", "gen": "na", "num": "na"}


def jsonl(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_flat_analyses_in_three_formats(build, put):
    rows = [{"word": "كتب", **KUTUB}, {"word": "ل", **LI}]
    put("x.jsonl", jsonl(*rows))
    for name, mark in (("x.csv", ","), ("x.tsv", "\t")):
        put(name, "\n".join(mark.join(row) for row in [list(rows[0]), *([*row.values()] for row in rows)]) + "\n")
    columns = {"prompt": "word", "labels": ["lex", "root", "pattern", "pos", "num"], "ignore": ["diac", "gen"]}
    made = [build(file=f"x.{end}", columns=columns | {"missing": ["na"]}).stimuli for end in ("jsonl", "csv", "tsv")]
    assert made[0] == made[1] == made[2]
    first, second = made[0]
    assert (first.prompt, first.labels["root"], first.labels["pattern"]) == ("كتب", "ك.ت.ب", "1ُ2ُ3")
    assert second.labels == {"lex": "لِ", "pos": "prep"}


def test_nested_analyses(build, refused, put):
    put("x.jsonl", jsonl({"word": "كتب", "analyses": [KATAB, {"score": 0.5, "analysis": KUTUB}]},
                         {"word": "غغغ", "analyses": []}, {"word": "ل", "analyses": [LI]}))  # fmt: skip
    common = {"file": "x.jsonl", "format": "camel", "columns": {"prompt": "word"}}
    said = refused(**common)
    assert "x.jsonl:1: 'كتب' has 2 analyses, expected one; choose with `analyses: first` or `each`" in said
    first = build(**common, analyses="first")
    assert [s.labels["pos"] for s in first.stimuli] == ["verb", "prep"]
    assert first.record["source"] == {
        "kind": "file", "format": "camel", "rows": 2, "words": 3, "words_without_analysis_left_out": 1,
        "words_of_several_analyses": 1,
    }  # fmt: skip
    each = build(**common, analyses="each").stimuli
    assert [(s.labels["diac"], s.labels.get("score")) for s in each] == [("كَتَبَ", None), ("كُتُب", "0.5"), ("لِ", None)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"word": "ك"}, "found no `word` with a list of `analyses`"),
        ({"word": "ك", "analyses": ["x"]}, "analyses: found 'x', expected a mapping of features"),
        ({"word": "ك", "pos": "n", "analyses": [{"pos": "v"}]}, "'pos' stands beside the analyses and in one of them"),
        (
            {"word": "ك", "analyses": [{"pos": "n", "score": 1, "analysis": {"pos": "v", "root": "x"}}]},
            "'pos' stands beside an `analysis` and in it; rename one",
        ),
        ({"word": "ك", "analyses": [{"pos": ["v"]}]}, "pos: found ['v'], expected text"),
    ],
)
def test_wrong_analyses_name_their_line(refused, put, row, said):
    put("x.jsonl", jsonl({"word": "ل", "analyses": [LI]}, row))
    assert f"x.jsonl:2: {said}" in refused(file="x.jsonl", format="camel", columns={"prompt": "word"})


def test_analyses_belong_to_camel(refused, put):
    assert "found beside the format csv" in refused(file=put("x.csv", "prompt\np\n"), analyses="each")


def test_a_row_in_each_template(build, put):
    put("x.jsonl", jsonl({"word": "كاتب", "root": "كتب", "pos": "noun"}, {"word": "ثم", "root": None, "pos": "conj"}))
    section = {
        "file": "x.jsonl",
        "templates": {
            "bare": "{word}",
            "ask": {"text": "جذر {word} هو {{{root}}}:", "reveals": ["root"]},
        },
        "target": "{word}",
        "expect": " {root}",
        "select": {"where": {"pos": "noun"}},
        "allow_leaks": True,
    }
    bare, ask = build(**section).stimuli
    assert (bare.id, bare.prompt, bare.template, bare.reveals) == ("row-000000.bare", "كاتب", "bare", ())
    assert (ask.prompt, ask.template, ask.reveals) == ("جذر كاتب هو {كتب}:", "ask", ("root",))
    assert (ask.target.text, ask.target.start, ask.target.end) == ("كاتب", 7, 15)
    assert ask.expected == " كتب"
    # every column becomes a label, those shown too
    assert ask.labels == {"word": "كاتب", "root": "كتب", "pos": "noun"}


def test_a_slot_s_place_is_the_template_s(build, put):
    """T15: the bare word also stands inside another; the slot says which is meant."""
    put("x.csv", "word\nكتاب\n")
    (made,) = build(file="x.csv", templates={"t": "الكتاب و{word} آخر"}, target="{word}", reveals=["word"]).stimuli
    assert made.target.start == len("الكتاب و".encode())


def test_empty_slots_are_refused_with_line_and_remedy(refused, put):
    put("x.csv", "word,root\nكاتب,كتب\nثم,\n")
    said = refused(file="x.csv", templates={"t": "جذر {root}"}, reveals=["root"])
    assert "x.csv:3: template 't' needs the column 'root', which has no value here" in said
    said = refused(file="x.csv", templates={"t": "جذر {rot}"})
    assert "no column 'rot'; did you mean 'root'?" in said
    assert said.endswith("it is named in `stimuli` by a slot")


def test_pairs(build, put):
    put("x.csv", "id,good,bad,feature\np1,هذا كتاب,هذه كتاب,gender\np2,هذه مدرسة,هذا مدرسة,gender\n")
    made = build(file="x.csv", pairs={"good": "good", "bad": "bad"}).stimuli
    assert [s.id for s in made] == ["p1.good", "p1.bad", "p2.good", "p2.bad"]
    assert made[1].prompt == "هذه كتاب"
    assert made[1].labels == {"feature": "gender", "pair": "p1", "role": "bad"}


def test_clean_and_corrupt_prompts_with_their_own_answers(build, put):
    put("x.csv", "key,a,b,word_a,answer_a,answer_b\n7,اسم كاتب,اسم جالس,كاتب, كتب, جلس\n")
    pairs = {
        "clean": {"prompt": "a", "expected": "answer_a", "target": "word_a"},
        "corrupt": {"prompt": "b", "expected": "answer_b"},
    }
    clean, corrupt = build(file="x.csv", pairs=pairs, columns={"id": "key"}).stimuli
    assert (clean.expected, corrupt.expected) == (" كتب", " جلس")
    assert (clean.target.text, corrupt.target) == ("كاتب", None)
    assert clean.labels == {"pair": "7", "role": "clean"}


def test_pairs_that_do_not_fit(refused, put):
    put("x.jsonl", jsonl({"a": "x", "b": None, "role": "r"}))
    assert "the label 'role' is made by `pairs`" in refused(file="x.jsonl", pairs={"clean": "a", "corrupt": "b"})
    put("x.jsonl", jsonl({"a": "x", "b": None}))
    said = refused(file="x.jsonl", pairs={"clean": "a", "corrupt": "b"})
    assert "x.jsonl:1: b: found nothing, expected the text of 'corrupt'" in said
    said = refused(file="x.jsonl", pairs={"clean": "a", "corrupt": "c"})
    assert "no column 'c'" in said
    assert said.endswith("it is named in `stimuli` by `pairs`")


SETS = [
    {
        "root": "كتب", "pattern": "فاعل", "class": "strong",
        "prompts": {"bare": "كاتب", "cloze": "اسم الفاعل من كتب هو"},
        "expected_surface": "كاتب",
        "prompt_contracts": {"cloze": {"reveals": ["root"], "target": "كتب", "kind": "cloze"}},
    },
    {"id": "x", "root": "درس", "pattern": "فاعل", "class": "strong", "prompts": {"bare": "دارس"}},
]  # fmt: skip


def test_prompt_sets(build, put):
    for body in (SETS, {"version": 2, "stimuli": SETS}):
        put("x.json", json.dumps(body, ensure_ascii=False, indent=1))
        bare, cloze, other = build(file="x.json").stimuli
        assert [s.id for s in (bare, cloze, other)] == ["كتب.فاعل.bare", "كتب.فاعل.cloze", "x.bare"]
        assert (bare.expected, other.expected) == ("كاتب", None)
        assert (cloze.template, cloze.reveals) == ("cloze", ("root",))
        assert (cloze.target.start, cloze.target.end) == (25, 31)
        shared = {"root": "كتب", "pattern": "فاعل", "class": "strong"}
        assert bare.labels == shared
        assert cloze.labels == shared | {"contract_kind": "cloze"}


def test_prompts_that_reveal_labels_are_refused_by_default(refused, put):
    bad = [SETS[0] | {"prompt_contracts": None}]
    put("x.json", json.dumps(bad, ensure_ascii=False))
    assert "the label 'root' stands in the text of 1 prompts" in refused(file="x.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[\n {"root": "r", "pattern": "p", "prompts": {"a": "x"}},\n {"root": }]', ":3: not valid JSON at column 11"),
        ('[\n\n {"root": "r", "pattern": "p", "prompts": []}]', ":3: prompts: found an empty list, expected"),
        ('[{"root": "r", "prompts": {"a": "x"}}]', ":1: found an entry without `id`, expected `root` and `pattern`"),
        ('[{"id": "i", "prompts": {"a": "x"}, "prompt_contracts": {"b": {}}}]', ":1: prompt_contracts: 'b' is no"),
        ('[{"id": "i", "prompts": {"a": "x"}, "prompt_contracts": {"a": 1}}]', ":1: prompt_contracts: found 1"),
        ('[{"id": "i", "prompts": {"a": "x"}, "id": "j"}]', "the key 'id' stands twice"),
        ('[{"id": "i", "prompts": {"a": "x"}, "b": [1]}]', ":1: b: found [1], expected text"),
        ('[{"id": "i", "prompts": {"a": "\\ud83e"}}]', ":1: 'a': an escape names half a surrogate pair"),
        ('[{"prompt": "a"}]', ":1: found an entry without `prompts`, expected name: text; rows"),
        ("[1]", ":1: found 1, expected an object with root, pattern and prompts"),
        ('{"a": 1}', ":1: found an object without a list `stimuli`"),
        ('{"stimuli": [1', ":1: not valid JSON"),
        ("[]", "no stimuli in this file"),
        ("[", ":1: not valid JSON"),
        ('"a"', ":1: found no list"),
        ("", ":1: found no list"),
        ("[" * 100_000, "not"),
        ('[{"id": "i", "prompts": {"a": "x"}} {"id"', ":1: not valid JSON at column 37"),
    ],
)  # fmt: skip
def test_wrong_prompt_sets_name_their_line(refused, put, tmp_path, content, said):
    message = refused(file=put("x.json", content))
    assert message.startswith(str(tmp_path / "x.json"))
    assert said in message


def test_prompt_sets_bring_their_own_prompts(refused, put):
    put("x.json", json.dumps(SETS, ensure_ascii=False))
    assert "prompt_sets bring their own prompts" in refused(file="x.json", templates={"t": "{root}"})


def test_half_characters_are_refused_however_deep(refused, put):
    put("x.jsonl", '{"word": "ك", "analyses": [{"analysis": {"root": "\\ud800"}}]}\n')
    said = refused(file="x.jsonl", format="camel", templates={"t": "{root}"})
    assert "x.jsonl:1: 'root': an escape names half a surrogate pair" in said
