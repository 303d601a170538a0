"""The journal as a file: whole or absent, read back as it was, refused where it is something else; its summary."""

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ember.errors import InputError
from ember.trace import Event, Values, measure_peak, read_journal, summarise, total, write_journal, write_whole

COUNTS = st.integers(0, 2**62)
SHAPES = st.lists(st.integers(0, 2**31), max_size=3).map(tuple)
EVENTS = st.builds(
    Event,
    name=st.text(max_size=30),
    op_kind=st.text(max_size=10),
    phase=st.sampled_from(["prefill", "decode"]),
    layer=st.none() | st.integers(0, 200),
    token_index=COUNTS,
    input_shape=SHAPES,
    output_shape=SHAPES,
    input_bytes=COUNTS,
    output_bytes=COUNTS,
    weight_bytes=COUNTS,
    duration_ns=COUNTS,
    estimated_flops=COUNTS,
    kernel=st.text(max_size=30),
    weights=st.sampled_from(["packed", "resident", "streamed", None]),
    fused_into=st.none() | st.text(max_size=10),
    values=st.none()
    | st.just(Values())
    | st.builds(Values, st.floats(0, allow_infinity=False), st.text("0123456789abcdef", min_size=16, max_size=16)),
)
EVENT = Event("q_proj", "matmul", "prefill", 3, 0, (6, 64), (6, 64), 1536, 1536, 16384, 100, 49152, "blas sgemm",
              "resident", None, Values(1.5, "00112233445566ff"))  # fmt: skip


@given(st.lists(EVENTS, max_size=5))
def test_what_is_written_is_read_back(events) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        with write_journal(path) as write:
            for event in events:
                write(event)
        assert len(path.read_text(encoding="utf-8").split("\n")) == len(events) + 1
        assert list(read_journal(path)) == events
        assert [one.name for one in Path(folder).iterdir()] == ["t.jsonl"]


def test_a_line_has_the_fields_in_their_order(tmp_path) -> None:
    with write_journal(tmp_path / "t.jsonl") as write:
        write(EVENT)
        write(replace(EVENT, layer=None, weights=None, weight_bytes=0, values=None))
    first, second = map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines())
    assert list(first.items()) == [
        ("name", "q_proj"), ("op_kind", "matmul"), ("phase", "prefill"), ("layer", 3), ("token_index", 0),
        ("input_shape", [6, 64]), ("output_shape", [6, 64]), ("input_bytes", 1536), ("output_bytes", 1536),
        ("weight_bytes", 16384), ("duration_ns", 100), ("estimated_flops", 49152), ("kernel", "blas sgemm"),
        ("weights", "resident"), ("fused_into", None), ("norm", 1.5), ("fingerprint", "00112233445566ff"),
    ]  # fmt: skip
    assert (second["layer"], second["weights"], "norm" in second) == (None, None, False)


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_is_null(tmp_path, norm) -> None:
    with write_journal(tmp_path / "t.jsonl") as write:
        write(replace(EVENT, values=Values(norm, "0" * 16)))
    assert json.loads((tmp_path / "t.jsonl").read_text())["norm"] is None
    assert next(read_journal(tmp_path / "t.jsonl")).values == Values(None, "0" * 16)


def test_after_an_exception_the_old_file_stands_and_nothing_else(tmp_path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("old")

    def break_off() -> None:
        with write_journal(path) as write:
            write(EVENT)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_named(tmp_path) -> None:
    for path in (tmp_path / "no" / "t.jsonl", tmp_path):
        with pytest.raises(InputError, match=f"{path}: cannot be written"), write_journal(path):
            pass
    (tmp_path / "d").mkdir()
    with pytest.raises(InputError, match="cannot be written: Is a directory"), write_whole(tmp_path / "d"):
        pass


def test_a_full_disk_is_named(tmp_path) -> None:
    def fill() -> None:
        with write_journal(Path("/dev/full")) as write:
            for _ in range(1000):
                write(EVENT)

    with pytest.raises(InputError, match="/dev/full: cannot be written: No space left"):
        fill()
    assert Path("/dev/full").exists()


def line(**changes) -> str:
    return json.dumps(EVENT.record() | changes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing\n", "line 1: expected one JSON object of `ember trace`, found 'nothing"),
        ("\n", "line 1: expected one JSON object"),
        ("[]", "line 1: not an event of `ember trace`: expected a JSON object"),
        ("{}", "expected a text as name"),
        ("[" * 50_000, "line 1: expected one JSON object"),
        (line() + "\n" + line(name=3), "line 2: .* expected a text as name"),
        (line(duration_ns=-1), r"an integer of 0 to 2\*\*63 - 1 as duration_ns"),
        (line(estimated_flops=10**400), "as estimated_flops"),
        (line(estimated_flops=1.5), "as estimated_flops"),
        (line(input_bytes=True), "as input_bytes"),
        (line(input_shape=[1, -1]), "a list of sizes as input_shape"),
        (line(output_shape="6x6"), "a list of sizes as output_shape"),
        (line(phase="training"), "one of prefill, decode as phase"),
        (line(phase=["prefill"]), "as phase"),
        (line(layer=2**64 - 1.5), "a layer or null as layer"),
        (line(weights="lost"), "a state or null as weights"),
        (line(fused_into=4), "a name or null as fused_into"),
        (line(norm="big"), "a number or null as norm"),
        (line(fingerprint=7), "a text or null as fingerprint"),
        (line(name="x" * 100_000), "line 1: expected one JSON object"),
    ],
)
def test_what_is_no_journal_is_refused_by_line(tmp_path, text, said) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        list(read_journal(path))


def test_missing_and_binary_files_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        list(read_journal(tmp_path / "t.jsonl"))
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        list(read_journal(tmp_path))
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        list(read_journal(tmp_path / "b"))


def event(name: str, kind: str, took: int, flops: int, **more) -> Event:
    return replace(EVENT, name=name, op_kind=kind, duration_ns=took, estimated_flops=flops, **more)


def test_a_summary_adds_up_by_phase_and_kind() -> None:
    silu = event("silu", "activation", 0, 40, fused_into="elemul", weight_bytes=0, output_bytes=0)
    elemul = event("elemul", "multiply", 50, 10, weight_bytes=0)
    rows = summarise([
        event("q_proj", "matmul", 100, 1000), silu, elemul, event("k_proj", "matmul", 300, 1000),
        replace(silu, phase="decode"), replace(elemul, phase="decode"), event("a_mul", "multiply", 900, 1),
    ])  # fmt: skip
    told = [(row.phase, row.op_kind, row.events, row.duration_ns, row.nbytes, row.flops) for row in rows]
    assert told == [
        ("prefill", "multiply", 1, 900, 19456, 1),
        ("prefill", "matmul", 2, 400, 2 * 19456, 2000),
        ("prefill", "activation+multiply", 2, 50, 3 * 1536, 50),
        ("decode", "activation+multiply", 2, 50, 3 * 1536, 50),
    ]
    assert rows[1].per_second(rows[1].flops) == pytest.approx(2000 / 400e-9)
    assert replace(rows[0], duration_ns=0).per_second(1) == 0
    whole = total(rows[:3])
    assert (whole.phase, whole.op_kind, whole.events, whole.duration_ns, whole.flops) == (
        "prefill", "total", 5, 1350, 2051,
    )  # fmt: skip
    assert summarise([]) == []


def test_the_peak_is_that_of_so_many_threads() -> None:
    peak = measure_peak(1)
    assert peak.threads == 1
    assert 1e8 < peak.flops_per_second < 1e13
