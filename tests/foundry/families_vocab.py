"""Small vocabularies of the models `llama` and `gemma4`, as files of the Gemma families carry them."""

from gguf import GGUFValueType as Value

from tests.foundry.files import Keys

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
SPECIALS = (("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN), ("<mask>", CONTROL))
"""The first ids, in Gemma's order."""
BOS_ID = 2
LETTERS = "▁etaoinshrdluابتثجدركلمنوي"
PAIRS = ("▁ t", "t h", "▁t h", "th e", "▁ ا", "ا ل", "▁ا ل", "ك ت", "كت ب", "▁ كتب")


def gemma_keys(size: int, model: str) -> Keys:
    """Give the `tokenizer.ggml.*` keys of exactly `size` >= 297 tokens for the model `llama` or `gemma4`.

    Any text has tokens: what is no letter here falls back to its bytes.
    """
    tokens, types, scores = _listed(size)
    keys: Keys = {
        "tokenizer.ggml.model": (Value.STRING, model),
        "tokenizer.ggml.tokens": (Value.STRING, tokens),
        "tokenizer.ggml.scores": (Value.FLOAT32, scores),
        "tokenizer.ggml.token_type": (Value.INT32, types),
        "tokenizer.ggml.bos_token_id": (Value.UINT32, BOS_ID),
        "tokenizer.ggml.eos_token_id": (Value.UINT32, 1),
        "tokenizer.ggml.unknown_token_id": (Value.UINT32, 3),
        "tokenizer.ggml.padding_token_id": (Value.UINT32, 0),
        "tokenizer.ggml.add_bos_token": (Value.BOOL, True),
        "tokenizer.ggml.add_space_prefix": (Value.BOOL, False),
    }
    if model == "gemma4":
        return keys | {"tokenizer.ggml.merges": (Value.STRING, list(PAIRS))}
    return keys | {"tokenizer.ggml.pre": (Value.STRING, "default")}


def _listed(size: int) -> tuple[list[str], list[int], list[float]]:
    """Specials, bytes, letters, what the pairs make, fillers; a pair's score is the better the earlier it stands."""
    fixed = [*SPECIALS, *((f"<0x{byte:02X}>", BYTE) for byte in range(256))]
    made = list(dict.fromkeys(pair.replace(" ", "") for pair in PAIRS))
    scored = [(text, -float(rank)) for rank, text in enumerate(made)]
    scored += [(text, -1000.0 - rank) for rank, text in enumerate(LETTERS) if text not in made]
    room = size - len(fixed)
    if room < len(scored):
        raise ValueError(f"vocabulary of {size} tokens: at least {len(fixed) + len(scored)} are needed")
    scored += [(f"<filler{n}>", -2000.0) for n in range(room - len(scored))]
    tokens = [text for text, _ in fixed] + [text for text, _ in scored]
    types = [kind for _, kind in fixed] + [NORMAL] * len(scored)
    return tokens, types, [0.0] * len(fixed) + [score for _, score in scored]
