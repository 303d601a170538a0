"""The benchmark of traces runs, and counts the events of what it ran."""

from tests.bench.trace import measure
from tests.foundry.tiny import tiny_llama


def test_every_contender_is_timed(tmp_path) -> None:
    rows = [row.split(" | ") for row in measure(tiny_llama(tmp_path / "m.gguf"), 2)][1:]
    assert [row[:3] for row in rows] == [
        ["prefill of 128", "no trace", "0"],
        ["prefill of 128", "trace", "54"],
        ["prefill of 128", "trace with values", "54"],
        ["16 tokens and 32 more", "no trace", "0"],
        ["16 tokens and 32 more", "trace", str(54 * 33)],
        ["16 tokens and 32 more", "trace with values", str(54 * 33)],
    ]
    assert all(float(row[3]) > 0 and float(row[5]) > 0 for row in rows)
