"""UD treebanks: a small hand-made Arabic file with tokens of several words, an empty node and comments."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.stimuli.treebank import read_treebank


def line(number, form, lemma="_", upos="_", feats="_", head="0", deprel="root", misc="_"):
    return "\t".join([number, form, lemma, upos, "_", feats, head, deprel, "_", misc])


# كتب الطالب للمعلم، وقرأ. : للمعلم is ل + المعلم, whose letters are not those of the token; وقرأ is و + قرأ, whose are.
SENTENCE = "\n".join(
    [
        "# newdoc id = d1",
        "# sent_id = a-1",
        "# text = كتب الطالب للمعلم، وقرأ.",
        "# text_en = The student wrote to the teacher, and read.",
        line("1", "كتب", "كَتَب", "VERB", "Aspect=Perf|Number=Sing", "0", "root", "Root=ktb|Gloss=write"),
        line("2", "الطالب", "طَالِب", "NOUN", "Case=Nom|Number=Sing", "1", "nsubj", "Root=Tlb"),
        line("2.1", "هو", "هو", "PRON", "_", "_", "_"),
        line("3-4", "للمعلم", misc="SpaceAfter=No"),
        line("3", "ل", "لِ", "ADP", "_", "4", "case"),
        line("4", "المعلم", "مُعَلِّم", "NOUN", "Case=Gen|Number=Sing", "1", "obl"),
        line("5", "،", "،", "PUNCT", "_", "1", "punct"),
        line("6-7", "وقرأ", misc="SpaceAfter=No"),
        line("6", "و", "وَ", "CCONJ", "_", "7", "cc"),
        line("7", "قرأ", "قَرَأ", "VERB", "Number=Sing", "1", "conj"),
        line("8", ".", ".", "PUNCT", "_", "1", "punct"),
        "",
        "",
    ]
)


def test_every_word_of_the_text_is_a_stimulus(build, put):
    made = build(file=put("x.conllu", SENTENCE))
    text = "كتب الطالب للمعلم، وقرأ."
    assert [s.id for s in made.stimuli] == [f"a-1:{n}" for n in range(1, 9)]
    assert {s.prompt for s in made.stimuli} == {text}
    spans = [(s.target.start, s.target.end) for s in made.stimuli]
    # counted by hand: an Arabic letter is 2 bytes, a space or full stop 1
    assert spans == [(0, 6), (7, 19), (20, 32), (20, 32), (32, 34), (35, 37), (37, 43), (43, 44)]
    assert [s.target.text for s in made.stimuli] == ["كتب", "الطالب", "للمعلم", "للمعلم", "،", "و", "قرأ", "."]
    for s in made.stimuli:
        assert text.encode()[s.target.start : s.target.end].decode() == s.target.text
    spans = [s.labels["span"] for s in made.stimuli]
    assert spans == ["word", "word", "several_words", "several_words", "word", "part", "part", "word"]


def test_features_are_labels_and_the_sentence_is_a_group(build, put):
    first, second, third, *_ = build(file=put("x.conllu", SENTENCE)).stimuli
    assert first.labels == {
        "sentence": "a-1", "form": "كتب", "lemma": "كَتَب", "upos": "VERB", "deprel": "root", "span": "word",
        "Aspect": "Perf", "Number": "Sing",
    }  # fmt: skip
    assert second.labels["Case"] == "Nom"
    assert "Case" not in third.labels
    assert "Number" not in third.labels
    assert first.reveals == ("form", "lemma")
    assert first.expected is None
    assert first.template is None


def test_what_was_read_is_recorded(build, put):
    record = build(file=put("x.conllu", SENTENCE), select={"where": {"upos": ["VERB", "NOUN"]}}).record
    assert record["source"] == {
        "kind": "file", "format": "conllu", "rows": 8, "sentences": 1, "tokens_of_several_words": 2,
        "empty_nodes_left_out": 1, "texts_rebuilt": 0,
    }  # fmt: skip
    assert record["steps"] == [
        {"step": "read", "after": 8},
        {"step": "where", "before": 8, "after": 4, "labels": {"upos": ["VERB", "NOUN"]}},
    ]


def test_misc_and_chosen_labels(build, put):
    put("x.conllu", SENTENCE)
    columns = {"labels": {"root": "misc.Root", "pos": "upos", "group": "sentence", "head": "head"}}
    made = build(file="x.conllu", columns=columns).stimuli
    assert made[0].labels == {"root": "ktb", "pos": "VERB", "group": "a-1", "head": "0"}
    assert made[2].labels == {"pos": "ADP", "group": "a-1", "head": "4"}
    assert made[0].reveals == ()


def test_a_template_over_words(build, put):
    made = build(
        file=put("x.conllu", SENTENCE),
        templates={"one": {"text": "الكلمة {form}", "reveals": ["lemma", "form"]}},
        target="{form}",
        select={"where": {"upos": "NOUN"}},
    ).stimuli
    assert [s.prompt for s in made] == ["الكلمة الطالب", "الكلمة المعلم"]
    assert [(s.id, s.target.start) for s in made] == [("a-1:2.one", 13), ("a-1:4.one", 13)]


def test_a_word_alone_as_prompt(build, put):
    put("x.conllu", SENTENCE)
    made = build(file="x.conllu", columns={"prompt": "form"}, select={"where": {"upos": "NOUN"}}).stimuli
    assert [(s.prompt, s.target) for s in made] == [("الطالب", None), ("المعلم", None)]
    assert sorted(made[0].labels) == ["Case", "Number", "deprel", "lemma", "sentence", "span", "upos"]


def test_another_target_is_searched_in_the_sentence(build, refused, put):
    put("x.conllu", SENTENCE)
    made = build(file="x.conllu", columns={"target": "form"}, select={"where": {"upos": "VERB"}}).stimuli
    assert [s.target.text for s in made] == ["كتب", "قرأ"]
    assert "the target 'لِ' does not occur" in refused(file="x.conllu", columns={"target": "lemma"})


def test_without_text_it_is_made_of_forms(build, put):
    lines = [row for row in SENTENCE.split("\n") if not row.startswith("# text")]
    made = build(file=put("x.conllu", "\n".join(lines)))
    assert made.stimuli[0].prompt == "كتب الطالب للمعلم، وقرأ."
    assert made.record["source"]["texts_rebuilt"] == 1


def test_sentences_without_id_are_called_by_their_place(build, put):
    body = line("1", "قلم") + "\n\n" + line("1", "كتاب") + "\n"
    assert [s.id for s in build(file=put("x.conllu", body)).stimuli] == ["s000001:1", "s000002:1"]


def test_line_ends_and_a_byte_order_mark_do_not_matter(build, put):
    plain = build(file=put("x.conllu", SENTENCE)).stimuli
    put("y.conllu", ("\ufeff" + SENTENCE.replace("\n", "\r\n")).encode())
    assert build(file="y.conllu").stimuli == plain


def test_no_mark_is_touched(build, put):
    """Shadda before the vowel, a bidi mark inside a form: as typed."""
    form = "مدر\u0651\u064eس\u200fة"
    (made,) = build(file=put("x.conllu", line("1", form))).stimuli
    assert made.prompt == form


@pytest.mark.parametrize(
    ("replaced", "by", "at", "said"),
    [
        ("1\tكتب\t", "1 كتب ", 5, "found 8 cells, expected 10"),
        ("\n2\t", "\n3\t", 6, "found the word 3, expected 2"),
        ("\n2\t", "\nb\t", 6, "found the id 'b', expected a number"),
        ("\n2\t", "\n٢\t", 6, "found the id '٢'"),
        ("3-4", "3-3", 8, "found the token 3-3, expected a range that begins with 3"),
        ("6-7", "6-9", 12, "found the token 6-9, but the last word is 8"),
        ("6-7", "4-7", 12, "expected a range that begins with 6"),
        ("Case=Nom|", "Case|", 6, "found the features 'Case|Number=Sing', expected _ or Name=Value"),
        ("Case=Nom|", "Number=Dual|", 6, "the feature 'Number' stands twice"),
        ("Case=Nom|Number=Sing\t1", "Case=Nom|Number=Sing\t" + "1" * 5000, 6, "found the head '111"),
        ("Root=Tlb", "Root=Tlb|Gloss=a|Root=xyz", 6, "the key 'Root' stands twice in MISC"),
        ("Case=Nom|", "form=x|", 6, "the feature 'form' has the name of a column"),
        ("Case=Nom|Number=Sing\t1", "Case=Nom|Number=Sing\t9", 6, "found the head '9', expected another word"),
        ("Case=Nom|Number=Sing\t1", "Case=Nom|Number=Sing\t2", 6, "found the head '2', expected another word"),
        ("Case=Nom|Number=Sing\t1", "Case=Nom|Number=Sing\t", 6, "cell 7 is empty, expected _"),
        ("2\tالطالب", "# no\n2\tالطالب", 6, "a comment among the words; is an empty line missing here?"),
        ("# text_en", "# text = x\n# text_en", 4, "a second `# text` in one sentence"),
        ("# text = كتب", "# text = كتبت", 6, "found the form 'الطالب', but `# text` goes on with 'ت الطالب"),
        ("وقرأ.\n", "وقرأ. ثم\n", 1, "`# text` goes on with 'ثم' after the last word"),
    ],
)
def test_wrong_files_give_line_numbers(refused, put, tmp_path, replaced, by, at, said):
    assert replaced in SENTENCE
    message = refused(file=put("x.conllu", SENTENCE.replace(replaced, by, 1)))
    assert message.startswith(f"{tmp_path / 'x.conllu'}:{at}: ")
    assert said in message


def test_all_wrong_sentences_are_named_at_once(refused, put):
    said = refused(file=put("x.conllu", f"{line('1', 'a')}\n\n{line('2', 'b')}\n\n{line('x', 'c')}\n")).splitlines()
    assert [s.split(": ")[0].rpartition(":")[2] for s in said] == ["3", "5"]


def test_a_sentence_twice_is_refused(refused, put):
    assert "the sentence 'a-1' stands twice, first at line 1" in refused(file=put("x.conllu", SENTENCE + SENTENCE))


def test_withheld_forms_are_explained(refused, put):
    body = "# text = كتب\n" + line("1", "_") + "\n"
    assert "x.conllu:2: found the form '_'" in refused(file=put("x.conllu", body))
    assert "withheld" in refused(file="x.conllu")


def test_misspelt_labels_are_refused(refused, put):
    said = refused(file=put("x.conllu", SENTENCE), columns={"labels": ["upso"]})
    assert "no column 'upso'; did you mean 'upos'?" in said


LETTERS = st.text("كتبدرسعلم\u064e\u0651a🦙", min_size=1, max_size=5)


@given(
    st.lists(st.tuples(st.lists(LETTERS, min_size=1, max_size=3), st.booleans(), st.booleans()), min_size=1, max_size=6)
)
def test_spans_are_those_of_the_forms_however_words_are_joined(tmp_path_factory, tokens):
    """Tokens of one to three words, spaced or not, joined letter by letter or under a form of their own."""
    lines, text, wanted, number = [], "", [], 1
    for words, spaced, own in tokens:
        own = own and len(words) > 1
        form = "ك" + "".join(words) if own else "".join(words)
        start, misc = len(text.encode()), "_" if spaced else "SpaceAfter=No"
        if len(words) > 1:
            lines.append(line(f"{number}-{number + len(words) - 1}", form, misc=misc))
        at = start
        for word in words:
            lines.append(line(str(number), word, misc=misc if len(words) == 1 else "_"))
            size = len(word.encode())
            wanted.append((start, start + len(form.encode())) if own else (at, at + size))
            at, number = at + size, number + 1
        text += form + " " * spaced
    path = tmp_path_factory.mktemp("conllu") / "x.conllu"
    path.write_text(f"# text = {text.strip()}\n" + "\n".join(lines) + "\n\n")
    table = read_treebank(path)
    assert list(table.spans) == wanted
    for (_, row), (start, end) in zip(table.rows, wanted, strict=True):
        assert row["prompt"].encode()[start:end].decode() == row["target"]


def test_what_real_treebanks_write(build, put):
    """Layered features, comments without a value, enhanced edges, and a token whose words restore a hamza."""
    lines = [
        "# newpar id = p5",
        "# sent_id = p5u1",
        "# text = واكد كتابي.",
        "# orig_file_sentence AFP_0002#5",
        line("1-2", "واكد"),
        line("1", "و", "وَ", "CCONJ", "_", "0", "root"),
        line("2", "أكد", "أَكَّد", "VERB", "Aspect=Perf", "1", "parataxis", "Gloss=affirm,assure|Root=' k d"),
        "3\tكتابي\tكِتَاب\tNOUN\tN---\tCase=Nom,Acc|ExtPos=NOUN|Number[psor]=Sing\t2\tnsubj:pass\t2:nsubj|0:conj:وَ\t_",
        line("4", ".", ".", "PUNCT", "_", "1", "punct", "SpacesAfter=\\n"),
        "",
        "",
    ]
    columns = {"labels": {"psor": "Number[psor]", "case": "Case", "root": "misc.Root", "span": "span"}}
    made = build(file=put("x.conllu", "\n".join(lines)), columns=columns)
    assert [s.labels.get("span") for s in made.stimuli] == ["several_words", "several_words", "word", "word"]
    assert [s.target.text for s in made.stimuli] == ["واكد", "واكد", "كتابي", "."]
    assert (made.stimuli[2].labels["psor"], made.stimuli[2].labels["case"]) == ("Sing", "Nom,Acc")
    assert made.stimuli[1].labels["root"] == "' k d"
    chosen = build(file="x.conllu", select={"where": {"Number[psor]": "Sing"}})
    assert [s.id for s in chosen.stimuli] == ["p5u1:3"]


def test_whole_treebanks():
    """Every word, counted by another rule: lines that begin with a number and a tab, `n-m`, or `n.m`."""
    named = os.environ.get("EMBER_TREEBANKS")
    if not named:
        pytest.skip("EMBER_TREEBANKS is unset: name .conllu files, with colons between them, to read them whole")
    for name in named.split(":"):
        text = Path(name).read_text(encoding="utf-8")
        table = read_treebank(Path(name))
        count = {kind: len(re.findall(rf"^\d+{kind}", text, re.MULTILINE)) for kind in ("\t", "-", r"\.")}
        told = (len(table.rows), table.counts["tokens_of_several_words"], table.counts["empty_nodes_left_out"])
        assert told == (count["\t"], count["-"], count[r"\."])
        assert table.counts["sentences"] == len([block for block in re.split(r"\n\s*\n", text) if block.strip()])
        words = (match for match in re.finditer(r"^\d+\t(.*)$", text, re.MULTILINE))
        for (_, row), match in zip(table.rows, words, strict=True):
            cells = match[1].split("\t")
            assert row["form"] == cells[0]
            for pair in cells[4].split("|") if cells[4] != "_" else []:
                assert row[pair.partition("=")[0]] == pair.partition("=")[2]
