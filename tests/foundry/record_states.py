"""Record hidden states, logits and greedy continuations from llama.cpp in small npz files (by the reference Python).

    python -m tests.foundry.record_states tiny OUT_DIR [CASE ...]
    python -m tests.foundry.record_states text MODEL.gguf OUT.npz

Files that are not F32 are rewritten as F32 first, since llama.cpp would round their activations too: the recorded
values are those of f32 weights times f32 activations. Keys are those of the goldens: `tokens` [P, longest] (-1 behind
the end), `lengths` [P], `h0` [P, d], `l_out`, `attn_contrib`, `mlp_contrib` [P, layers, d] at the last token,
`result_norm` [P, d], `logits` [P, vocab], `greedy` and `greedy_margin` [P, steps], `about` (JSON).
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from tests.foundry.cases import CONTEXT, GREEDY_STEPS, PROMPT_LENGTHS, TINY_CASES
from tests.foundry.files import dequantised, tensors_sha256
from tests.foundry.llama_cpp_states import LlamaCpp
from tests.foundry.tiny import tiny_llama

TEXTS = {
    "one token": "the",
    "vocalised Arabic": "عَلِمَ الوَلَدُ دَرْسَ",
    "long": "كتب الطالب رسالة إلى أستاذه، وسأله عن جذور الأفعال وأوزانها في العربية. "
    "The root k-t-b gives kataba, kātib, maktūb and maktaba; each pattern adds a meaning of its own. "
    "فأجابه الأستاذ: إن الجذر يحمل المعنى العام، والوزن يحدد الصيغة، ومنهما معاً تتكون الكلمة. "
    * 3
    + "The word kātib is",
}
TOP_LOGITS = 64
CONTRIBUTIONS_OF = "vocalised Arabic"  # of one prompt only: the file stays small


def main() -> None:
    match sys.argv[1:]:
        case ["tiny", folder, *names]:
            for name in names or TINY_CASES:
                record_tiny(name, Path(folder) / f"{name}.npz")
        case ["text", model, target]:
            record_text(Path(model), Path(target))
        case _:
            sys.exit(__doc__)


def record_tiny(name: str, target: Path) -> None:
    """Record every prompt length of one tiny case, all layers at the last token."""
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_llama(Path(folder) / "model.gguf", context=CONTEXT, **TINY_CASES[name])
        exact = dequantised(model, Path(folder) / "f32.gguf")
        with LlamaCpp(exact, context=CONTEXT) as reference:
            prompts = [drawn_prompt(n, length, reference.vocab_size) for n, length in enumerate(PROMPT_LENGTHS)]
            states = [reference.states(prompt) for prompt in prompts]
            arrays = {key: np.concatenate([state[key] for state in states]) for key in states[0]}
            _save(target, arrays | _greedy(reference, prompts), prompts, _about(model, case=name))


def record_text(model: Path, target: Path) -> None:
    """Record TEXTS on a real model: residual streams of all, contributions of one, the highest logits."""
    with tempfile.TemporaryDirectory() as folder:
        exact = dequantised(model, Path(folder) / "f32.gguf")
        with LlamaCpp(exact, context=1024) as reference:
            prompts = [reference.tokenize(text) for text in TEXTS.values()]
            states = [reference.states(prompt) for prompt in prompts]
            arrays = {key: np.concatenate([state[key] for state in states]) for key in ("l_out", "result_norm")}
            detailed = list(TEXTS).index(CONTRIBUTIONS_OF)
            arrays |= {f"{key}_{detailed}": states[detailed][key][0] for key in ("attn_contrib", "mlp_contrib")}
            arrays |= _top_logits(np.concatenate([state["logits"] for state in states]))
            _save(target, arrays | _greedy(reference, prompts), prompts, _about(model, texts=TEXTS))


def drawn_prompt(index: int, length: int, vocab: int) -> list[int]:
    """Draw ordinary ids; every second prompt starts with BOS, which is vocab - 2."""
    ids = np.random.default_rng([index, length]).integers(0, vocab - 2, length).tolist()
    return [vocab - 2, *ids[1:]] if index % 2 else ids


def _greedy(reference: LlamaCpp, prompts: list[list[int]]) -> dict[str, NDArray[Any]]:
    continuations = [reference.greedy(prompt, GREEDY_STEPS) for prompt in prompts]
    return {
        "greedy": np.stack([continuation.ids for continuation in continuations]),
        "greedy_margin": np.stack([continuation.margins for continuation in continuations]),
    }


def _top_logits(logits: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Keep the highest values with their ids, and the deviation of all, against which an error is measured."""
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, :TOP_LOGITS]
    return {
        "top_ids": ids.astype(np.int32),
        "top_logits": np.take_along_axis(logits, ids, -1),
        "logits_rms": np.sqrt((logits.astype(np.float64) ** 2).mean(-1)),
    }


def _about(model: Path, **more: object) -> dict[str, object]:
    return {
        "tensors_sha256": tensors_sha256(model),
        "recorded_with": f"llama-cpp-python {llama_cpp.__version__}, F32 weights and KV cache, no flash attention",
        **more,
    }


def _save(target: Path, arrays: dict[str, NDArray[Any]], prompts: list[list[int]], about: dict[str, object]) -> None:
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise RuntimeError(f"{target}: llama.cpp gave values that are not finite")
    tokens = np.full((len(prompts), max(map(len, prompts))), -1, np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    text = np.array(json.dumps(about, ensure_ascii=False))
    np.savez_compressed(target, tokens=tokens, lengths=lengths, about=text, **arrays)  # type: ignore[arg-type]
    print(f"{target}: {target.stat().st_size:,} bytes, least greedy margin {arrays['greedy_margin'].min():.4f}")


if __name__ == "__main__":
    main()
