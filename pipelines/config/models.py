"""The run configuration: one frozen model per section, every default in one place.

`schema: ember.pipeline/v1` is checked before anything else (see `loading`). What a later version brings is refused by
name, so that a config never means less than it says.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from pipelines.config.answers import GenerateConfig, ScoreConfig
from pipelines.config.hooks import HooksConfig, generated_positions
from pipelines.config.types import AddBos, Memory, NotYet, Scheduler, UnitRows, Workers
from pipelines.settings import InputPath, Name, Settings, refuse
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
    """The smoke guard: a model that predicts its prompts no better than chance stops the run, before it costs more."""

    positions: Annotated[int, Field(ge=0, le=65536)] = 256
    """Positions of the first unit whose mean negative log-likelihood is measured; 0 switches the guard off."""
    allow_chance: bool = False
    """Go on although predictions are no better than chance: an untrained model, or prompts of a kind it never read."""


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
    score: ScoreConfig | None = None
    """Omit to score nothing."""
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
        scores = self.score is not None and self.score.measures
        hooks = self.hooks.capture or self.hooks.experiment or self.hooks.attention
        if not (hooks or self.generate is not None or scores):
            raise refuse(
                "nothing to do: give `hooks.capture`, `hooks.attention`, `hooks.experiment`, `generate`, `score` or "
                "several of them"
            )
        return self

    @model_validator(mode="after")
    def _generates_what_it_asks_for(self) -> Self:
        for key, step in generated_positions(self.hooks):
            if self.generate is None:
                raise refuse("found generated without `generate`: nothing follows the prompts; add `generate`", *key)
            if step >= self.generate.max_tokens - 1:
                n = self.generate.max_tokens
                raise refuse(f"found step {step}, but {n} tokens have {n - 1} steps: the last is never fed back", *key)
        return self

    @model_validator(mode="after")
    def _scores_what_it_can(self) -> Self:
        if self.score is None:
            return self
        if self.score.normalize and self.generate is None:
            raise refuse("found score.normalize without `generate`: there is no continuation to compare; remove it")
        if self.score.continues and self.hooks.experiment:
            raise refuse(
                "found `score` beside `hooks.experiment`: the rows of scored texts are not shown to experiments, so "
                "the scores would be of an untouched model; use `hooks.intervene`, or score in a run of its own",
                "hooks",
                "experiment",
            )
        return self
