"""What `ember bench` measures: its prompts, ceilings and estimate by hand, its output, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember
from ember import bench
from ember.bench import (
    Bench,
    Figure,
    Products,
    decode_speed,
    layer_matrices,
    measure,
    product_flops,
    run_seconds,
    template_prompts,
)
from ember.cli.main import cli, run
from ember.errors import InputError
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import PLAIN
from tests.foundry.tiny import tiny_llama

NANO = "builtin:sarf-nano"
ROOTS = Path(__file__).resolve().parents[2] / "configs/roots.yaml"


def call(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, str, str]:
    status = run(lambda: cli.main(["bench", *arguments], standalone_mode=False))
    out, err = capfdbinary.readouterr()
    return status, out.decode(), err.decode()


def test_a_figure_is_its_median_and_its_spread() -> None:
    figure = Figure((4.0, 1.0, 2.0), "tok/s")
    assert (figure.median, figure.spread) == (2.0, 1.5)
    assert figure.record() == {"median": 2.0, "least": 1.0, "most": 4.0, "unit": "tok/s"}


def test_products_are_those_of_the_models_matrices(tmp_path: Path) -> None:
    file = ember.open(tiny_llama(tmp_path / "m.gguf")).file
    assert len(layer_matrices(file)) == 3 * 7
    d, narrow, ffn, rows, last = 64, 16, 96, 50, 4
    keys, rest = 2 * narrow * d, 2 * d * d + 3 * ffn * d
    whole = 2 * rows * (keys + rest)
    assert product_flops(file, rows, last) == 2 * whole + 2 * (rows * keys + last * rest)
    Products(file, rows, last).run()


def test_prompts_share_twelve_tokens_and_end_alike() -> None:
    model = ember.open(NANO)
    prompts = template_prompts(model, 200)
    assert {len(prompt) for prompt in prompts} == {28}
    assert len({tuple(prompt) for prompt in prompts}) == 200
    assert len({tuple(prompt[:12]) for prompt in prompts}) == len({tuple(prompt[16:]) for prompt in prompts}) == 1
    assert not any(model.tokenizer.is_special(token) for prompt in prompts for token in prompt[12:16])
    assert template_prompts(model, 3) == template_prompts(model, 3)


def test_prompts_leave_room_for_what_follows_them(tmp_path: Path) -> None:
    model = ember.open(tiny_llama(tmp_path / "m.gguf", context=32))
    assert {len(prompt) for prompt in template_prompts(model, 5)} == {16}
    decode_speed(model, template_prompts(model, 5), 16)
    with pytest.raises(InputError, match="context of 7 tokens is too short"):
        measure(ember.open(tiny_llama(tmp_path / "short.gguf", context=7)))


def test_decoding_that_takes_long_ends_early_and_for_all_prompts_at_once(monkeypatch) -> None:
    model = ember.open(NANO)
    monkeypatch.setattr(bench, "RUN_SECONDS", 0.0)
    clock = bench._StepClock()
    work = ember.model.UnitWork(
        tuple(np.array(one, np.int32) for one in template_prompts(model, 5)), max_tokens=bench.STEPS
    )
    made = model.run_unit(work, listener=clock).produced
    assert {len(one.token_ids) for one in made} == {bench.LEAST_STEPS + 1} == {len(clock.stamps)}
    assert decode_speed(model, template_prompts(model, 5), bench.STEPS) > 0


def test_what_decoding_reads_is_what_the_route_reads(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "m.gguf")
    values = 3 * (2 * 64 * 64 + 2 * 16 * 64 + 3 * 96 * 64) + 512 * 64
    assert bench.decoded_from(ember.open(path, route="reference")) == 4 * values
    packed = ember.open(path, route="fast")
    stored = [t.nbytes for n, t in packed.file.tensors.items() if len(t.shape) == 2 and n != "token_embd.weight"]
    head = "output.weight" if "output.weight" in packed.file.tensors else "token_embd.weight"
    expected = sum(stored) + (packed.file.tensors[head].nbytes if head == "token_embd.weight" else 0)
    assert bench.decoded_from(packed) == expected


def test_everything_is_measured_and_has_a_share() -> None:
    found = measure(ember.open(NANO, threads=1), prompts=9, repeats=2)
    assert set(found.figures) == {"peak", "prefill", "products", "reading", "decode_1", "decode_16", "decode_64"}
    assert all(len(figure.values) == 2 and min(figure.values) > 0 for figure in found.figures.values())
    assert (found.prompts, found.tokens, found.rows) == (9, 9 * 28, 12 + 9 * 16)
    assert found.shares["prefill_of_products"] == pytest.approx(
        found.figures["prefill"].median / found.figures["products"].median
    )
    assert found.private_bytes is None or found.private_bytes > 1e6
    with pytest.raises(InputError, match="prompts 0"):
        measure(ember.open(NANO), prompts=0)


@pytest.mark.parametrize("family", PLAIN)
def test_every_family_can_be_timed(tmp_path: Path, family: str) -> None:
    model = ember.open(tiny_family(tmp_path / "m.gguf", PLAIN[family]), threads=1)
    found = measure(model, prompts=2, repeats=1)
    assert min(found.shares.values()) > 0
    assert found.rows == 12 + 2 * 16


def test_a_run_is_estimated_from_its_plan() -> None:
    speeds = {"prefill": 200.0, "decode_1": 10.0, "decode_16": 50.0, "decode_64": 100.0}
    figures = {name: Figure((value,), "tok/s") for name, value in speeds.items()}
    found = Bench(10, 280, 140, figures, {}, 0.0, None)
    assert found.rows_per_second == 100
    assert [found.lockstep_speed(n) for n in (1, 15, 16, 63, 64, 900)] == [10, 10, 50, 50, 100, 100]
    plan: dict[str, Any] = {
        "rows_shared": 900, "rows_scored": 100, "prompts": 128, "max_tokens": 6, "units": 2,
        "workers": {"count": 4}, "time": {"seconds": 9.0, "prefill_seconds": 2.0, "decode_seconds": 1.0},
    }  # fmt: skip
    assert run_seconds(plan, found) == 6 + (1000 / 100 + 128 * 5 / 100) / 2


def test_the_record_for_machines(capfdbinary) -> None:
    status, out, _ = call(capfdbinary, NANO, "--prompts", "8", "--repeats", "1", "--threads", "1", "--json")
    told = json.loads(out)
    assert status == 0
    assert told["numerics"]["blas_threads"] == 1
    assert (told["layers"], told["prompts"], told["rows"]) == (5, 8, 12 + 8 * 16)
    assert set(told["shares"]) == {"prefill_of_products", "prefill_of_peak", "decode_1_of_reading"}
    assert told["kernels"]["weights"] in ("resident", "streamed")


def test_a_table_for_people_with_the_time_of_a_run(capfdbinary) -> None:
    status, out, _ = call(capfdbinary, NANO, "--prompts", "8", "--repeats", "1", "--config", str(ROOTS))
    assert status == 0
    assert "openblas" in out.splitlines()[1] or "threads" in out.splitlines()[1]
    for label in (
        "prefill",
        "decoding 1 prompt",
        "decoding 64 in lockstep",
        "matrix multiply, peak",
        "memory, reading",
    ):
        assert any(line.startswith(label) for line in out.splitlines())
    assert out.splitlines()[-1].startswith("roots: 480 prompts, ")
    assert "1 thread on" in out


def test_company_and_spread_deserve_a_warning() -> None:
    from ember.cli.bench import _warnings

    calm = Bench(1, 1, 1, {"peak": Figure((1.0, 1.0), "x")}, {}, 0.0, None)
    torn = Bench(1, 1, 1, {"peak": Figure((1.0, 2.0), "x")}, {}, 0.0, None)
    assert _warnings(calm, 0.1) == []
    assert "3.0 processes wanted this machine" in _warnings(calm, 3.0)[0]
    assert _warnings(torn, 0.1) == ["repeats lie far apart: peak 67%; run it again when nothing else runs"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((NANO, "--experiment", "activation_stats"), 2, "No such option"),
        (("/nowhere/m.gguf",), 1, "does not exist"),
        ((NANO, "--prompts", "0"), 2, "--prompts"),
        ((NANO, "--config", "/nowhere/c.yaml"), 2, "/nowhere/c.yaml"),
    ],
)
def test_what_cannot_be_timed_is_one_message(capfdbinary, arguments: tuple[str, ...], status: int, said: str) -> None:
    found, out, err = call(capfdbinary, *arguments)
    assert (found, out) == (status, "")
    assert said in err


def test_a_config_of_another_model_is_refused(capfdbinary, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m.gguf")
    status, _, err = call(capfdbinary, str(model), "--config", str(ROOTS))
    assert status == 2
    assert f"expected {model}: give the model that the config names" in err
