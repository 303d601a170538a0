"""The run configuration: one frozen model per section, every default in one place.

`schema: ember.pipeline/v1` is checked before anything else (see `loading`). What a later version brings is refused by
name, so that a config never means less than it says.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from ember.positions import Position
from ember.sites import SITES
from pipelines.config.types import (
    AddBos,
    Layers,
    Memory,
    NotYet,
    PositionField,
    Scheduler,
    SiteField,
    UnitRows,
    Workers,
)
from pipelines.settings import InputPath, Listed, Name, Settings, refuse
from pipelines.stimuli.config import StimuliConfig

SCHEMA = "ember.pipeline/v1"


class ModelConfig(Settings):
    """Which model."""

    path: InputPath
    """`builtin:sarf-nano`, or a .gguf file relative to this config."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Expected sha256 of the model's file, lower-case hexadecimal; checked before the run."""


class TokenizerConfig(Settings):
    """How prompts become token ids."""

    add_bos: AddBos = "file"
    """Whether a BOS token is put in front: `file` follows the model's own metadata."""
    parse_special: bool = False
    """Whether spellings of control tokens in prompts become those tokens; false: they are ordinary text."""
    normalize: Literal["none", "nfc"] = "none"
    """`nfc` composes prompts before tokenising; the original text is kept beside it."""


class CaptureConfig(Settings):
    """One hidden state to keep."""

    name: Name = ""
    """How the capture is called in tables; by default the site's name."""
    site: SiteField
    """Where in the model: before_layer, after_attention, after_mlp, after_layer, before_logits or after_logits."""
    layers: Layers = "all"
    """`all`, or layers counted from 0; -1 is the last. Not for before_logits and after_logits."""
    position: PositionField = Field(default=Position(), json_schema_extra={"default": "last"})
    """`last`, `all`, `mean`, `{index: n}`, `{from_end: n}` (0 is the last token), `span` or
    `{span: first|final|all|mean}` of the target's tokens."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        if isinstance(given, dict) and "name" not in given and isinstance(given.get("site"), str):
            return {**given, "name": given["site"]}
        return given

    @model_validator(mode="after")
    def _fits_site(self) -> Self:
        if SITES[self.site].per_layer:
            return self
        if self.layers != "all":
            raise refuse(f"site {self.site} is not in a layer: remove `layers`")
        if self.position != Position():
            raise refuse(f"site {self.site} exists at the last token only: remove `position` or write `last`")
        return self


def _distinct(captures: tuple[CaptureConfig, ...]) -> tuple[CaptureConfig, ...]:
    names = [capture.name for capture in captures]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refuse(f"two captures are called {twice[0]!r}: give each its own `name`")
    return captures


class HooksConfig(Settings):
    """What is taken out of the model while it runs."""

    capture: Annotated[tuple[CaptureConfig, ...], Listed, AfterValidator(_distinct)] = ()
    """Hidden states to keep."""
    intervene: Annotated[tuple[()], NotYet("interventions")] = ()
    """Reserved: interventions come with a later version."""
    experiment: Annotated[None, NotYet("experiments")] = None
    """Reserved: experiments come with a later version."""


class GenerateConfig(Settings):
    """Greedy continuation of every prompt."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)]
    """Most new tokens a prompt; a stopping token ends it earlier."""
    temperature: Annotated[None, NotYet("sampling (greedy decoding is what there is)")] = None
    """Reserved: sampling comes with a later version."""


class EngineConfig(Settings):
    """How values are computed. Decides bits, hence part of the run's identity."""

    route: Literal["auto", "reference", "fast"] = "auto"
    """`reference` is plain NumPy, `fast` has compiled kernels; `auto` is resolved once, before the run."""
    numerics: Literal["f32"] = "f32"
    """Precision of the computation."""
    unit_rows: UnitRows = None
    """Token rows a unit of work holds after sharing prefixes; `auto`: a sixteenth of all rows, 512 to 4096."""
    blas_threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Threads of the matrix library in each worker."""


class RunSettings(Settings):
    """How the work is spread. Decides nothing but time, hence no part of the run's identity."""

    workers: Workers = "auto"
    """Worker processes; `auto`: as many as usable processors and memory allow."""
    memory_per_worker: Memory = "auto"
    """Private memory after which a worker is stopped, in bytes or as `2GiB`; `auto`: a share of what is free."""
    seconds_per_unit: Annotated[float, Field(gt=0)] | None = None
    """Time after which a worker still busy with one unit is stopped as hung; by default never."""
    scheduler: Scheduler = "local"
    """`local` processes, `serial` (this process, for debugging), `tcp://host:port`, or a scheduler file (.json)."""


def _folder(given: str) -> str:
    if not given.isprintable():
        raise refuse(f"found {given!r}, expected the path of a folder, without control characters")
    return given


class OutputConfig(Settings):
    """Where results go."""

    dir: Annotated[str, Field(min_length=1), AfterValidator(_folder)]
    """The run directory, relative to the working directory."""
    dtype: Annotated[Literal["float32"], NotYet.unless("float32", "half-precision storage")] = "float32"
    """Type of stored activations."""

    @property
    def path(self) -> Path:
        """The run directory as a path."""
        return Path(self.dir)


class GuardConfig(Settings):
    """The smoke guard: a model whose predictions are no better than chance is a wrong branch, not a result."""

    positions: Annotated[int, Field(ge=0, le=65536)] = 256
    """Positions of the first unit whose mean negative log-likelihood is measured; 0 switches the guard off."""
    allow_chance: bool = False
    """Go on although predictions are near chance (an untrained model)."""


class RunConfig(Settings):
    """One run: one model over one stimulus set into one directory."""

    schema_: Annotated[Literal["ember.pipeline/v1"], Field(alias="schema")]
    """Version of this format."""
    name: Name
    """What the run is called."""
    model: ModelConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    stimuli: StimuliConfig
    hooks: HooksConfig = HooksConfig()
    generate: GenerateConfig | None = None
    """Omit to extract only."""
    engine: EngineConfig = EngineConfig()
    run: RunSettings = RunSettings()
    output: OutputConfig
    guard: GuardConfig = GuardConfig()
    _source: Path | None = PrivateAttr(default=None)

    @property
    def source(self) -> Path | None:
        """The file that the configuration was read from."""
        return self._source

    def with_engine(self, *, route: Literal["reference", "fast"], unit_rows: int) -> Self:
        """Return the same run with what `auto` stands for filled in."""
        engine = self.engine.model_copy(update={"route": route, "unit_rows": unit_rows})
        return self.model_copy(update={"engine": engine})

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not self.hooks.capture and self.generate is None:
            raise refuse("nothing to do: give `hooks.capture`, `generate` or both")
        return self
