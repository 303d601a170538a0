"""What travels to a worker and back: small, frozen, picklable records.

A leaf. A task carries paths and numbers, never prompts; what comes back is a receipt, never tensors.
"""

from dataclasses import dataclass
from typing import Any, Final

from pipelines.canonical import plain
from pipelines.receipts import Receipt

ENGINE: Final = "ember:open"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a process opens the model; the same for all workers of a run, and hashable."""

    model_path: str
    route: str
    """`auto` only in the client, which resolves it for all."""
    blas_threads: int
    memory_budget: int | None = None
    """Bytes for decoded weights to stay in; None: the engine's own choice."""
    stamps: tuple[tuple[int, int], ...] = ()
    """Size and mtime_ns of each part of the model's file, as the client saw them; empty: not checked."""
    numerics: str = ""
    """JSON of the numerics record that every worker must share; empty: not checked."""
    opener: str = ENGINE
    """`module:attribute` that opens the model; another one only in tests of the factory."""


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """What the opened model says of itself; plain data for the manifest."""

    route: str
    """`reference` or `fast`."""
    numerics: dict[str, Any]
    contract: dict[str, Any]

    @property
    def deciding(self) -> dict[str, Any]:
        """What decides bits among the numerics; see `deciding_numerics`."""
        return deciding_numerics(self.numerics)


@dataclass(frozen=True, slots=True)
class UnitTask:
    """One try of one piece."""

    run_dir: str
    unit_file: str
    """Relative to `run_dir`."""
    piece: str
    start: int
    end: int
    number: int
    """Which try, from 0."""
    engine: EngineSettings
    guard_positions: int = 0
    dtype: str = "float32"
    metadata: tuple[tuple[str, str], ...] = ()
    """Key-value pairs for the footers of part files; the same for all parts of a run."""
    ember: str = ""
    """The program's version."""
    alone: bool = False
    """Its worker is to do nothing else meanwhile, so that it is known whose fault another death would be."""

    @property
    def prefix(self) -> str:
        """What the names of its staging directories start with; a random part, process and host follow."""
        return f"{self.piece}.{self.number}."


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """How a try went."""

    piece: str
    receipt: Receipt | None
    """The receipt that stands; None when the try failed."""
    computed: bool = False
    """False: the receipt was there already."""
    seconds: float = 0.0
    host: str = ""
    pid: int = 0
    kind: str = ""
    """`memory` or `exception` for a failed try; empty for one that went well."""
    error: str = ""
    """One line: what went wrong."""
    fatal: bool = False
    """The error concerns the whole run (disk, model, worker), not this piece."""


def deciding_numerics(numerics: dict[str, Any]) -> dict[str, Any]:
    """Take what decides bits out of a numerics record: the same for all sessions and workers of a run."""
    told: dict[str, Any] = plain(numerics)
    told["versions"] = {k: v for k, v in told.get("versions", {}).items() if k != "python"}
    return told
