"""From examples to ids: tokenising by the vocabulary's merges, padding, batches in a seeded order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tokenizers
import torch
from tokenizers import models, pre_tokenizers
from torch import Tensor

from tests.foundry.sarf.corpus import Example
from tests.foundry.sarf.vocabulary import Vocabulary

PADDED, PROMPT, FORM = 0, 1, 2
"""What the next id of a position belongs to."""


class Reader:
    """Tokenises prompts and forms as the exported file does."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.bos, self.eos = vocabulary.bos_id, vocabulary.eos_id
        merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in vocabulary.merges)]
        ranks = {token: n for n, token in enumerate(vocabulary.tokens)}
        self._tokenizer = tokenizers.Tokenizer(models.BPE(vocab=ranks, merges=merges))
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)

    def prompts(self, examples: Sequence[Example]) -> list[list[int]]:
        """The ids of prompts, <|begin|> first."""
        return [[self.bos, *encoding.ids] for encoding in self._encode([one.prompt for one in examples])]

    def forms(self, examples: Sequence[Example]) -> list[list[int]]:
        """The ids of the forms after a space, <|end|> last."""
        return [[*encoding.ids, self.eos] for encoding in self._encode([" " + one.form.surface for one in examples])]

    def rows(self, examples: Sequence[Example]) -> "Rows":
        """Everything that is to be learnt from these examples."""
        prompts, forms = self.prompts(examples), self.forms(examples)
        ids = [torch.tensor(prompt + form) for prompt, form in zip(prompts, forms, strict=True)]
        kinds = [
            torch.tensor([PROMPT] * (len(prompt) - 1) + [FORM] * len(form))
            for prompt, form in zip(prompts, forms, strict=True)
        ]
        return Rows(
            torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=self.eos),
            torch.nn.utils.rnn.pad_sequence(kinds, batch_first=True, padding_value=PADDED),
            torch.tensor([len(row) for row in ids]),
        )

    def _encode(self, texts: list[str]) -> list[tokenizers.Encoding]:
        encoded: list[tokenizers.Encoding] = self._tokenizer.encode_batch(texts)
        return encoded


@dataclass(frozen=True, slots=True)
class Rows:
    """Padded ids [rows, longest], the kind of each next id [rows, longest - 1], and lengths [rows]."""

    ids: Tensor
    kinds: Tensor
    lengths: Tensor

    def batches(self, size: int, steps: int, seed: int, *, group: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Give `steps` batches of ids and kinds, in an order drawn from the seed; rows of like length go together."""
        generator = torch.Generator().manual_seed(seed)
        given = 0
        while given < steps:
            order = torch.randperm(len(self.ids), generator=generator)
            for pool in order.split(size * group):
                pool = pool[self.lengths[pool].argsort(stable=True)]
                parts = [part for part in pool.split(size) if len(part) == size]
                for at in torch.randperm(len(parts), generator=generator).tolist():
                    yield self._batch(parts[at])
                    given += 1
                    if given == steps:
                        return

    def _batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        longest = int(self.lengths[chosen].max())
        return self.ids[chosen, :longest], self.kinds[chosen, : longest - 1]
