"""Pairs of prompts as the model reads them: tokens side by side, and the part of the prompt that each belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from ember.positions import tokens_of_span
from pipelines.causal_trace.config import PairConfig, PairFile, TraceConfig
from pipelines.errors import ConfigError
from pipelines.plan import Plan, PlannedSample
from pipelines.stimuli.drafts import fail
from pipelines.stimuli.readers import Table, read_delimited, read_jsonl

CLEAN: Final = "clean"
CORRUPT: Final = "corrupt"
COLUMNS: Final = ("pair", "clean", "corrupt", "expected")
MORE: Final = ("group",)


@dataclass(frozen=True, slots=True)
class Place:
    """A token of a pair's corrupt prompt, with the clean token that stands for it; or EVERYWHERE."""

    position: int
    """In the corrupt prompt, from 0; -1 for all tokens at once, as the four numbers below."""
    clean_position: int
    from_end: int
    """The same place counted from the end; 0 is the last token."""
    token_id: int
    token: str
    clean_token: str
    role: str
    """Name of the part of the prompt; `text` before the first part, `after <part>` behind one, `inside <part>` for
    white space in it, `last`; `all` for all tokens at once."""
    role_index: int
    """Place among the tokens of this role, from 0."""

    @property
    def changed(self) -> bool:
        """Whether the two prompts have other tokens here."""
        return self.token != self.clean_token

    @property
    def label(self) -> str:
        """The position as the second run's stimuli give it."""
        return "all" if self == EVERYWHERE else str(self.position)


EVERYWHERE: Final = Place(-1, -1, -1, -1, "", "", "all", 0)
"""All tokens at once: what they hold together may be more than what each of them holds."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair with its tokens aligned."""

    config: PairConfig
    clean_tokens: tuple[int, ...]
    corrupt_tokens: tuple[int, ...]
    places: tuple[Place, ...]
    """In the order of positions."""

    @property
    def name(self) -> str:
        """The pair's name."""
        return self.config.pair

    @property
    def patches(self) -> tuple[Place, ...]:
        """Places that are patched, one after the other; all at once only where the prompts have equally many tokens."""
        return (*self.places, EVERYWHERE) if self.equal_length else self.places

    @property
    def equal_length(self) -> bool:
        """Whether both prompts have equally many tokens."""
        return len(self.clean_tokens) == len(self.corrupt_tokens)


def stimulus_id(pair: str, side: str) -> str:
    """Id of a pair's clean or corrupt prompt in the baseline."""
    return f"{pair}/{side}"


def read_pairs(config: TraceConfig) -> tuple[PairConfig, ...]:
    """Return the pairs listed in a config or read from its file; raises ConfigError with file and line."""
    if not isinstance(config.pairs, PairFile):
        return config.pairs.items
    path = Path(config.pairs.file)
    table = _table(path)
    if not table.rows:
        raise ConfigError(f"{path}: no pairs in this file, expected at least one row")
    _check_columns(table, config.pairs.roles)
    pairs: list[PairConfig] = []
    problems: list[str] = []
    for where, row in table.rows:
        try:
            pairs.append(_pair(row, config.pairs.roles))
        except ConfigError as error:
            problems.append(f"{where}: {error}")
    names = [pair.pair for pair in pairs]
    problems += [f"{path}: the pair {n!r} is there {names.count(n)} times; names are unique" for n in _repeated(names)]
    fail(problems)
    return tuple(pairs)


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def _table(path: Path) -> Table:
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".ndjson", ".csv", ".tsv"):
        raise ConfigError(f"{path}: found a name that ends in {kind!r}, expected .jsonl, .csv or .tsv")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; paths count from the config's folder")
    try:
        return read_jsonl(path) if "json" in kind else read_delimited(path, "\t" if kind == ".tsv" else ",")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


def _check_columns(table: Table, roles: Sequence[str]) -> None:
    here = ", ".join(table.columns)
    absent = [name for name in (*COLUMNS, *roles) if name not in table.columns]
    unused = [name for name in table.columns if name not in (*COLUMNS, *MORE, *roles)]
    fail(
        [f"{table.path}: no column {name!r}; columns here: {here}" for name in absent]
        + [f"{table.path}: nothing uses the column {name!r}: name it in `pairs.roles`, or remove it" for name in unused]
    )


def _pair(row: dict[str, Any], roles: Sequence[str]) -> PairConfig:
    given = {name: row[name] for name in (*COLUMNS, *MORE) if row.get(name) not in (None, "")}
    parts = {name: row[name] for name in roles if row[name] not in (None, "")}
    try:
        return PairConfig.model_validate(given | {"roles": parts})
    except ValidationError as error:
        told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in error.errors()]
        raise ConfigError("; ".join(told)) from None


def align_pairs(configs: Sequence[PairConfig], plan: Plan, align: str) -> tuple[Pair, ...]:
    """Put the tokens of each pair side by side; `plan` is that of the baseline.

    Raises ConfigError naming, with both lists of tokens, pairs whose prompts have other numbers of tokens, unless they
    are aligned at the end.
    """
    samples = {sample.stimulus.id: sample for sample in plan.samples}
    decode = plan.source.tokenizer.decode
    pairs, problems = [], []
    for config in configs:
        clean, corrupt = (samples[stimulus_id(config.pair, side)] for side in (CLEAN, CORRUPT))
        texts = [[decode([int(token)]) for token in side.tokens] for side in (clean, corrupt)]
        if len(texts[0]) != len(texts[1]) and align == "equal":
            problems.append(_unequal(config.pair, *texts))
            continue
        places = _places(config, clean, corrupt, *texts)
        pairs.append(Pair(config, tuple(clean.tokens.tolist()), tuple(corrupt.tokens.tolist()), places))
    fail(problems)
    return tuple(pairs)


def _unequal(name: str, clean: list[str], corrupt: list[str]) -> str:
    return (
        f"pair {name!r}: the clean prompt has {len(clean)} tokens, the corrupt one {len(corrupt)}; a state is put back "
        "at the same position, so they must have equally many: change one of them, or write `align: end`\n"
        f"    clean   {' | '.join(map(repr, clean))}\n    corrupt {' | '.join(map(repr, corrupt))}"
    )


def _places(
    config: PairConfig, clean: PlannedSample, corrupt: PlannedSample, texts: list[str], others: list[str]
) -> tuple[Place, ...]:
    roles = _roles(config, clean, texts)
    n, m = len(clean.tokens), len(corrupt.tokens)
    return tuple(
        Place(
            position=m - 1 - back,
            clean_position=n - 1 - back,
            from_end=back,
            token_id=int(corrupt.tokens[m - 1 - back]),
            token=others[m - 1 - back],
            clean_token=texts[n - 1 - back],
            role=roles[n - 1 - back][0],
            role_index=roles[n - 1 - back][1],
        )
        for back in range(min(n, m) - 1, -1, -1)
    )


def _roles(config: PairConfig, clean: PlannedSample, texts: list[str]) -> list[tuple[str, int]]:
    """For each token of the clean prompt, its role and its place among the tokens of it."""
    text = clean.stimulus.prompt.encode()
    spans = []
    for name, part in config.roles.items():
        if (start := text.find(part.encode())) < 0:
            raise ConfigError(
                f"pair {config.pair!r}: the part {name!r} is {part!r}, which `tokenizer.normalize` changed in the "
                "prompt; write both in normal form"
            )
        spans.append((*tokens_of_span(clean.byte_offsets, start, start + len(part.encode())), name))
    found: list[tuple[str, int]] = []
    current = "text"
    counts: dict[str, int] = {}
    last = len(clean.tokens) - 1
    for position in range(len(clean.tokens)):
        inside = next((name for first, end, name in spans if first <= position < end), None)
        if inside is not None:
            current = f"after {inside}"
        outside = "last" if position == last else current
        role = outside if inside is None else inside if texts[position].strip() else f"inside {inside}"
        found.append((role, counts.get(role, 0)))
        counts[role] = counts.get(role, 0) + 1
    return found
