"""What a probe plan may say: which runs, labels, captures, probes and splits."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from pipelines.config.messages import describe
from pipelines.config.models import OutputConfig
from pipelines.config.selectors import Layers, WhereField
from pipelines.config.types import Scheduler, SiteField, Workers
from pipelines.errors import ConfigError
from pipelines.settings import InputPath, Listed, Name, Settings, Shorthand, Word, refuse, show
from pipelines.yaml_core import Problem, load_yaml

SCHEMA: Final = "ember.probe/v1"
NETWORK: Final = "mlp"
"""The one probe that is not linear."""
HELDOUT: Final = "-heldout"

Probe = Literal["logistic", "ridge", "mean_difference", "mlp"]
Split = tuple[str, ...]
"""Fields whose groups are held out; none: random."""


def split_name(split: Split) -> str:
    """Write a split as results name it: random, root-heldout, root-and-pattern-heldout."""
    return "-and-".join(split) + HELDOUT if split else "random"


def _parse_split(given: Any) -> Split:
    if given == "random":
        return ()
    if isinstance(given, tuple):
        return given
    fields = given.get("held_out") if isinstance(given, dict) and given.keys() == {"held_out"} else None
    named = [fields] if isinstance(fields, str) else fields
    if isinstance(named, list) and 1 <= len(named) <= 2 and all(isinstance(one, str) and one for one in named):
        if len(set(named)) == len(named):
            return tuple(named)
        raise refuse(f"found {show(given)}: a field is named twice")
    raise refuse(f"found {show(given)}, expected random, {{held_out: field}} or {{held_out: [field, field]}}")


def _write_split(split: Split) -> Any:
    return {"held_out": list(split)} if split else "random"


SplitField = Annotated[Split, PlainValidator(_parse_split), PlainSerializer(_write_split)]
Splits = Annotated[tuple[SplitField, ...], Field(min_length=1), Listed]


class LabelConfig(Settings):
    """One label."""

    label: Word
    """Its name, without `label_`."""
    exclude: Annotated[tuple[str, ...], Listed] = ()
    """Values whose stimuli are left out."""
    splits: Splits | None = None
    """Splits of this label alone; one that cannot be made is an error."""


def _increasing(strengths: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(strengths)) != len(strengths):
        raise refuse(f"found {show(strengths)}: a strength is listed twice")
    return tuple(sorted(strengths))


Positive = Annotated[float, Field(gt=0, le=1e12)]
Numbers = Annotated[tuple[Positive, ...], Field(min_length=1, max_length=20), Listed, AfterValidator(_increasing)]


class StrengthsConfig(Settings):
    """Strengths of regularisation to choose from, inside the training folds."""

    logistic: Numbers = (1e-4, 1e-3, 1e-2, 1e-1)
    """C of logistic regression: the smaller, the stronger."""
    ridge: Numbers = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
    """alpha of ridge regression: the larger, the stronger."""
    mlp: Numbers = (0.1, 1.0, 10.0)
    """alpha of the probe with a hidden layer: the larger, the stronger."""

    def of(self, probe: str) -> tuple[float, ...]:
        """Strengths of a probe, the strongest first; a probe without any has one that means nothing."""
        if probe == "logistic":
            return self.logistic
        larger_is_stronger = {"ridge": self.ridge, NETWORK: self.mlp}
        return tuple(reversed(larger_is_stronger.get(probe, (0.0,))))


class ProbeWorkers(Settings):
    """How the work is spread. Decides nothing but time."""

    workers: Workers = "auto"
    """Worker processes; `auto`: as many as usable processors and memory allow."""
    scheduler: Scheduler = "local"
    """`local` processes, `serial` (this process), `tcp://host:port`, or a scheduler file (.json)."""


Labels = Annotated[tuple[Annotated[LabelConfig, Shorthand("label")], ...], Field(min_length=1), Listed]


class ProbeConfig(Settings):
    """One probe plan."""

    schema_: Annotated[Literal["ember.probe/v1"], Field(alias="schema")] = "ember.probe/v1"
    """Version of this format."""
    name: Name = "probes"
    """What the sweep is called."""
    runs: Annotated[tuple[InputPath, ...], Field(min_length=1), Listed]
    """Directories of finished runs, relative to this config."""
    untrained: InputPath | None = None
    """The same config run on a copy of the model with shuffled weights (`ember untrained`): one more control."""
    partial: bool = False
    """Whether runs in which some prompts failed may be used; those are left out and counted."""
    labels: Labels | None = None
    """Labels to tell; without it all that have at least two values."""
    captures: Annotated[tuple[Name, ...], Field(min_length=1), Listed] | None = None
    """Captures by name; without it all that have one row for each stimulus, logits excepted."""
    sites: Annotated[tuple[SiteField, ...], Field(min_length=1), Listed] | None = None
    """Only captures at these sites."""
    layers: Layers = "all"
    """all, a list, or {from: 2, to: 8}; only layers that were captured."""
    where: WhereField = ()
    """Labels (or `template`) and their values that select stimuli."""
    probes: Annotated[tuple[Probe, ...], Field(min_length=1), Listed] = ("logistic", "mean_difference")
    """logistic, ridge, mean_difference; mlp beside one of them."""
    splits: Splits | None = None
    """random, {held_out: field}, {held_out: [field, field]}; a field is a label or `template`. Without it random and
    every one that can be made."""
    folds: Annotated[int, Field(ge=2, le=20)] | None = None
    """Folds of a split; without it 5, or as many as there are groups, and 3 by 3 where two fields are held out."""
    strengths: StrengthsConfig = StrengthsConfig()
    control: Word | None = None
    """Field whose values get random labels in the control task; without it the expected text, else the target, else
    the prompt."""
    draws: Annotated[int, Field(ge=100, le=100_000)] = 1000
    """Draws of groups for intervals."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Decides folds, random labels, draws and orders."""
    run: ProbeWorkers = ProbeWorkers()
    output: OutputConfig | None = None
    """Without it `probes` in the run's directory."""
    _source: Path | None = PrivateAttr(default=None)

    @property
    def source(self) -> Path | None:
        """The file that the plan was read from."""
        return self._source

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        named = {
            "labels": [one.label for one in self.labels or ()],
            "probes": self.probes,
            "splits": self.splits or (),
            "runs": self.runs,
        }
        for key, listed in named.items():
            if len(set(listed)) != len(listed):
                raise refuse("found something that is listed twice", key)
        if self.probes == (NETWORK,):
            raise refuse(
                "found mlp alone; what a network reads means something only beside a linear probe on the same folds: "
                "list logistic too",
                "probes",
            )
        if self.untrained is not None and len(self.runs) > 1:
            raise refuse("found one untrained run for several runs; give each run a plan of its own", "untrained")
        return self


def load_probes(path: str | Path) -> ProbeConfig:
    """Read a probe plan; raises ConfigError listing every problem with its line."""
    path = Path(path)
    document = load_yaml(path)
    found = document.value.get("schema") if isinstance(document.value, dict) else None
    if found != SCHEMA:
        said = f"schema: found {show(found)}, expected {SCHEMA}, which is what a probe plan begins with"
        raise document.report([Problem(document.mark(("schema",)).line, said)])
    try:
        config = ProbeConfig.model_validate(document.value, context={"base": path.resolve().parent})
    except ValidationError as error:
        raise document.report([*document.problems, *describe(error, document, ProbeConfig)]) from None
    if document.problems:
        raise document.report(document.problems)
    config._source = path
    return config


def open_plan(given: str | Path, **changes: Any) -> ProbeConfig:
    """Read a plan, or make the plain one for a run directory; `changes` replace keys (None: as it is)."""
    path = Path(given)
    if path.is_dir():
        config = ProbeConfig(runs=(str(path),))
    elif path.suffix in (".yaml", ".yml") or path.is_file():
        config = load_probes(path)
    else:
        raise ConfigError(f"{path}: no such file or directory; give a probe plan (.yaml) or the directory of a run")
    return config.model_copy(update={key: value for key, value in changes.items() if value is not None})
