"""A verified run as the report reads it: stimuli and answers side by side, in the user's order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ember.errors import EmberError
from pipelines.config import RunConfig, config_sha256, load_config
from pipelines.manifest import Manifest
from pipelines.reading import Run, load
from pipelines.rows import LABEL_PREFIX

CONFIG: Final = "config.yaml"
TEMPLATE: Final = "template"
MOST_CLASSES: Final = 60
"""A label of more values than this is not tabulated value by value."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A label, or the template, of every stimulus."""

    name: str
    values: tuple[str | None, ...]
    """None where a stimulus lacks it."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Its values, in the order of their first."""
        return tuple(dict.fromkeys(value for value in self.values if value is not None))

    @property
    def codes(self) -> NDArray[np.int64]:
        """For each stimulus the number of its class; -1 where it lacks one."""
        number = {value: i for i, value in enumerate(self.classes)}
        return np.array([-1 if value is None else number[value] for value in self.values], np.int64)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a report knows of a run."""

    run: Run
    config: RunConfig | None
    """As the run keeps it; None where it is absent or not the one that the manifest was made with."""
    stimuli: tuple[Row, ...]
    """Those that did not fail, in the user's order."""
    answers: tuple[Row, ...]
    """Rows of `generations` beside them; empty where the run has none."""
    columns: tuple[Column, ...]
    """The template, where there are several, and labels."""

    @property
    def manifest(self) -> Manifest:
        """The run's manifest."""
        return self.run.manifest

    @property
    def changed(self) -> bool:
        """Whether something may have changed the model's states while it ran."""
        hooks = self.manifest.origin.hooks or {}
        return bool(hooks.get("interventions")) or any(one.get("mutates", True) for one in hooks.get("experiments", []))

    @property
    def judged(self) -> NDArray[np.bool_]:
        """[stimuli] whether something was generated and compared with an expected text."""
        if not self.answers:
            return np.zeros(len(self.stimuli), np.bool_)
        return np.array([row["has_expected"] and row["stopped"] != "" for row in self.answers], np.bool_)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """[stimuli] whether the answer was right."""
        return np.array([row["correct"] for row in self.answers], np.bool_)

    def scores(self, name: str) -> NDArray[np.float64]:
        """[stimuli] a column of numbers of the answers."""
        return np.array([row[name] for row in self.answers], np.float64)

    def grouping(self) -> list[Column]:
        """Columns that part the stimuli into classes of more than one; of those that part them alike only the first."""
        found: dict[bytes, Column] = {}
        for column in self.columns:
            if 2 <= len(column.classes) <= len(self.stimuli) // 2:
                found.setdefault(column.codes.tobytes(), column)
        return list(found.values())

    def tabulated(self) -> list[Column]:
        """Those of `grouping` with few enough classes to be told one by one."""
        return [column for column in self.grouping() if len(column.classes) <= MOST_CLASSES]

    def same_as(self, column: Column) -> list[str]:
        """Names of other columns that part the stimuli as `column` does."""
        key = column.codes.tobytes()
        return [one.name for one in self.columns if one.name != column.name and one.codes.tobytes() == key]


def read_facts(directory: Path, *, verified: bool = False) -> Facts:
    """Read the run in `directory`, checking every file first unless it is known to be `verified`.

    Raises InputError for what is no directory, RunError for an unfinished run, VerifyError for a damaged one.
    """
    run = load(directory, verify=not verified, partial=True)
    stimuli = run.stimuli.to_pylist()
    order = sorted(range(len(stimuli)), key=lambda i: int(stimuli[i]["source_index"]))
    stimuli = [stimuli[i] for i in order]
    by_sample = {row["sample_index"]: row for row in run.generations.to_pylist()}
    answers = tuple(by_sample[row["sample_index"]] for row in stimuli) if by_sample else ()
    return Facts(run, _config(run), tuple(stimuli), answers, tuple(_columns(stimuli)))


def _config(run: Run) -> RunConfig | None:
    try:
        config = load_config(run.directory / CONFIG)
    except EmberError:
        return None
    return config if config_sha256(config) == run.manifest.inputs.config_sha256 else None


def _columns(stimuli: Sequence[Row]) -> list[Column]:
    names = [name for name in (stimuli[0] if stimuli else ()) if name.startswith(LABEL_PREFIX)]
    found = [Column(name.removeprefix(LABEL_PREFIX), tuple(row[name] for row in stimuli)) for name in names]
    templates = Column(TEMPLATE, tuple(row[TEMPLATE] or None for row in stimuli))
    return [*([templates] if len(templates.classes) > 1 else []), *found]
