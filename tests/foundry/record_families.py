"""Record the tiny models of every family: Hugging Face transformers in float64, and llama.cpp (the reference Python).

    python -m tests.foundry.record_families OUT_DIR [CASE ...]

Keys are those of the goldens (see `record_states`), of transformers in float64 and rounded to float32 at the end.
`cpp_l_out` and `cpp_greedy` are llama.cpp's, of the F32 copy of the file, as float16 where its GELU is
rounded to f16; `about` tells how far it was from float64 at each site. Prompts longer than LONGEST_CONTINUED have no
continuation (-1).
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import transformers
from numpy.typing import NDArray

from tests.foundry.families import GEMMAS, Tiny, tiny_family
from tests.foundry.families_cases import FAMILY_CASES, GREEDY_STEPS, LONGEST_CONTINUED
from tests.foundry.families_transformers import Transformers
from tests.foundry.families_vocab import BOS_ID
from tests.foundry.files import dequantised, tensors_sha256
from tests.foundry.goldens import SITE_OF_KEY, disagreement
from tests.foundry.llama_cpp_states import LlamaCpp
from tests.foundry.record_states import _save

Arrays = dict[str, NDArray[Any]]
WITH_GELU = ("gpt2", "gemma3", "gemma4")
FIRST_ID, SPECIALS = 8, 2
AFTER_ATTENTION = {"gemma3": "attn_post_norm", "gemma4": "attn_post_norm"}
MLP = {"gemma3": "ffn_post_norm", "gemma4": "ffn_post_norm"}


class FamilyStates(LlamaCpp):
    """What all families' graphs name alike, and the residual stream after attention where attention has no name."""

    def family_states(self, tokens: list[int], family: str) -> Arrays:
        """Give the goldens' keys at the last token; attention's addition as a difference where it has no name."""
        layers = range(self.n_layers)
        attention, mlp = AFTER_ATTENTION.get(family, "ffn_inp"), MLP.get(family, "ffn_out")
        self.clear()
        names = {"l_out", attention, mlp}
        self.wanted = frozenset(f"{name}-{n}" for name in names for n in layers) | {"result_norm", "result_output"}
        self.evaluate([(tokens, 0, 0, frozenset([len(tokens) - 1]))])
        taken = {name: self._chosen(name, len(tokens), [len(tokens) - 1])[0] for name in self.wanted}
        self.wanted = frozenset()
        made = {key: np.stack([taken[f"{key}-{n}"] for n in layers]) for key in names}
        return {
            "l_out": made["l_out"],
            "mlp_contrib": made[mlp],
            "attention": made[attention],
            "result_norm": taken["result_norm"],
            "logits": taken["result_output"],
        }


def main() -> None:
    match sys.argv[1:]:
        case [folder, *names]:
            for name in names or FAMILY_CASES:
                record(name, Path(folder) / f"family-{name}.npz")
        case _:
            sys.exit(__doc__)


def record(name: str, target: Path) -> None:
    """Record every prompt of one case, all layers at the last token."""
    case = FAMILY_CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_family(Path(folder) / "model.gguf", case.tiny, metadata=case.metadata)
        prompts = [drawn_prompt(case.tiny, n, length) for n, length in enumerate(case.lengths)]
        exact = Transformers(model)
        states = [exact.states(prompt) for prompt in prompts]
        arrays = {key: np.stack([state[key] for state in states]).astype(np.float32) for key in states[0]}
        arrays |= _continued(exact, prompts)
        theirs, worst = _llama_cpp(dequantised(model, Path(folder) / "f32.gguf"), case.tiny.family, prompts, arrays)
        about = {"case": name, "tensors_sha256": tensors_sha256(model), "llama_cpp_from_float64": worst} | VERSIONS
        _save(target, arrays | theirs, prompts, about)
        print("    llama.cpp from float64:", {key: f"{value:.1e}" for key, value in worst.items()})


VERSIONS = {
    "recorded_with": f"transformers {transformers.__version__} in float64; cpp_*: llama-cpp-python "
    f"{llama_cpp.__version__}, F32 weights and KV cache, no flash attention",
}


def drawn_prompt(tiny: Tiny, index: int, length: int) -> list[int]:
    """Draw ordinary ids; every second prompt starts with BOS."""
    ids = np.random.default_rng([index, length]).integers(FIRST_ID, tiny.vocab - SPECIALS, length).tolist()
    bos = BOS_ID if tiny.family in GEMMAS else tiny.vocab - 2
    return [bos, *ids[1:]] if index % 2 else ids


def _continued(exact: Transformers, prompts: list[list[int]]) -> Arrays:
    nothing = [-1] * GREEDY_STEPS, [0.0] * GREEDY_STEPS
    made = [exact.greedy(p, GREEDY_STEPS) if len(p) <= LONGEST_CONTINUED else nothing for p in prompts]
    return {
        "greedy": np.array([ids for ids, _ in made], np.int32),
        "greedy_margin": np.array([margins for _, margins in made], np.float32),
    }


def _llama_cpp(exact: Path, family: str, prompts: list[list[int]], float64: Arrays) -> tuple[Arrays, dict[str, float]]:
    """Evaluate by llama.cpp: what is kept of it, and per site the largest distance from `float64`."""
    with FamilyStates(exact, context=max(map(len, prompts)) + GREEDY_STEPS) as reference:
        states = [reference.family_states(prompt, family) for prompt in prompts]
        greedy = [
            reference.greedy(p, GREEDY_STEPS).ids if len(p) <= LONGEST_CONTINUED else [-1] * GREEDY_STEPS
            for p in prompts
        ]
    made = {key: np.stack([state[key] for state in states]) for key in states[0]}
    made["attn_contrib"] = made.pop("attention")
    if family not in AFTER_ATTENTION:
        before = np.concatenate([float64["h0"][:, None], made["l_out"][:, :-1]], axis=1)
        made["attn_contrib"] = made["attn_contrib"] - before
    worst = {SITE_OF_KEY[key]: float(disagreement(values, float64[key]).max()) for key, values in made.items()}
    kind = np.float16 if family in WITH_GELU else np.float32
    return {"cpp_l_out": made["l_out"].astype(kind), "cpp_greedy": np.array(greedy, np.int32)}, worst


if __name__ == "__main__":
    main()
