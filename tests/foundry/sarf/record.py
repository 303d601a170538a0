"""Record what llama.cpp makes of sarf-nano, for the tests.

    python -m tests.foundry.sarf.record [MODEL] [--out FILE.npz]

Needs the extra `reference`. Ids come from the file as it is; greedy ids and hidden states from its F32 copy, under the
settings of `tests.foundry.llama_cpp_states`.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from ember.assets_path import resolve_model
from tests.foundry.files import dequantised, tensors_sha256
from tests.foundry.llama_cpp_states import LlamaCpp
from tests.foundry.sarf.export import load

RECORDING: Final = Path(__file__).parent / "recording.npz"
STEPS: Final = 20
CONTEXT: Final = 256
PROMPTS: Final = (
    "الجذر ك ت ب على وزن فَاعِل:",
    "الجذر ق و ل على وزن مَفْعُول:",
    "ماضي الافتعال من الجذر ز ه ر:",
    "مصدر الافتعال من الجذر و ص ل:",
    "اسم المفعول من الجذر ف ج ض:",
    "ما ماضي الاستفعال من ق و م؟",
    "وَقَالَ: «اِصْطَبِرْ» 12 times, naïvely\n\n\tثم سكت…",
    "الجذر م د د على وزن اِفْتَعَلَ: اِمْتَدَّ " * 6 + "ماضي التفعيل من الجذر م د د:",
)


def main() -> None:
    """Record with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="builtin:sarf-nano")
    parser.add_argument("--out", type=Path, default=RECORDING)
    options = parser.parse_args()
    path = resolve_model(options.model)
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(path, dequantised(path, Path(folder) / "f32.gguf"))
    np.savez_compressed(options.out, **recorded)
    print(f"wrote {options.out}: {options.out.stat().st_size} bytes")


def record(quantised: Path, plain: Path) -> dict[str, Any]:
    """Tokens [prompts, longest] (pad -1), greedy ids [prompts, steps], last token's states [prompts, layers, d]."""
    with LlamaCpp(quantised, context=CONTEXT) as model:
        tokens = [model.tokenize(prompt) for prompt in PROMPTS]
    with LlamaCpp(plain, context=CONTEXT) as model:
        continued = [model.greedy(ids, STEPS) for ids in tokens]
        states = [model.states(ids) for ids in tokens]
    _compare_with_torch(quantised, tokens, [one.ids.tolist() for one in continued])
    return {
        "tensors_sha256": tensors_sha256(quantised),
        "prompts": np.array(PROMPTS),
        "tokens": np.array([ids + [-1] * (max(map(len, tokens)) - len(ids)) for ids in tokens], np.int32),
        "greedy": np.stack([one.ids for one in continued]),
        "margins": np.stack([one.margins for one in continued]),
    } | {key: np.concatenate([one[key] for one in states]) for key in states[0]}


def _compare_with_torch(path: Path, tokens: list[list[int]], greedy: list[list[int]]) -> None:
    """Raise unless the model that was trained, with the file's weights, continues the prompts as llama.cpp does."""
    model = load(path)
    for ids, expected in zip(tokens, greedy, strict=True):
        given = model.greedy(torch.tensor([ids]), STEPS)[0].tolist()
        if given != expected:
            raise RuntimeError(f"after {ids} torch gives {given}, llama.cpp {expected}")


if __name__ == "__main__":
    main()
