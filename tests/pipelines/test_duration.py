"""The plan's estimate of time."""

import pytest

from pipelines import duration
from pipelines.config import load_config
from pipelines.plan import make_plan
from tests.foundry.tiny import tiny_llama

CONFIG = """
schema: ember.pipeline/v1
name: t
model: {{path: {model}}}
stimuli: {{items: [{{prompt: abc, id: a}}, {{prompt: abd, id: b}}, {{prompt: xyz, id: c}}]}}
hooks: {{capture: [{{site: after_layer, layers: all, position: last}}]}}
output: {{dir: {model}.run}}
{generate}
"""


def plan(tmp_path, generate=""):
    model = tiny_llama(tmp_path / "m.gguf", seed=1)
    (tmp_path / "c.yaml").write_text(CONFIG.format(model=model, generate=generate))
    return make_plan(load_config(tmp_path / "c.yaml"))


def test_time_follows_rows_workers_and_tokens(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(duration, "multiply_speed", lambda threads: 1e6)
    planned = plan(tmp_path)
    layers = 3 * (64 * 64 * 2 + 64 * 16 * 2 + 3 * 64 * 96)
    one = duration.estimate_duration(planned, 1)
    assert one.prefill_seconds == pytest.approx(2 * planned.rows_shared * layers / 0.8e6)
    assert one.decode_seconds == 0
    two = duration.estimate_duration(planned, 2)
    assert two.prefill_seconds == pytest.approx(one.prefill_seconds / min(2, len(planned.units)))
    generating = duration.estimate_duration(plan(tmp_path, "generate: {max_tokens: 5}"), 1)
    assert generating.decode_seconds == pytest.approx(2 * 3 * 5 * (layers + 512 * 64) / 0.45e6)


def test_few_prompts_wait_for_packed_weights_to_be_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(duration, "multiply_speed", lambda threads: 1e15)
    planned = plan(tmp_path, "generate: {max_tokens: 5}")
    tensors = planned.source.file.tensors
    head = tensors.get("output.weight") or tensors["token_embd.weight"]
    stored = head.nbytes + sum(t.nbytes for n, t in tensors.items() if n.startswith("blk.") and len(t.shape) == 2)
    assert duration.estimate_duration(planned, 1).decode_seconds == pytest.approx(5 * stored / 15e9)


def test_the_multiply_is_measured() -> None:
    assert 1e8 < duration.multiply_speed(1) < 1e13


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h")])
def test_durations_in_words(seconds, words) -> None:
    assert duration.in_words(seconds) == words
