"""Which run a directory holds: recorded when it starts, compared whenever it is entered again.

A directory is only ever continued by the very same run. Everything that decides values takes part: config, stimuli,
model, tokenizer, plan, numerics and the program's version; a refusal names what changed.
"""

import hashlib
import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from pipelines import placing
from pipelines.canonical import canonical_json, explain_difference, plain, sha256_of
from pipelines.config import config_sha256, identity
from pipelines.errors import IdentityError
from pipelines.manifest import Inputs, sample_order_sha256, stimuli_sha256
from pipelines.plan import Plan
from pipelines.rows import stimulus_record
from pipelines.state import IDENTITY, STATE_DIR
from pipelines.tasks import EngineRecord

UNIDENTIFYING: Final = ("tokenizers_version", "warnings")
"""What a tokenizer's record says beside what it does; ids themselves are part of the plan's hash."""
INPUTS: Final = frozenset(field.name for field in fields(Inputs))
SHOWN: Final = 8
"""Differences that a refusal lists."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What makes a run this run."""

    inputs: Inputs
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    numerics: dict[str, Any]
    stimuli: tuple[tuple[str, str], ...]
    """Id and short hash of each stimulus, in the user's order."""
    ember: str
    """Version of the program."""

    @property
    def record(self) -> dict[str, Any]:
        """The identity as plain data, as it is stored."""
        told: dict[str, Any] = plain(self)
        return told


def make_identity(plan: Plan, engine: EngineRecord, version: str) -> RunIdentity:
    """Gather the identity of a run whose config has nothing `auto` left."""
    config = plan.config
    told = plan.source.tokenizer.record()
    tokenizer = {key: value for key, value in told.items() if key not in UNIDENTIFYING}
    stimuli = sorted((sample.stimulus for sample in plan.samples), key=lambda stimulus: stimulus.source_index)
    inputs = Inputs(
        config_sha256=config_sha256(config),
        plan_sha256=plan_sha256(plan),
        stimuli_sha256=stimuli_sha256(stimuli),
        sample_order_sha256=sample_order_sha256([sample.stimulus.source_index for sample in plan.samples]),
        model_sha256=plan.source.file.sha256(),
        tokenizer_sha256=sha256_of(tokenizer),
        numerics_version=int(engine.numerics["numerics_version"]),
        hooks_sha256=plan.hooks.sha256,
    )
    each = tuple((stimulus.id, sha256_of(stimulus_record(stimulus))[:16]) for stimulus in stimuli)
    return RunIdentity(inputs, _identity(plan), tokenizer, engine.deciding, each, version)


def _identity(plan: Plan) -> dict[str, Any]:
    """Return the config's identity, with what it names by path told by its contents."""
    found, record = identity(plan.config), plan.hooks.record(plan.config.hooks)
    if record is not None:
        found["hooks"]["sources"] = [one["source"] for one in record["interventions"]]
        found["hooks"]["code"] = [one["source_sha256"] for one in record["experiments"]]
    return found


def plan_sha256(plan: Plan) -> str:
    """Hash of units, token ids, resolved positions and the tokens of scored texts."""
    digest = hashlib.sha256()
    for sample in plan.samples:
        digest.update(len(sample.tokens).to_bytes(4, "little") + sample.tokens.astype("<i4").tobytes())
    captures = [[c.name, c.site, c.layers, c.pooled, sha256_of(c.positions)] for c in plan.captures]
    scores = [sha256_of(array) for array in plan.scores.arrays().values()]
    units = [[u.start, u.end] for u in plan.units]
    return sha256_of([units, digest.hexdigest(), captures, plan.max_tokens, scores])


def enter(run_dir: Path, current: RunIdentity) -> None:
    """Make `run_dir` the directory of this run, or find that it is.

    Raises IdentityError when it holds another run, or files that are no run's.
    """
    stored = _read(run_dir)
    if stored is None:
        refuse_foreign(run_dir)
        _store(run_dir, current)
        return
    changes = differences(stored, current.record)
    if changes:
        more = f"\n  … and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
        raise IdentityError(
            f"{run_dir} holds another run; since it was started these changed:\n  "
            + "\n  ".join(changes[:SHOWN])
            + more
            + "\nundo the change to go on with it, or give the new run an output.dir of its own"
        )


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Name what differs between two stored identities, most telling first; empty when they are the same run."""
    if canonical_json(old) == canonical_json(new):
        return []
    lines = explain_difference(old["config"], new["config"], "config")
    lines += _changed(old["inputs"], new["inputs"], "model_sha256", "model file")
    lines += _stimuli_changes(old["stimuli"], new["stimuli"])
    lines += explain_difference(old["tokenizer"], new["tokenizer"], "tokenizer")
    lines += explain_difference(old["numerics"], new["numerics"], "numerics")
    lines += _changed(old, new, "ember", "version of Ember")
    lines = lines or _changed(old["inputs"], new["inputs"], "hooks_sha256", "hook plan")
    return lines or _changed(old["inputs"], new["inputs"], "plan_sha256", "plan") or ["something unnamed"]


def _changed(old: dict[str, Any], new: dict[str, Any], key: str, name: str) -> list[str]:
    short = 16 if key.endswith("sha256") else None
    if old[key] == new[key]:
        return []
    kind = " sha256" if short else ""
    return [f"{name}: was{kind} {old[key][:short]}, is{kind} {new[key][:short]}"]


def _stimuli_changes(old: list[list[str]], new: list[list[str]]) -> list[str]:
    if old == new:
        return []
    lines = [] if len(old) == len(new) else [f"stimuli: were {len(old)}, are {len(new)}"]
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if a != b:
            what = f"{a[0]!r} was changed" if a[0] == b[0] else f"{a[0]!r} is now {b[0]!r}"
            return [*lines, f"stimuli: first difference at number {i}: {what}"]
    return lines


def refuse_foreign(run_dir: Path) -> None:
    """Raise IdentityError if `run_dir` holds files but no run: nothing is written among them."""
    if not run_dir.is_dir() or (run_dir / IDENTITY).exists():
        return
    found = sorted(path.name for path in run_dir.iterdir() if path.name != STATE_DIR)
    if found:
        shown = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise IdentityError(
            f"{run_dir} is not empty ({shown}) and holds no run that could be continued; "
            "choose another output.dir, or empty this one"
        )


def _read(run_dir: Path) -> dict[str, Any] | None:
    path = run_dir / IDENTITY
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise IdentityError(f"{path} cannot be read ({error}); choose another output.dir") from error
    sections = {"inputs", "config", "stimuli", "tokenizer", "numerics", "ember"}
    whole = isinstance(found, dict) and sections <= set(found) and isinstance(found["inputs"], dict)
    if not whole or set(found["inputs"]) != INPUTS:
        raise IdentityError(f"{path} was not written by this version of Ember; choose another output.dir")
    return found


def _store(run_dir: Path, current: RunIdentity) -> None:
    body = canonical_json(current.record, indent=1).encode()
    with (
        placing.disk_errors(run_dir, "cannot record the run's identity", len(body)),
        placing.staged(run_dir, f"identity-{os.getpid()}", "identity.json") as staged,
    ):
        staged.write_bytes(body)
        placing.sync_file(staged)
        placing.place(staged, run_dir / IDENTITY)
