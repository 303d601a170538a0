"""Gemma 4's BPE (`tokenizer.ggml.model = gemma4`): merges of the file's own over text in which a space is `▁`.

It has no words and no `pre`: only a run of newlines is cut from what is around it, and is one token if it is in the
vocabulary. A BOS is always added: the first files were converted with `add_bos_token` false, which was a mistake that
llama.cpp corrects too (src/llama-vocab.cpp).
"""

from ember.tokenizer.lists import check_merges, merge_pairs, texts_of, unique_ids
from ember.tokenizer.merging import Merger, joints_of
from ember.tokenizer.metaspace import MetaspaceBPE, byte_tokens
from ember.tokenizer.vocabulary import Vocabulary


def gemma4(vocabulary: Vocabulary) -> MetaspaceBPE:
    """Build the encoder. Raises TokenizerError naming what contradicts."""
    ids = unique_ids(vocabulary, texts_of(vocabulary))
    pairs = merge_pairs(vocabulary)
    check_merges(vocabulary, ids, pairs)
    # No symbol holds a space, so that a pair with one between is unambiguous.
    ranks: dict[str, float] = {" ".join(pair): rank for rank, pair in enumerate(pairs)}
    joints = (joint for joint in joints_of(ids) if (joint[0] == "\n") == (joint[1] == "\n"))
    return MetaspaceBPE(Merger(ranks, " ", frozenset(joints)), ids, byte_tokens(ids), prefix=False, whole_newlines=True)
