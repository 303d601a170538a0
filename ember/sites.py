"""The six places where a hidden state can be taken, in firing order.

A leaf: plain names and their meaning, imported by both packages. Layers count from 0 in execution order; the two logits
sites have layer -1.
"""

from dataclasses import dataclass
from typing import Final, Literal

SiteName = Literal["before_layer", "after_attention", "after_mlp", "after_layer", "before_logits", "after_logits"]

NO_LAYER: Final = -1


@dataclass(frozen=True, slots=True)
class Site:
    """One row of the site table."""

    name: SiteName
    width: Literal["hidden", "vocab"]
    side: str
    """Where the tensor stands relative to the residual additions."""

    @property
    def per_layer(self) -> bool:
        """True: fires once per layer; False: once per evaluation, with layer -1."""
        return self.name not in ("before_logits", "after_logits")


SITES: Final[dict[str, Site]] = {
    site.name: site
    for site in (
        Site("before_layer", "hidden", "residual stream entering the layer"),
        Site("after_attention", "hidden", "attention's contribution, before its residual addition"),
        Site("after_mlp", "hidden", "MLP's contribution, before its residual addition"),
        Site("after_layer", "hidden", "residual stream leaving the layer, before any final norm"),
        Site("before_logits", "hidden", "hidden state after the final norm"),
        Site("after_logits", "vocab", "output of the LM head"),
    )
}


def moment(site: str, layer: int) -> tuple[bool, int, int]:
    """When a site fires in an evaluation: ascending, the logits sites last."""
    return layer == NO_LAYER, layer, list(SITES).index(site)
