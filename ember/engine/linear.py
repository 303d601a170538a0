"""A linear's weight as the engine meets it."""

from dataclasses import dataclass

from ember.gguf import TensorInfo


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight of a linear or an embedding: [out, in] in the file's own blocks, and its part in the family.

    It may be a range of rows of a tensor that holds several (`attn_qkv` is q, k and v one below the other).
    """

    info: TensorInfo
    role: str
    """The tensor's name without its layer; two weights of one role never live at once."""
    first_row: int
    out_features: int
    """Rows of the weight."""

    @property
    def in_features(self) -> int:
        """Columns of the weight."""
        return self.info.shape[1]


def names_of(*linears: Linear) -> tuple[str, ...]:
    """Names of the tensors that hold `linears`, each once."""
    return tuple(dict.fromkeys(linear.info.name for linear in linears))
