"""Recording a reference's values for prompts: here, or by another Python that has the reference.

    python -m ember.validation.record llama.cpp|transformers MODEL.gguf PROMPTS.json OUT.npz

`PROMPTS.json` is a list of lists of token ids. Needs NumPy and the reference, but not all of Ember.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ember.errors import EmberError, InputError, UnsupportedError
from ember.gguf import GGUFFile, open_gguf
from ember.validation.f32_copy import write_f32_copy
from ember.validation.recording import Recording, read_recording, write_recording

Against = Literal["llama.cpp", "transformers"]
GREEDY_STEPS: Final = 12
RANKS: Final = {"h0": 1, "l_out": 2, "attn_contrib": 2, "mlp_contrib": 2, "result_norm": 1, "logits": 1}
"""Keys of a prompt's states and the dimensions of each."""
PACKAGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    # reference: the module that records, and what it imports
    "llama.cpp": ("ember.validation.llama_cpp", ("llama_cpp",)),
    "transformers": ("ember.validation.hugging_face", ("torch", "transformers")),
}


def record(against: Against, model: Path, prompts: Sequence[Sequence[int]]) -> Recording:
    """Evaluate every prompt by itself with a reference in this Python. Raises InputError if it is not installed."""
    recorder = _recorder(against)
    with open_gguf(model) as file:
        if against == "llama.cpp":
            return _by_llama_cpp(recorder, file, prompts)
        return _recording(_transformers(recorder, file), prompts, _about_transformers(recorder))


def record_elsewhere(python: Path, against: Against, model: Path, prompts: Sequence[Sequence[int]]) -> Recording:
    """Evaluate every prompt with a reference that another Python has. Raises EmberError with what it said."""
    with tempfile.TemporaryDirectory(prefix="ember-validate-") as folder:
        asked, out = Path(folder) / "prompts.json", Path(folder) / "recording.npz"
        asked.write_text(json.dumps([list(prompt) for prompt in prompts]))
        command = [str(python), "-m", "ember.validation.record", against, str(model.absolute()), str(asked), str(out)]
        # the other Python finds this Ember, whatever it has installed
        root = str(Path(__file__).parents[2])
        try:
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root})
        except OSError as error:
            raise InputError(f"--reference-python {python}: cannot be run: {error.strerror}") from None
        if done.returncode:
            told = done.stderr.strip().splitlines() or ["it said nothing"]
            raise EmberError(f"{python} could not record {against}: {told[-1].removeprefix('error: ')}")
        return read_recording(out)


def _recorder(against: Against) -> ModuleType:
    import importlib
    import importlib.util

    module, needed = PACKAGES[against]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"--against {against} needs {' and '.join(missing)}, which this Python does not have: "
            "pip install 'ember[reference]', or name a Python that has it with --reference-python"
        )
    return importlib.import_module(module)


def _by_llama_cpp(recorder: ModuleType, file: GGUFFile, prompts: Sequence[Sequence[int]]) -> Recording:
    plain = len(file.parts) == 1 and all(info.type.name == "F32" for info in file.tensors.values())
    if plain:
        return _with_llama_cpp(recorder, file.path, prompts, "the file as it is")
    size = 4 * sum(int(np.prod(info.shape)) for info in file.tensors.values())
    with tempfile.TemporaryDirectory(prefix="ember-validate-") as folder:
        free = shutil.disk_usage(folder).free
        if free < 1.1 * size:
            raise InputError(
                f"{folder}: the F32 copy of {file.path} takes {size:,} bytes and {free:,} are free; set TMPDIR to a "
                "larger disk"
            )
        copy = write_f32_copy(file, Path(folder) / "f32.gguf")
        return _with_llama_cpp(recorder, copy, prompts, "a copy of the file with every tensor decoded to F32")


def _with_llama_cpp(recorder: ModuleType, path: Path, prompts: Sequence[Sequence[int]], which: str) -> Recording:
    context = max(map(len, prompts)) + GREEDY_STEPS
    about = {
        "name": "llama.cpp",
        "version": f"llama-cpp-python {recorder.VERSION}",
        "settings": f"{which}; F32 KV cache, no flash attention, one thread, one prompt at a time; GELU and RoPE "
        "computed from the operators' own inputs and parameters in float64, instead of half-precision GELU and "
        "float32 angles",
        "angles": "float64",
    }
    with recorder.LlamaCpp(path, context=context, exact=True) as reference:
        return _recording(reference, prompts, about)


def _transformers(recorder: ModuleType, file: GGUFFile) -> Any:
    """Build the model. What transformers, or our translation for it, cannot take is told as such, not as a mistake."""
    try:
        return recorder.Transformers(file)
    except (KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
        raise UnsupportedError(
            f"{file.path}: cannot be carried over to transformers {recorder.VERSION} "
            f"({type(error).__name__}: {error}); validate it against llama.cpp"
        ) from error


def _about_transformers(recorder: ModuleType) -> dict[str, str]:
    return {
        "name": "transformers",
        "version": recorder.VERSION,
        "settings": "the file's tensors, decoded by Ember; all in float64, eager attention, one prompt at a time",
        "angles": "float64",
    }


def _recording(reference: Any, prompts: Sequence[Sequence[int]], about: dict[str, str]) -> Recording:
    states = [reference.states(prompt) for prompt in prompts]
    continued = [reference.greedy(prompt, GREEDY_STEPS) for prompt in prompts]
    arrays: dict[str, NDArray[Any]] = {
        key: np.stack([state[key].reshape(state[key].shape[-rank:]) for state in states]).astype(np.float32)
        for key, rank in RANKS.items()
    }
    arrays["greedy"] = np.array([ids for ids, _ in continued], np.int32)
    arrays["greedy_margin"] = np.array([margins for _, margins in continued], np.float32)
    return Recording(tuple(tuple(prompt) for prompt in prompts), arrays, about)


def _main(arguments: list[str]) -> None:
    if len(arguments) != 4 or arguments[0] not in PACKAGES:
        sys.exit(__doc__)
    against, model, asked, out = arguments
    try:
        made = record(against, Path(model), json.loads(Path(asked).read_text()))  # type: ignore[arg-type]
    except EmberError as error:
        sys.exit(f"error: {error}")
    write_recording(Path(out), made)


if __name__ == "__main__":
    _main(sys.argv[1:])
