"""What a causal trace's file may say: pairs of prompts, where to patch, and what every run needs besides."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag, ValidationError, model_validator

from ember.sites import SITES
from pipelines.config.messages import describe
from pipelines.config.models import EngineConfig, GuardConfig, ModelConfig, OutputConfig, RunSettings, TokenizerConfig
from pipelines.config.selectors import Layers
from pipelines.config.types import SiteField
from pipelines.settings import InputPath, Listed, Name, Settings, Word, refuse, show
from pipelines.yaml_core import Problem, load_yaml

SCHEMA: Final = "ember.causal-trace/v1"
RESERVED: Final = re.compile(r"text|last|all|(after|inside) .*")
"""Names of roles that tokens get without being told."""


class PairConfig(Settings):
    """Two prompts, of which the first leads to the answer and the second differs from it in one thing."""

    pair: Annotated[str, Field(min_length=1)]
    """Its name; unique."""
    clean: Annotated[str, Field(min_length=1)]
    """The prompt that the expected answer belongs to."""
    corrupt: Annotated[str, Field(min_length=1)]
    """The prompt that is patched."""
    expected: Annotated[str, Field(min_length=1)]
    """The answer to the clean prompt, as it would follow it, white space included."""
    group: str = ""
    """Pairs of one group are averaged and drawn together."""
    roles: dict[Word, str] = Field(default_factory=dict)
    """Parts of the clean prompt by name, each a text that occurs in it once: {root: "ك ت ب"}. Tokens of different pairs
    are averaged where they have the same part and the same place in it."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        for what, text in (("pair", self.pair), ("group", self.group)):
            if not text.isprintable() or text != text.strip():
                raise refuse(f"found {show(text)}, expected visible text without white space around it", what)
        return self

    @model_validator(mode="after")
    def _roles_occur(self) -> Self:
        for name, text in self.roles.items():
            if RESERVED.fullmatch(name):
                raise refuse(f"found {name!r} as a part's name, which Ember gives of its own accord: choose another")
            times = self.clean.count(text) if text else 0
            if times != 1:
                raise refuse(
                    f"found {show(text)} for {name!r}, which occurs {times} times in the clean prompt: give once"
                )
        return self


class PairItems(Settings):
    """Pairs listed in the config."""

    items: Annotated[tuple[PairConfig, ...], Field(min_length=1), Listed]
    """The pairs, in order."""


class PairFile(Settings):
    """Pairs read from a table with the columns pair, clean, corrupt, expected and, if it has one, group."""

    file: InputPath
    """JSON Lines, CSV or TSV, relative to this config."""
    roles: Annotated[tuple[Word, ...], Listed] = ()
    """Further columns: parts of the clean prompt, as `roles` of listed pairs; an empty cell means none."""


def _kind(given: Any) -> str | None:
    keys = given if isinstance(given, dict) else vars(given) if isinstance(given, Settings) else {}
    present = [kind for kind in ("items", "file") if kind in keys]
    return f"<{present[0]}>" if len(present) == 1 else None


PairsConfig = Annotated[
    Annotated[PairItems, Tag("<items>")] | Annotated[PairFile, Tag("<file>")],
    Discriminator(
        _kind,
        custom_error_type="ember",
        custom_error_message="expected exactly one of the keys items and file, in a mapping",
    ),
]


def _sites(sites: tuple[str, ...]) -> tuple[str, ...]:
    for site in sites:
        if not SITES[site].per_layer:
            raise refuse(f"found {site}, which is in no layer: only sites of layers can be traced")
    if len(set(sites)) != len(sites):
        raise refuse(f"found {show(sites)}: a site is listed twice")
    return sites


class TraceConfig(Settings):
    """One causal trace: one model, pairs of prompts, two runs."""

    schema_: Annotated[Literal["ember.causal-trace/v1"], Field(alias="schema")]
    """Version of this format."""
    name: Name
    """What the trace is called."""
    model: ModelConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    pairs: PairsConfig
    """Pairs of a clean and a corrupt prompt."""
    sites: Annotated[tuple[SiteField, ...], Field(min_length=1), Listed, AfterValidator(_sites)] = ("after_layer",)
    """Where states are put back: before_layer, after_attention, after_mlp, after_layer."""
    layers: Layers = "all"
    """As for captures of a run."""
    align: Literal["equal", "end"] = "equal"
    """`equal`: the prompts of a pair have equally many tokens, or the trace is refused; `end`: they are aligned at
    their last tokens, and the shorter one decides how far back."""
    engine: EngineConfig = EngineConfig()
    run: RunSettings = RunSettings()
    guard: GuardConfig = GuardConfig()
    output: OutputConfig
    """`dir` gets `baseline` and `patched`, each a run directory, and what is made from them."""
    _source: Path | None = PrivateAttr(default=None)

    @property
    def source(self) -> Path | None:
        """The file that the configuration was read from."""
        return self._source


def load_trace(path: str | Path) -> TraceConfig:
    """Read the config of a causal trace; raises ConfigError listing every problem with its line."""
    path = Path(path)
    document = load_yaml(path)
    found = document.value.get("schema") if isinstance(document.value, dict) else None
    if found != SCHEMA:
        said = f"schema: found {show(found)}, expected {SCHEMA}, which is what a causal trace begins with"
        raise document.report([Problem(document.mark(("schema",)).line, said)])
    problems = [*document.problems]
    try:
        config = TraceConfig.model_validate(document.value, context={"base": path.resolve().parent})
    except ValidationError as error:
        raise document.report([*problems, *describe(error, document, TraceConfig)]) from None
    problems += [Problem(line, said) for line, said in _twice(config, document.mark)]
    if problems:
        raise document.report(problems)
    config._source = path
    return config


def _twice(config: TraceConfig, mark: Any) -> Iterator[tuple[int, str]]:
    names = [pair.pair for pair in config.pairs.items] if isinstance(config.pairs, PairItems) else []
    for i, name in enumerate(names):
        if name in names[:i]:
            yield (
                mark(("pairs", "items", i)).line,
                f"pairs.items.{i}: the pair {name!r} is listed twice; names are unique",
            )
