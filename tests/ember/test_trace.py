"""Traces of every family: which operations, in which order, of which sizes, with which values."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import ember
from ember.engine import prefill, traced, tracer
from ember.engine.events import Values, attention_flops, bias_name, norm_name, product_name
from ember.errors import InputError, NumericsError
from ember.hooks import Experiment, ExperimentFailure, TracingState
from ember.hooks.zero_layer_output import ZeroLayerOutput
from ember.tolerances import TOLERANCES
from tests.foundry import traces
from tests.foundry.families import Tiny, tiny_family
from tests.foundry.tiny import tiny_llama

LLAMA_LAYER = [
    "attn_rms_norm", "q_proj", "k_proj", "v_proj", "rope_q", "rope_k", "kv_cache_store", "attention_score", "o_proj",
    "attn_residual_add", "mlp_rms_norm", "gate_proj", "up_proj", "silu", "elemul", "down_proj", "mlp_residual_add",
]  # fmt: skip
ROUTES = ("reference", "fast")
SIX = [1, 2, 3, 4, 5, 6]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    return {name: traces.write_model(folder, name) for name in traces.MODELS}


@pytest.fixture(scope="module")
def model(paths):
    return ember.open(paths["tiny_llama"], threads=1)


def untimed(events):
    return [replace(event, duration_ns=0) for event in events]


def fingerprint(rows: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows, "<f4").tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", traces.MODELS)
def test_each_family_has_its_list_on_both_routes(paths, name, route) -> None:
    events = traces.traced(paths[name], route)
    lines, known = traces.recorded(name)
    assert [traces.line(event) for event in events] == lines
    # a norm is off by no more than the worst value by the rms of its row, which is what the tolerance bounds
    assert traces.norms(events) == pytest.approx(known, rel=TOLERANCES["fast_vs_reference"].bound)


@pytest.mark.parametrize("route", ROUTES)
def test_bits_are_those_recorded_for_this_machine(paths, route) -> None:
    """One prompt alone is the same unit every time: contract 1, which holds everywhere, is all that is asked."""
    known = json.loads(traces.FINGERPRINTS.read_text(encoding="utf-8"))
    here = traces.machine(paths["tiny_llama"])
    if here not in known:
        pytest.skip(f"no fingerprints for {here}: record them with python -m tests.foundry.traces --bits")
    found = traces.traced(paths["tiny_llama"], route)
    assert [event.values.fingerprint for event in found] == known[here][route]


def test_bits_of_the_other_blas_kernels_are_those_recorded(paths) -> None:
    """The same under OpenBLAS's own choice of kernels, which the environment of the tests may override."""
    program = (
        "import json, sys; from pathlib import Path; from tests.foundry import traces\n"
        "path = Path(sys.argv[1]); known = json.loads(traces.FINGERPRINTS.read_text())\n"
        "here = traces.machine(path)\n"
        "print(json.dumps([here, here in known and known[here] == traces.fingerprints(path)]))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(paths["tiny_llama"])],
        capture_output=True, text=True, check=True, env=environment, cwd=traces.DATA.parents[2], timeout=120,
    )  # fmt: skip
    here, same = json.loads(done.stdout)
    if here not in json.loads(traces.FINGERPRINTS.read_text(encoding="utf-8")):
        pytest.skip(f"no fingerprints for {here}: record them with python -m tests.foundry.traces --bits")
    assert same


@pytest.mark.parametrize("route", ROUTES)
def test_six_tokens_through_sixteen_layers_are_275_events(tmp_path, route) -> None:
    model = ember.open(tiny_llama(tmp_path / "m.gguf", n_layers=16), route=route, threads=1)
    events = model.trace(tokens=SIX).events
    assert len(events) == 275
    assert [event.name for event in events] == ["embedding", *LLAMA_LAYER * 16, "final_norm", "lm_head"]
    assert [event.layer for event in events] == [None, *(layer for layer in range(16) for _ in LLAMA_LAYER), None, None]
    assert {event.phase for event in events} == {"prefill"}


def test_the_built_in_model_is_a_llama_of_17_events_a_layer() -> None:
    model = ember.open("builtin:sarf-nano", threads=1)
    assert model.architecture == "llama"
    assert len(model.trace("اسم الفاعل من الجذر ك ت ب:").events) == 3 + 17 * model.n_layers


@pytest.mark.realmodel
@pytest.mark.parametrize("route", ROUTES)
def test_smollm2_is_a_llama_of_thirty_layers(smollm2, route) -> None:
    model = ember.open(smollm2, route=route, threads=1)
    found = model.trace("Once upon a time there was a", max_tokens=3, values=True)
    assert [len([event for event in found.events if event.phase == phase]) for phase in ("prefill", "decode")] == [
        3 + 17 * 30, 2 * (3 + 17 * 30),
    ]  # fmt: skip
    assert found.token_ids == model.generate("Once upon a time there was a", max_tokens=3).token_ids
    head = next(event for event in found.events if event.name == "lm_head")
    assert head.values.fingerprint == fingerprint(model.logits(["Once upon a time there was a"]))


def test_every_generated_token_but_the_last_is_an_evaluation(model) -> None:
    found = model.trace(tokens=SIX, max_tokens=4, stop_at_eos=False)
    assert (found.prompt_ids, len(found.token_ids), found.stopped) == (SIX, 4, "length")
    one = 3 + 17 * 3
    assert len(found.events) == one * 4
    for step in range(3):
        events = found.events[one * (step + 1) : one * (step + 2)]
        assert [event.name for event in events] == [event.name for event in found.events[:one]]
        assert {(event.phase, event.token_index) for event in events} == {("decode", 6 + step)}
        assert {event.output_shape[0] for event in events} == {1}
    cached = [event.input_bytes for event in found.events if event.name == "attention_score" and event.layer == 0]
    # q [1, 64], and 7, 8, 9 cached rows of 2 heads, 8 wide, of keys and of values
    assert cached[1:] == [4 * (64 + n * 2 * 16) for n in (7, 8, 9)]


def test_sizes_and_flops_by_hand(model) -> None:
    found = {event.name: event for event in model.trace(tokens=SIX).events if event.layer in (None, 0)}
    product = found["q_proj"]
    assert (product.input_shape, product.output_shape) == ((6, 64), (6, 64))
    assert (product.input_bytes, product.output_bytes, product.weight_bytes) == (6 * 64 * 4, 6 * 64 * 4, 64 * 64 * 4)
    assert product.estimated_flops == 2 * 6 * 64 * 64
    assert found["attention_score"].estimated_flops == (1 + 2 + 3 + 4 + 5 + 6) * 8 * (2 * 8 + 2 * 8 + 5)
    assert found["attention_score"].input_bytes == 4 * 6 * (64 + 16 + 16)
    assert found["kv_cache_store"].output_bytes == 4 * 6 * (16 + 16)
    assert found["attn_residual_add"].input_bytes == 2 * 6 * 64 * 4
    assert (found["embedding"].input_shape, found["embedding"].output_shape) == ((6,), (6, 64))
    assert (found["lm_head"].input_shape, found["lm_head"].output_shape) == ((1, 64), (1, 512))
    assert found["lm_head"].estimated_flops == 2 * 64 * 512
    assert all(event.duration_ns > 0 for event in found.values() if event.fused_into is None)


def test_a_window_is_counted(tmp_path) -> None:
    tiny = Tiny("gemma3", n_layers=2, n_heads=2, n_kv=1, head_dim=16, sliding=2, window=4)
    model = ember.open(tiny_family(tmp_path / "m.gguf", tiny), threads=1)
    scores = [event for event in model.trace(tokens=SIX).events if event.name == "attention_score"]
    assert scores[0].estimated_flops == attention_flops(1 + 2 + 3 + 4 + 4 + 4, 2, 16, 16)
    assert scores[1].estimated_flops == attention_flops(21, 2, 16, 16)
    stepped = model.trace(tokens=SIX, max_tokens=2, stop_at_eos=False).events
    scores = [event for event in stepped if event.name == "attention_score" and event.phase == "decode"]
    assert [event.estimated_flops for event in scores] == [attention_flops(n, 2, 16, 16) for n in (4, 7)]


@pytest.mark.parametrize("route", ROUTES)
def test_a_gate_is_two_events_of_which_the_first_leaves_nothing(paths, route) -> None:
    events = traces.traced(paths["llama"], route)
    for silu, elemul in pairwise(events):
        if silu.name == "silu":
            assert (silu.fused_into, silu.duration_ns, silu.output_bytes, silu.values) == ("elemul", 0, 0, Values())
            assert (elemul.name, elemul.fused_into) == ("elemul", None)
            assert elemul.duration_ns > 0
            assert silu.kernel == elemul.kernel
    assert [event.name for event in events if event.fused_into] == ["silu"] * len(
        [event for event in events if event.name == "elemul"]
    )


def test_weights_are_told_as_they_are_kept(tmp_path) -> None:
    path = tiny_llama(tmp_path / "m.gguf", quant={"": "Q8_0", "attn_q": "F32"})
    kept = {}
    for budget in (0, 1 << 30):
        events = ember.open(path, threads=1, memory_budget=budget).trace(tokens=SIX).events
        kept[budget] = {event.name: (event.weights, event.weight_bytes) for event in events}
    assert kept[0]["up_proj"] == ("streamed", 96 * 64 // 32 * 34)
    assert kept[1 << 30]["up_proj"] == ("resident", 96 * 64 * 4)
    for found in kept.values():
        assert found["q_proj"] == ("resident", 64 * 64 * 4)
        assert found["embedding"] == ("streamed", 6 * 64 // 32 * 34)
        assert found["attn_rms_norm"] == ("resident", 64 * 4)
        assert found["silu"] == (None, 0)


@pytest.mark.parametrize(("route", "kernel"), [("reference", "blas sgemm"), ("fast", "packed rows")])
def test_products_while_decoding_are_told_as_they_run(tmp_path, route, kernel) -> None:
    path = tiny_llama(tmp_path / "m.gguf", quant="Q8_0")
    events = ember.open(path, route=route, threads=1).trace(tokens=SIX, max_tokens=2, stop_at_eos=False).events
    found = {event.name: event for event in events if event.phase == "decode" and event.op_kind == "matmul"}
    size = 96 * 64 // 32 * 34 if route == "fast" else 96 * 64 * 4
    assert (found["up_proj"].kernel, found["up_proj"].weight_bytes) == (kernel, size)
    assert {event.weights for event in found.values()} == {"packed" if route == "fast" else "resident"}
    assert {event.kernel for event in events if event.name in ("q_proj", "lm_head") and event.phase == "prefill"} == {
        "blas sgemm"
    }


@pytest.mark.parametrize("route", ROUTES)
def test_values_are_those_that_captures_hold(paths, route) -> None:
    model = ember.open(paths["gemma4"], route=route, threads=1)
    events = model.trace(tokens=SIX, values=True).events
    sites = ["before_layer", "after_attention", "after_mlp", "after_layer", "before_logits"]
    held = model.capture(tokens=[SIX], site=sites, position="all")
    last = {"after_attention": "attn_post_norm", "after_mlp": "mlp_post_norm", "after_layer": "layer_scale"}
    for site, name in last.items():
        rows = held[site]  # [tokens, layers, hidden]
        told = [event.values for event in events if event.name == name]
        assert [one.fingerprint for one in told] == [fingerprint(rows[:, layer]) for layer in range(model.n_layers)]
        norms = [np.linalg.norm(rows[:, layer].astype(np.float64)) for layer in range(model.n_layers)]
        assert [one.norm for one in told] == pytest.approx(norms, rel=1e-12)
    outside = {event.name: event.values.fingerprint for event in events if event.layer is None}
    assert outside["embedding"] == fingerprint(held["before_layer"][:, 0])
    assert outside["final_norm"] == fingerprint(held["before_logits"])
    assert outside["lm_head"] == fingerprint(model.logits(tokens=[SIX]))


class Onlooker(Experiment):
    """Takes part in every hook and changes nothing."""

    name = "onlooker"

    def __init__(self) -> None:
        self.tracing = []

    def before_prefill(self, ctx) -> None:
        self.tracing.append(ctx.tracing)

    def after_layer(self, ctx, hidden) -> None:
        self.tracing.append(ctx.execution.tracing)

    def on_generation_complete(self, ctx) -> None:
        self.tracing.append(ctx.tracing)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", traces.MODELS)
def test_an_experiment_that_only_looks_changes_no_event_and_no_bit(paths, name, route) -> None:
    onlooker = Onlooker()
    watched = traces.traced(paths[name], route, experiments=[onlooker])
    assert untimed(watched) == untimed(traces.traced(paths[name], route))
    assert set(onlooker.tracing) == {TracingState.ENABLED}


def test_without_a_trace_experiments_hear_so(model) -> None:
    onlooker = Onlooker()
    model.generate(tokens=SIX, max_tokens=2, experiments=[onlooker])
    assert set(onlooker.tracing) == {TracingState.DISABLED}


def test_an_experiment_that_changes_values_shows_in_values_alone(model) -> None:
    plain = model.trace(tokens=SIX, values=True).events
    cut = model.trace(tokens=SIX, values=True, experiments=[ZeroLayerOutput("1:attention")]).events
    assert [traces.line(event) for event in cut] == [traces.line(event) for event in plain]
    same = [one.values == other.values for one, other in zip(plain, cut, strict=True)]
    changed = same.index(False)
    assert (cut[changed].name, cut[changed].layer) == ("attn_residual_add", 1)
    before = [e.values for e in cut if e.name == "mlp_residual_add" and e.layer == 0]
    assert cut[changed].values == before[0], "adding zeros leaves what came in"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", ["tiny_llama", "gpt2", "gemma4"])
def test_tracing_changes_no_bit_of_what_is_computed(paths, name, route) -> None:
    model = ember.open(paths[name], route=route, threads=1)
    made = model.generate(tokens=SIX, max_tokens=5, stop_at_eos=False)
    for values in (False, True):
        assert model.trace(tokens=SIX, max_tokens=5, stop_at_eos=False, values=values).token_ids == made.token_ids
    logits = model.logits(tokens=[SIX])
    told = model.trace(tokens=SIX, values=True).events[-1]
    assert (told.name, told.values.fingerprint) == ("lm_head", fingerprint(logits))
    assert np.array_equal(model.logits(tokens=[SIX]), logits), "nothing stays behind"


def test_a_prompt_in_chunks_is_told_as_one(paths, monkeypatch) -> None:
    ids = np.random.default_rng(5).integers(0, 300, 60).tolist()
    model = ember.open(paths["gemma4"], threads=1)
    whole = model.trace(tokens=ids, max_tokens=2, stop_at_eos=False, values=True).events
    monkeypatch.setattr(prefill, "CHUNK_ROWS", 32)
    chunked = model.trace(tokens=ids, max_tokens=2, stop_at_eos=False, values=True).events
    assert [traces.line(event) for event in chunked] == [traces.line(event) for event in whole]
    bound = TOLERANCES["fast_vs_reference"].bound
    assert traces.norms(chunked) == pytest.approx(traces.norms(whole), rel=bound), "contract 1: by rounding only"
    rows = model.capture(tokens=[ids], site="after_layer", position="all")["after_layer"]
    told = [e.values.fingerprint for e in chunked if e.name == "layer_scale" and e.phase == "prefill"]
    assert told == [fingerprint(rows[:, layer]) for layer in range(model.n_layers)]


def test_without_a_trace_nothing_of_it_is_made(model, monkeypatch) -> None:
    def never(*_, **__) -> None:
        raise AssertionError("made without a trace")

    for made in (tracer.Tracer, tracer.Digest, tracer.Told, tracer.Operation, traced.TracedFamily, traced.TracedBackend,
                 traced.TracedStep):  # fmt: skip
        monkeypatch.setattr(made, "__init__", never)
    assert model.generate(tokens=SIX, max_tokens=2).token_ids
    assert model.capture(tokens=[SIX])["after_layer"].shape == (1, 3, 64)
    with pytest.raises(AssertionError, match="made without a trace"):
        model.trace(tokens=SIX)


def test_events_go_to_who_asks_for_them_as_they_come(model) -> None:
    told = []
    found = model.trace(tokens=SIX, emit=told.append)
    assert found.events == []
    assert untimed(told) == untimed(model.trace(tokens=SIX).events)


def test_findings_of_experiments_come_back(model) -> None:
    class Counts(Experiment):
        name = "counts"
        mutates = False

        def results(self):
            return {"answer": 42}

    assert model.trace(tokens=SIX, experiments=[Counts()]).findings == [("counts", {"answer": 42})]


def test_a_failing_hook_ends_the_trace(model) -> None:
    class Fails(Experiment):
        name = "fails"

        def after_mlp(self, ctx, contribution) -> None:
            raise ValueError("enough")

    with pytest.raises(ExperimentFailure, match=r"failed in after_mlp \(phase=prefill, layer=0\): enough"):
        model.trace(tokens=SIX, max_tokens=3, experiments=[Fails()])


def test_values_that_are_not_finite_are_an_error(tmp_path) -> None:
    path = tiny_family(tmp_path / "m.gguf", Tiny("llama"), edited={"blk.1.ffn_norm.weight": lambda w: w * np.inf})
    events = []
    with pytest.raises(NumericsError, match="first appeared at layer 1"):
        ember.open(path, threads=1).trace(tokens=SIX, values=True, emit=events.append)
    assert all(json.dumps(event.record(), allow_nan=False) for event in events), "a line of a journal all the same"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "either prompts"),
        ({"tokens": []}, "is empty"),
        ({"tokens": SIX, "max_tokens": -1}, "max_tokens -1: expected an integer of at least 0"),
        ({"tokens": SIX, "max_tokens": True}, "max_tokens True"),
        ({"tokens": SIX, "max_tokens": 507}, "the model's context is 512"),
        ({"tokens": SIX, "experiments": Onlooker}, "give a list"),
    ],
)
def test_what_cannot_be_traced_is_refused(model, arguments, said) -> None:
    with pytest.raises(InputError, match=said):
        model.trace(**arguments)


def test_roles_that_no_table_knows_name_themselves() -> None:
    assert (product_name("attn_q.weight"), product_name("ssm_in.weight")) == ("q_proj", "ssm_in")
    assert (bias_name("ffn_up_bias"), bias_name("odd_bias")) == ("up_bias", "odd_bias")
    assert [norm_name(role, "rms_norm") for role in ("attn_norm", "attn_q_norm", "odd")] == [
        "attn_rms_norm", "q_norm", "odd",
    ]  # fmt: skip
    assert norm_name("ffn_norm", "layer_norm") == "mlp_layer_norm"


def test_data_is_what_the_recorder_writes() -> None:
    assert sorted(path.name for path in Path(traces.DATA).glob("trace_*.txt")) == sorted(
        f"trace_{name}.txt" for name in traces.MODELS
    )


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2", "qwen3", "gemma3", "gemma4"])
def test_the_page_lists_what_a_layer_emits(family) -> None:
    page = (traces.DATA.parents[2] / "docs/reference/trace.md").read_text(encoding="utf-8")
    listed = page.split(f"### A layer of {family}\n\n```\n")[1].split("```")[0].split()
    told = [line.split() for line in traces.recorded(family)[0]]
    assert [cells[0] for cells in told if cells[2:4] == ["prefill", "0"]] == listed
