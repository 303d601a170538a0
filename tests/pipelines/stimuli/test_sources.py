"""Inline items and files: every column accounted for, every row with its line."""

import json

import pytest


def test_plain_items(build):
    first, second = build(items=["كتاب", "🦙"]).stimuli
    assert (first.id, first.prompt, first.labels, first.template) == ("item-000000", "كتاب", {}, None)
    assert (second.id, second.source_index) == ("item-000001", 1)


def test_full_items(build):
    item = {
        "id": "a",
        "prompt": "الكتاب كتاب",
        "labels": {"number": "singular"},
        "template": "t",
        "target": "كتاب",
        "occurrence": 2,
        "expected": " x",
    }
    (stimulus,) = build(items=[item], expect_mode="contains").stimuli
    assert (stimulus.id, stimulus.labels, stimulus.template) == ("a", {"number": "singular"}, "t")
    assert (stimulus.target.start, stimulus.target.end) == (13, 21)
    assert (stimulus.expected, stimulus.expect_mode) == (" x", "contains")


def test_reveals_of_an_item_replace_the_section_s(build):
    labels = {"a": "1", "b": "2"}
    first, second = build(
        items=[{"prompt": "x", "labels": labels}, {"prompt": "y", "labels": labels, "reveals": ["b"]}], reveals=["a"]
    ).stimuli
    assert (first.reveals, second.reveals) == (("a",), ("b",))


def test_items_are_refused_with_their_place(refused):
    assert refused(items=["a", ""]) == "stimuli.items.1: stimulus 'item-000001': the prompt is empty; give it a text"
    said = refused(items=[{"id": "x", "prompt": "كتاب", "target": "باب"}])
    assert said.startswith("stimuli.items.0: stimulus 'x': the target 'باب' does not occur")


ROWS = [
    {"prompt": 'كتاب, "1"', "id": "a", "number": "sg", "expected": " x"},
    {"prompt": "كُتُب", "id": "b", "number": "pl", "expected": " y"},
]


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_the_same_table_in_four_formats(build, put, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    put("x.jsonl", jsonl(ROWS))
    put("x.csv", 'prompt,id,number,expected\n"كتاب, ""1""",a,sg, x\nكُتُب,b,pl, y\n')
    put("x.tsv", 'prompt\tid\tnumber\texpected\nكتاب, "1"\ta\tsg\t x\nكُتُب\tb\tpl\t y\n')
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "x.parquet")
    made = [build(file=f"x.{suffix}").stimuli for suffix in ("jsonl", "csv", "tsv", "parquet")]
    assert made[0] == made[1] == made[2] == made[3]
    assert [s.prompt for s in made[0]] == ['كتاب, "1"', "كُتُب"]
    assert [s.labels for s in made[0]] == [{"number": "sg"}, {"number": "pl"}]
    assert [s.expected for s in made[0]] == [" x", " y"]


def test_a_byte_order_mark_of_the_file_is_removed_and_one_inside_is_kept(build, put):
    put("x.csv", b"\xef\xbb\xbfprompt\n\xef\xbb\xbfa\n")
    assert build(file="x.csv").stimuli[0].prompt == "\ufeffa"
    put("x.jsonl", b'\xef\xbb\xbf{"prompt": "a"}\n')
    assert build(file="x.jsonl").stimuli[0].prompt == "a"


def test_white_space_and_line_separators_survive(build, put):
    texts = ["  a  ", "a\u2028b", "a\x85b", "a\tb", "a\nb", "a\r\nb", "\u00a0", "a\u200f"]
    put("x.jsonl", jsonl([{"prompt": text} for text in texts]))
    assert [s.prompt for s in build(file="x.jsonl").stimuli] == texts
    put("x.csv", "prompt\r\n" + "".join(f'"{text}"\r\n' for text in texts))
    assert [s.prompt for s in build(file="x.csv").stimuli] == texts


def test_mapped_columns(build, put):
    put("x.csv", "text,key,where,nth,n,form,note\nab ab,k,ab,2,sg,x,secret\n")
    columns = {
        "prompt": "text",
        "id": "key",
        "target": "where",
        "occurrence": "nth",
        "template": "form",
        "labels": {"number": "n"},
        "ignore": ["note"],
    }
    (stimulus,) = build(file="x.csv", columns=columns).stimuli
    assert (stimulus.id, stimulus.template, stimulus.labels) == ("k", "x", {"number": "sg"})
    assert (stimulus.target.start, stimulus.target.end) == (3, 5)


def test_labels_as_a_list(build, put):
    put("x.csv", "prompt,a,b\np,1,2\n")
    assert build(file="x.csv", columns={"labels": ["a", "b"]}).stimuli[0].labels == {"a": "1", "b": "2"}


def test_rows_without_id_are_called_by_their_place(build, put):
    put("x.csv", "prompt,id\np,\nq,own\n")
    assert [s.id for s in build(file="x.csv").stimuli] == ["row-000000", "own"]


def test_values_become_text_and_null_is_no_label(build, put):
    put("x.jsonl", '{"prompt": "p", "id": 7, "a": true, "b": 3, "c": 0.5, "d": null, "e": ""}\n')
    (stimulus,) = build(file="x.jsonl").stimuli
    assert stimulus.id == "7"
    assert stimulus.labels == {"a": "true", "b": "3", "c": "0.5", "e": ""}


def test_json_numbers_stay_as_they_are_written(build, refused, put):
    written = ["1.10", "1.1", "1e3", "1000.0", "1E3", "-0.0", "1e999", "0.1000000000000000055"]
    put("x.jsonl", "".join(f'{{"prompt": "p", "n": {one}}}\n' for one in written))
    assert [s.labels["n"] for s in build(file="x.jsonl").stimuli] == written
    put("x.jsonl", '{"prompt": "p", "id": 1.50}\n')
    assert build(file="x.jsonl").stimuli[0].id == "1.50"
    put("x.jsonl", '{"prompt": 1.50}\n')
    assert "x.jsonl:1: prompt: found 1.5, expected the prompt's text" in refused(file="x.jsonl")
    put("x.json", '[{"id": "a", "prompts": {"q": "p"}, "n": 1.10}]')
    assert build(file="x.json").stimuli[0].labels["n"] == "1.10"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"prompt": "promt"},
            "no column 'promt'; did you mean 'prompt'?; columns here: prompt, root_class, id; "
            "it is named in `stimuli` by `columns.prompt`",
        ),
        ({"labels": {"x": "no_such"}}, "it is named in `stimuli` by `columns.labels`"),
        ({"id": "name"}, "it is named in `stimuli` by `columns.id`"),
        ({"labels": ["root_clas"]}, "no column 'root_clas'; did you mean 'root_class'?"),
        ({"labels": {"x": "nothing"}}, "no column 'nothing'"),
        ({"ignore": ["idd"]}, "no column 'idd'; did you mean 'id'?"),
        ({"labels": []}, "nothing uses 'root_class': add to `columns.labels` or to `columns.ignore`"),
    ],
)
def test_columns_that_do_not_fit(refused, put, columns, said):
    """Q03: nothing is dropped silently."""
    put("x.csv", "prompt,root_class,id\np,strong,a\n")
    assert said in refused(file="x.csv", columns=columns)


def test_an_empty_cell_is_a_value_of_a_label_unless_listed(build, put):
    put("x.csv", "prompt,root\np,\nq,na\n")
    assert [s.labels for s in build(file="x.csv").stimuli] == [{"root": ""}, {"root": "na"}]
    assert [s.labels for s in build(file="x.csv", columns={"missing": [""]}).stimuli] == [{}, {"root": "na"}]
    put("x.jsonl", '{"prompt": "p", "root": null}\n')
    assert [s.labels for s in build(file="x.jsonl").stimuli] == [{}]


@pytest.mark.parametrize(
    ("columns", "example"),
    [("word,root,pattern", "word"), ("id,Prompt,root", "Prompt"), ("text", "text")],
)
def test_a_table_without_a_column_of_prompts_is_told_how_to_name_one(refused, put, columns, example):
    put("x.csv", f"{columns}\n{columns}\n")
    said = refused(file="x.csv")
    listed = columns.replace(",", ", ")
    assert f"x.csv: no column 'prompt'; columns here: {listed}; say in `stimuli` which of them" in said
    assert said.endswith(f"e.g. `columns: {{prompt: {example}}}`")
    assert "did you mean" not in said


def test_rows_without_any_field(refused, put):
    put("x.jsonl", "{}\n")
    assert "no column 'prompt'; columns here: ; say" in refused(file="x.jsonl")


@pytest.mark.parametrize(
    ("name", "mark", "remedy"),
    [
        ("x.csv", ";", "Ember reads commas (csv) and tabs (tsv); save the table with one of these"),
        ("x.csv", "\t", "give `format: tsv`"),
        ("x.tsv", ",", "give `format: csv`"),
    ],
)
def test_a_table_cut_at_another_mark_is_told_so(build, refused, put, name, mark, remedy):
    said = f"; the separator looks like {mark!r}: {remedy}"
    put(name, "\n".join(mark.join(row) for row in (("word", "root"), ("كتاب", "كتب"))))
    assert said in refused(file=name)
    assert said in refused(file=name, columns={"prompt": "word"})
    other = "," if name == "x.csv" else "\t"
    put(name, f"word{mark}root\nكتاب{other} وقلم{mark}كتب\n")
    assert f":2: found 2 cells, expected 1 as in the header{said}" in refused(file=name)
    put(name, f"word{mark} root\nكتاب\n")
    assert build(file=name, columns={"prompt": f"word{mark} root"}).stimuli[0].prompt == "كتاب"  # where it is named so


def test_a_field_misspelt_halfway_is_found(refused, put):
    put("x.jsonl", '{"prompt": "p", "root_class": "s"}\n{"prompt": "q", "root_clas": "w"}\n{"prompt": "r"}\n')
    said = refused(file="x.jsonl").splitlines()
    assert len(said) == 2
    assert "x.jsonl:2: other fields than the first row: unknown 'root_clas'; did you mean 'root_class'?" in said[0]
    assert "x.jsonl:3: other fields than the first row: missing 'root_class' (write null" in said[1]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.jsonl", '{"prompt": "p"}\n{"prompt": p}\n', "x.jsonl:2: not valid JSON at column 12"),
        ("x.jsonl", '["p"]\n', "x.jsonl:1: found ['p'], expected a JSON object"),
        ("x.jsonl", '{"prompt": "p", "prompt": "q"}\n', "x.jsonl:1: the key 'prompt' stands twice"),
        ("x.jsonl", '{"prompt": "\\ud83e"}\n', "x.jsonl:1: 'prompt': an escape names half a surrogate pair"),
        ("x.jsonl", '{"prompt": "p", "a": NaN}\n', "x.jsonl:1: found NaN, which is not JSON"),
        ("x.jsonl", '{"prompt": ' + "[" * 100_000 + "\n", "x.jsonl:1: not"),
        ("x.jsonl", '{"prompt": "p", "a": ' + "9" * 5000 + "}\n", "x.jsonl:1: not usable JSON"),
        ("x.jsonl", '{"prompt": 5}\n', "x.jsonl:1: prompt: found 5, expected the prompt's text"),
        ("x.jsonl", '{"prompt": null}\n', "x.jsonl:1: prompt: found nothing, expected the prompt's text"),
        ("x.jsonl", '{"prompt": "p", "a": {"b": 1}}\n', "x.jsonl:1: a: found {'b': 1}, expected text"),
        ("x.jsonl", "\n\n", "no stimuli in this file"),
        ("x.csv", "", "empty, expected a header row"),
        ("x.csv", "prompt\n", "no stimuli in this file"),
        ("x.csv", "prompt,a\np\n", "x.csv:2: found 1 cells, expected 2 as in the header"),
        ("x.csv", 'prompt,a\n"p\nq",1\nr\n', "x.csv:4: found 1 cells"),
        ("x.csv", "prompt,prompt\np,q\n", "x.csv:1: the header names 'prompt' twice"),
        ("x.csv", "prompt,\np,q\n", "x.csv:1: a column has no name"),
        ("x.csv", 'prompt\n"p\n', "x.csv:2: cannot be split into cells: unexpected end of data"),
        ("x.csv", 'prompt\n"p"q\n', "x.csv:2: cannot be split into cells"),
        ("x.csv", "prompt\np\n\nq\n", "x.csv:3: a blank line among the rows"),
        ("x.csv", b"prompt\nab\xff\n", "x.csv:2: byte 9 is 0xff, which is not UTF-8"),
        ("x.csv", "prompt,id\np,a\nq,a\n", "x.csv:3: stimulus 'a': this id is already used at"),
        ("x.csv", "prompt,id\n,a\n", "x.csv:2: stimulus 'a': the prompt is empty"),
        ("x.csv", "prompt,target,occurrence\naa,a,0\n", "x.csv:2: occurrence: found '0', expected a count from 1"),
        ("x.csv", "prompt,target,occurrence\naa,a,٢\n", "x.csv:2: occurrence: found '٢', expected a count from 1"),
        ("x.csv", "prompt,target\naa,a\n", "x.csv:2: stimulus 'row-000000': the target 'a' occurs 2 times"),
        ("x.parquet", "no parquet", "x.parquet: not a readable Parquet file"),
        ("x.conllu", "# text = a\n", "x.conllu:1: comments without words"),
        ("x.txt", "a\n", "found a name that ends in '.txt', expected one of .jsonl"),
    ],
)
def test_bad_files_name_file_and_line(refused, put, tmp_path, name, content, said):
    message = refused(file=put(name, content))
    assert message.startswith(str(tmp_path / name))
    assert said in message


def test_missing_files_and_folders(refused, tmp_path):
    assert "x.csv: no such file" in refused(file="x.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "not a regular file" in refused(file="folder.csv")


def test_a_format_given_counts_more_than_the_name(build, put):
    put("x.txt", "prompt\np\n")
    assert build(file="x.txt", format="csv").stimuli[0].prompt == "p"


def test_long_cells(build, put):
    put("x.csv", "prompt\n" + "ك" * 200_000 + "\n")
    assert len(build(file="x.csv").stimuli[0].prompt) == 200_000


def test_parquet_columns_are_texts_or_numbers(build, refused, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(**columns):
        pq.write_table(pa.table(columns), tmp_path / "x.parquet")

    write(prompt=["p"], a=pa.array(["x"]).dictionary_encode(), b=[3], c=pa.array([None], pa.string()))
    assert build(file="x.parquet").stimuli[0].labels == {"a": "x", "b": "3"}
    write(prompt=["p"], a=[[1, 2]])
    assert "column 'a' is list<" in refused(file="x.parquet")
    write(prompt=["p", None])
    assert "x.parquet: row 1: prompt: found nothing" in refused(file="x.parquet")


def test_fractions_of_a_parquet_file(build, refused, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(numbers, kind):
        column = pa.array(numbers, kind)
        pq.write_table(pa.table({"prompt": ["p"] * len(numbers), "n": column}), tmp_path / "x.parquet")

    def labels():
        return [s.labels.get("n") for s in build(file="x.parquet").stimuli]

    nan, inf = float("nan"), float("inf")
    write([1.5, nan, None, 0.1], pa.float64())
    assert labels() == ["1.5", None, None, "0.1"]
    write([1.1, nan], pa.float32())
    assert labels() == ["1.1", None]
    for infinite in (inf, -inf):
        write([1.0, nan, infinite], pa.float64())
        assert f"x.parquet: row 2: n: found {infinite}, expected a finite number" in refused(file="x.parquet")
    pq.write_table(pa.table({"prompt": [1.5]}), tmp_path / "x.parquet")
    assert "row 0: prompt: found 1.5, expected the prompt's text" in refused(file="x.parquet")


def test_parquet_texts_are_utf8(refused, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    offsets, data = pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00"), pa.py_buffer(b"a\xff")
    torn = pa.Array.from_buffers(pa.string(), 1, [None, offsets, data])
    pq.write_table(pa.table({"prompt": torn}), tmp_path / "x.parquet")
    assert "not UTF-8" in refused(file="x.parquet")


def test_damaged_parquet_is_refused(refused, put, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"prompt": ["كتاب"] * 100}), tmp_path / "good.parquet")
    data = (tmp_path / "good.parquet").read_bytes()
    for cut in (0, 3, 10, len(data) // 2, len(data) - 1):
        assert "not a readable Parquet file" in refused(file=put("cut.parquet", data[:cut]))
