"""Byte-pair merging as llama.cpp does it: of all that may join, the best-ranked pair first, of equals the leftmost.

The `tokenizers` package ranks pairs, so it cannot tell two ways to the same token apart from two tokens of the same
score, where the place in the text decides; hence the loop is here, and exact. It is quick because nothing ever joins
across two characters that stand side by side in no token: a text is cut there first, and the words are remembered.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

Queue = list[tuple[float, int, int]]
"""Pairs that may join: rank, place of the left one, characters of both together."""


class Merger:
    """Joins neighbouring symbols while any pair has a rank; a symbol is a character, or what has been joined."""

    def __init__(self, ranks: Mapping[str, float], glue: str, joints: frozenset[str]) -> None:
        """Take the rank of each `left + glue + right`, lowest first, and all that `joints_of` gives for the symbols."""
        self._ranks = ranks
        self._glue = glue
        self._joints = joints

    def words(self, text: str) -> Iterator[str]:
        """Cut a text where nothing can join; what is merged of each word does not depend on the others."""
        start = 0
        for end in range(1, len(text)):
            if text[end - 1 : end + 1] not in self._joints:
                yield text[start:end]
                start = end
        if text:
            yield text[start:]

    def merge(self, word: str) -> list[str]:
        """Return the symbols that are left; joined, they are the word. Takes n log n steps for n characters."""
        symbols = list(word)
        before = list(range(-1, len(symbols) - 1))
        after = list(range(1, len(symbols) + 1))
        queue: Queue = []
        for left in range(len(symbols) - 1):
            self._offer(queue, symbols, left, left + 1)
        heapify(queue)
        while queue:
            _, left, size = heappop(queue)
            right = after[left]
            # A pair is stale once either side has been joined with something else; then the sizes differ.
            if right == len(symbols) or not symbols[left] or len(symbols[left]) + len(symbols[right]) != size:
                continue
            symbols[left] += symbols[right]
            symbols[right] = ""
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
                self._offer(queue, symbols, left, after[left])
            if before[left] >= 0:
                self._offer(queue, symbols, before[left], left)
        return [symbol for symbol in symbols if symbol]

    def _offer(self, queue: Queue, symbols: list[str], left: int, right: int) -> None:
        rank = self._ranks.get(symbols[left] + self._glue + symbols[right])
        if rank is not None:
            heappush(queue, (rank, left, len(symbols[left]) + len(symbols[right])))


def joints_of(tokens: Iterable[str]) -> frozenset[str]:
    """Return every two characters that stand side by side in any of the tokens."""
    return frozenset(token[at : at + 2] for token in tokens for at in range(len(token) - 1))
