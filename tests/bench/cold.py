"""A whole process from start to end: open, tokenise, take every layer's last token, write (run by `processes`).

    python -m tests.bench.cold ember|llama.cpp|transformers REQUEST.json

The request names model, texts or token ids, threads, settings, and where to write. `prepare` makes what transformers
opens: the same weights as safetensors, since its own reading of GGUF files takes half a minute.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    request = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    SCRIPTS[sys.argv[1]](**request)


def _ember(model: str, texts: list[str], threads: int, out: str, **_: Any) -> None:
    import ember

    opened = ember.open(model, threads=threads)
    np.save(out, opened.capture(texts, site="after_layer", layers="all")["after_layer"])


def _llama(model: str, texts: list[str], threads: int, out: str, variant: dict[str, Any], **_: Any) -> None:
    from tests.bench.llama_cpp import Lender

    with Lender(model, context=variant["batch"], threads=threads, sequences=64, flash_attention=variant["flash"]) as it:
        prompts = [it.tokenize(text) for text in texts]
        found, group = [], list[list[int]]()
        for prompt in prompts:
            if sum(map(len, group)) + len(prompt) > variant["batch"]:
                found.append(it.last_rows(group))
                group = []
            group.append(prompt)
        np.save(out, np.concatenate([*found, it.last_rows(group)]))


def _transformers(safetensors: str, ids: list[list[int]], threads: int, out: str, batch: int, **_: Any) -> None:
    import torch
    from transformers import LlamaModel

    from tests.bench.peers import TransformersPeer

    torch.set_num_threads(threads)
    peer = TransformersPeer.__new__(TransformersPeer)
    peer._torch, peer._model = torch, LlamaModel.from_pretrained(safetensors, dtype=torch.float32).eval()
    peer._batches = [ids[start : start + batch] for start in range(0, len(ids), batch)]
    np.save(out, peer.run())


def _prepare(model: str, safetensors: str, **_: Any) -> None:
    from tests.foundry.transformers_llama import transformers_llama

    transformers_llama(model).save_pretrained(safetensors)


SCRIPTS = {"ember": _ember, "llama.cpp": _llama, "transformers": _transformers, "prepare": _prepare}

if __name__ == "__main__":
    main()
