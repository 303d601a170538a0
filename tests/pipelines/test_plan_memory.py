"""What a plan holds for each prompt: bytes that Python and NumPy allocate, which no machine changes."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.identity import hash_stimuli
from pipelines.manifest import stimuli_sha256
from pipelines.plan import make_plan
from pipelines.rows import stimulus_record
from pipelines.stimuli.packed import pack
from pipelines.stimuli.record import Stimulus, Target
from tests.faults.rig import make_config
from tests.foundry.tiny import tiny_llama

FEW, MANY = 500, 2_500
"""Two sizes, so that what a plan takes without any prompt counts for nothing."""


def stimulus(at: int) -> Stimulus:
    """A stimulus; by its number it has everything, or hardly anything."""
    rich = at % 3 > 0
    return Stimulus(
        source_index=at,
        id=f"s-{at * 7919 % 10_007:05d}",
        prompt=f"كتب الطالب رقم {at}",
        labels={"root": f"r{at % 7}", "number": str(at)} if rich else {},
        template="t" if at % 2 else None,
        reveals=("number",) if rich else (),
        target=Target("الطالب", 7, 19) if rich else None,
        expected=f" {at}" if at % 3 == 1 else None,
        expect_mode="prefix" if at % 5 else "exact",
        original=f"كتب\u0640 الطالب رقم {at}" if at % 4 == 0 else None,
    )


def test_packed_stimuli_are_the_stimuli() -> None:
    given = [stimulus(at) for at in range(60)]
    packed = pack(given)
    assert list(packed) == given
    assert [packed[at] for at in range(-60, 60)] == given + given
    assert packed[3:50:7] == given[3:50:7]
    assert (list(packed.ids), list(packed.prompts)) == ([s.id for s in given], [s.prompt for s in given])
    assert packed.label_names == ["number", "root"]
    assert packed.lacking("root") == [s.id for s in given if "root" not in s.labels]
    assert list(packed.source_indices) == list(range(60))
    assert packed == pack(iter(given)) != pack(given[:-1])
    with pytest.raises(IndexError):
        packed[60]


def test_stimuli_are_hashed_in_the_users_order_whatever_theirs_is() -> None:
    given = [stimulus(at) for at in range(40)]
    whole, each = hash_stimuli(pack(given))
    assert whole == stimuli_sha256(given)
    mixed, of_mixed = hash_stimuli(pack(given[::-1]))
    assert (mixed, list(of_mixed)) == (whole, list(each))
    assert [name for name, _ in each] == [s.id for s in given]
    assert {len(digest) for _, digest in each} == {16}
    assert stimulus_record(given[0]) == stimulus_record(pack(given)[0])


def held(make: Callable[[], Any]) -> int:
    """Bytes that are still there when `make` is through, its result among them."""
    tracemalloc.start()
    try:
        kept = make()
        gc.collect()  # cycles that wait to be collected are not held
        size, _ = tracemalloc.get_traced_memory()
        del kept
        return size
    finally:
        tracemalloc.stop()


def test_a_plan_holds_a_few_hundred_bytes_a_prompt(tmp_path: Path) -> None:
    """Objects for every prompt would take over a thousand."""
    tiny_llama(tmp_path / "tiny.gguf", n_layers=3, context=256)

    def plan(count: int) -> Any:
        items = [{"id": f"row-{at:06d}", "prompt": f"item number {at}:"} for at in range(count)]
        return make_config(tmp_path, items)

    few, many = plan(FEW), plan(MANY)
    make_plan(few)  # what is loaded or cached the first time belongs to no prompt
    tokens = sum(make_plan(many).samples.lengths) - sum(make_plan(few).samples.lengths)
    for_each = (held(lambda: make_plan(many)) - held(lambda: make_plan(few))) / (MANY - FEW)
    # 6 bytes a token, 16 of prompt and 10 of id, and where each of them starts
    assert for_each < 6 * tokens / (MANY - FEW) + 26 + 120
