"""What a layer sees of the evaluation it is part of: positions, attention, taps. Families know nothing more.

A step is made for one layer and one chunk of rows (prefill) or for one token of every living sequence (decode).
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ember.work import Floats


class Step(Protocol):
    """The surroundings of one call of a family's `layer`."""

    @property
    def positions(self) -> NDArray[np.int32]:
        """Absolute positions of the rows that somebody needs: all of them before `prune`."""

    @property
    def key_positions(self) -> NDArray[np.int32]:
        """Absolute positions of all rows that entered the layer."""

    def tap(self, site: str, a: Floats) -> None:
        """Show the tensor of a site to whoever asked for it."""

    def prune(self, x: Floats, h: Floats) -> tuple[Floats, Floats]:
        """Keep only rows that somebody needs; `positions` follows."""

    def store(self, k: Floats, v: Floats) -> None:
        """Store keys and values [T, K·E] of all rows that entered the layer."""

    def attend(
        self, q: Floats, heads: tuple[int, int], scale: float, window: int = 0, source: int | None = None
    ) -> Floats:
        """Attend to the keys stored by this layer, or by layer `source`: q [T, H·E] -> [T, H·E]; heads = (H, K).

        Under a window w a query sees its own and the w - 1 positions before it; 0: all before it. The family lists
        sources other than the layer itself in `shared_sources`.
        """

    def side(self) -> Floats:
        """This layer's part of the family's `side_inputs` for the current rows: [T, P]."""
