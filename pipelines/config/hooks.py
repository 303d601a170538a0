"""The `hooks` section: what is taken out of the model while it runs, and what is changed in it."""

from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from ember.hooks.loading import is_file
from ember.positions import Position
from ember.sites import SITES
from ember.work import ALL_STEPS, Observe
from pipelines.config.selectors import (
    LabelledLayers,
    LabelledPositionField,
    Layers,
    PositionChoice,
    PositionField,
    WhereField,
    parse_position,
    write_position,
)
from pipelines.config.types import SiteField
from pipelines.settings import InputPath, Listed, Name, Settings, Shorthand, refuse, show

SAME: Final = "same"
SOURCELESS: Final = ("zero", "scale")
STRENGTHLESS: Final = ("zero", "replace", "restore")
SAID: Final = (
    "hidden states are taken before or after what acts at their own site, and a plan that changes them must say"
)


class CaptureConfig(Settings):
    """One hidden state to keep."""

    name: Name = ""
    """How the capture is called in tables; by default the site's name."""
    site: SiteField
    """Where in the model: before_layer, after_attention, after_mlp, after_layer, before_logits or after_logits."""
    layers: Layers = "all"
    """`all`, a list of layers counted from 0 (-1 is the last), or `{from: 2, to: 8}`, both included. Not for
    before_logits and after_logits."""
    position: PositionField = Field(default=Position(), json_schema_extra={"default": "last"})
    """`last`, `all`, `mean`, `{index: n}`, `{from_end: n}` (0 is the last token), `span` or
    `{span: first|final|all|mean}` of the target's tokens (with `occurrence: n`, of the n-th place of its text, from 1),
    `generated` (every generated step) or `{generated: n}` (one of them, from 0)."""
    observe: Observe | None = None
    """`before` or `after` what acts at the capture's own site: needed in a plan that intervenes."""
    where: WhereField = ()
    """Labels with a value or a list of values: which stimuli are captured; by default all."""

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
        if self.position != Position() and self.position.step is None:
            raise refuse(
                f"site {self.site} exists at the last token and at generated ones only: "
                "remove `position`, or write `last` or `generated`"
            )
        return self


class AttentionConfig(Settings):
    """Attention weights to keep, of every head."""

    name: Name = "attention"
    """How the capture is called in the table."""
    layers: Layers = "all"
    """As for captures."""
    position: PositionField = Field(default=Position(), json_schema_extra={"default": "last"})
    """Whose attention: one of the prompt's positions as for captures, but no mean and no generated steps."""
    where: WhereField = ()
    """Labels with a value or a list of values: which stimuli are captured; by default all."""

    @model_validator(mode="after")
    def _of_tokens(self) -> Self:
        if self.position.pooled or self.position.step is not None:
            raise refuse("attention is kept of tokens of the prompt: a mean, and generated steps, have none here")
        return self


class VectorSource(Settings):
    """A vector from a file."""

    vector: InputPath
    """A .npy file of finite float32 or float64 numbers, relative to this config: [width], the same in every layer, or
    [layers, width], a row for each layer of the model or for each layer acted on."""


class CaptureSource(Settings):
    """What another capture of the same run takes from the same stimulus, earlier in the evaluation."""

    capture: Name
    """Name of the capture: of one row a stimulus, or of as many as are acted on."""
    layer: int | None = None
    """Which of its layers; by default the layer acted on."""


def _same_or_layer(given: Any) -> Any:
    if given == SAME or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise refuse(f"found {show(given)}, expected same or a number of a layer")


def _same_or_position(given: Any) -> Any:
    return given if given == SAME else parse_position(given)


class RunSource(Settings):
    """Rows of a finished run, which is verified first."""

    run: InputPath
    """The run's directory, relative to this config."""
    capture: Name | None = None
    """Name of its capture; by default the only one at the site acted on."""
    stimulus: Annotated[str, Field(min_length=1)] = SAME
    """`same` (the stimulus of the same id), an id, or "{label}"."""
    position: Annotated[
        PositionChoice | Literal["same"],
        PlainValidator(_same_or_position),
        PlainSerializer(lambda one: one if one == SAME else write_position(one)),
        WithJsonSchema({"description": "`same`, or a position as in captures"}),
    ] = "same"
    """`same` (the position acted on), or a position of the source's prompt. A capture of means has one row, which
    serves all positions."""
    layer: Annotated[
        Literal["same"] | int,
        PlainValidator(_same_or_layer),
        WithJsonSchema({"anyOf": [{"const": "same"}, {"type": "integer"}]}),
    ] = "same"
    """`same` (the layer acted on), or a layer of its capture."""


def _source_kind(given: Any) -> str | None:
    keys = given if isinstance(given, dict) else vars(given) if isinstance(given, Settings) else {}
    if "vector" in keys:
        return "<vector>"
    return "<run>" if "run" in keys else "<capture>" if "capture" in keys else None


SourceConfig = Annotated[
    Annotated[VectorSource, Tag("<vector>")]
    | Annotated[RunSource, Tag("<run>")]
    | Annotated[CaptureSource, Tag("<capture>")],
    Discriminator(
        _source_kind,
        custom_error_type="ember",
        custom_error_message="expected one of {vector: FILE.npy}, {capture: NAME} and {run: DIRECTORY}",
    ),
]


class InterveneConfig(Settings):
    """One operation on hidden states: x is the state, v the source's, s the strength."""

    operation: Literal["zero", "scale", "add", "replace", "interpolate", "project_out", "restore"]
    """zero: x = 0; scale: x = s·x; add: x + s·v; replace: x = v; interpolate: (1 - s)·x + s·v; project_out: x without s
    times its part along v; restore: replace by what a finished run has at the same site, layer and position."""
    site: SiteField
    """Where in the model, as for captures."""
    layers: LabelledLayers | None = None
    """`all`, a list, `{from: 2, to: 8}`, or "{label}" for what each stimulus says; needed but for before_logits and
    after_logits."""
    position: LabelledPositionField = Field(default=Position(), json_schema_extra={"default": "last"})
    """As for captures, but no mean; "{label}" takes a number or a word from each stimulus."""
    strength: float | None = None
    """A factor, by default 1; needed for scale, none for zero, replace and restore."""
    source: SourceConfig | None = None
    """Where v comes from; none for zero and scale."""
    where: WhereField = ()
    """Labels with a value or a list of values: which stimuli it acts on; by default all."""

    @property
    def factor(self) -> float:
        """The strength."""
        return 1.0 if self.strength is None else self.strength

    @model_validator(mode="after")
    def _fits_site(self) -> Self:
        if SITES[self.site].per_layer:
            if self.layers is None:
                raise refuse(f"site {self.site} needs `layers`: write which, or all")
            return self
        if self.layers is not None:
            raise refuse(f"site {self.site} is not in a layer: remove `layers`")
        if self.position != Position() and not _is_generated(self.position):
            raise refuse(
                f"site {self.site} exists at the last token and at generated ones only: "
                "remove `position`, or write `last` or `generated`"
            )
        return self

    @model_validator(mode="after")
    def _fits_operation(self) -> Self:
        named = self.operation
        if isinstance(self.position, Position) and self.position.pooled:
            raise refuse("a mean is no place to act at: write all, or {span: all}")
        if named in STRENGTHLESS and self.strength is not None:
            raise refuse(f"{named} has no strength: remove `strength`")
        if named == "scale" and self.strength is None:
            raise refuse("scale needs `strength`, the factor")
        if named in SOURCELESS and self.source is not None:
            raise refuse(f"{named} has no source: remove `source`")
        if named not in SOURCELESS and self.source is None:
            raise refuse(f"{named} needs a `source`: {{vector: FILE.npy}}, {{capture: NAME}} or {{run: DIRECTORY}}")
        if named == "restore" and not isinstance(self.source, RunSource):
            raise refuse("restore takes what a finished run has: write `source: {run: DIRECTORY}`, or use replace")
        if not isinstance(self.source, VectorSource | None) and _is_generated(self.position):
            raise refuse("at generated steps only a vector can be the source: rows belong to tokens of a prompt")
        return self


def _is_generated(position: PositionChoice) -> bool:
    return position.kind == "generated"


def _use(given: str, info: ValidationInfo) -> str:
    """Make the path in `path/to/file.py:Class` absolute, from the config's folder."""
    where, colon, name = given.rpartition(":")
    base = (info.context or {}).get("base")
    return f"{base / where}{colon}{name}" if is_file(where) and base is not None else given


class ExperimentConfig(Settings):
    """One experiment; a plain string is short for `{use: …}`."""

    use: Annotated[str, Field(min_length=1), AfterValidator(_use)]
    """A built-in (activation_stats, zero_layer_output), `module:Class`, `file.py:Class` relative to this config, or an
    entry point of an installed package."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the class."""
    where: WhereField = ()
    """Labels with a value or a list of values: which stimuli it runs on; by default all."""


Named = TypeVar("Named", CaptureConfig, AttentionConfig)


def _distinct(captures: tuple[Named, ...]) -> tuple[Named, ...]:
    names = [capture.name for capture in captures]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refuse(f"two captures are called {twice[0]!r}: give each its own `name`")
    return captures


class HooksConfig(Settings):
    """What is taken out of the model while it runs, and what is changed in it."""

    capture: Annotated[tuple[CaptureConfig, ...], Listed, AfterValidator(_distinct)] = ()
    """Hidden states to keep."""
    attention: Annotated[tuple[AttentionConfig, ...], Listed, AfterValidator(_distinct)] = ()
    """Attention weights to keep."""
    intervene: Annotated[tuple[InterveneConfig, ...], Listed] = ()
    """Changes of hidden states, in the order in which they act."""
    experiment: Annotated[tuple[Annotated[ExperimentConfig, Shorthand("use")], ...], Listed] = ()
    """Code that watches or changes each prompt's evaluation; prompts with an experiment share no rows with others."""

    @model_validator(mode="after")
    def _observed(self) -> Self:
        silent = [i for i, capture in enumerate(self.capture) if capture.observe is None]
        if self.intervene and silent:
            raise refuse(f"{SAID}: write `observe: before` or `observe: after`", "capture", silent[0])
        return self


Key = tuple[str | int, ...]


def generated_positions(hooks: HooksConfig) -> list[tuple[Key, int]]:
    """Keys of all positions at generated steps, each with its step; ALL_STEPS also for one that labels decide."""
    places: list[tuple[Key, PositionChoice]] = [
        *((("hooks", "capture", i, "position"), one.position) for i, one in enumerate(hooks.capture)),
        *((("hooks", "intervene", i, "position"), one.position) for i, one in enumerate(hooks.intervene)),
    ]
    return [
        (key, position.value if isinstance(position, Position) else ALL_STEPS)
        for key, position in places
        if _is_generated(position)
    ]
