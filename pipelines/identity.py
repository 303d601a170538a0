"""Which run a directory holds: recorded when it starts, compared whenever it is entered again.

A directory is only ever continued by the very same run. Everything that decides values takes part: config, stimuli,
model, tokenizer, plan, numerics and the program's version; a refusal names what changed.
"""

import hashlib
import json
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from pipelines import placing
from pipelines.canonical import canonical_json, explain_difference, plain, sha256_of
from pipelines.config import config_sha256, identity
from pipelines.errors import IdentityError
from pipelines.manifest import Inputs, record_line, sample_order_sha256
from pipelines.memory import give_back
from pipelines.plan import Plan
from pipelines.rows import stimulus_record
from pipelines.state import IDENTITY, STATE_DIR
from pipelines.stimuli.packed import PackedStimuli
from pipelines.tasks import EngineRecord
from pipelines.texts import Texts

UNIDENTIFYING: Final = ("tokenizers_version", "warnings")
"""What a tokenizer's record says beside what it does; ids themselves are part of the plan's hash."""
INPUTS: Final = frozenset(field.name for field in fields(Inputs))
SHORT: Final = 8
"""Bytes of a stimulus' hash that are kept."""
SHOWN: Final = 8
"""Differences that a refusal lists."""


@dataclass(frozen=True, slots=True)
class StimulusHashes:
    """Id and short hash of each stimulus, in the user's order."""

    ids: Texts
    order: Sequence[int]
    """Whose id comes first, and so on."""
    digests: bytes
    """SHORT bytes of each, in the user's order."""

    def __len__(self) -> int:
        """Count the stimuli."""
        return len(self.order)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Give id and hash, in hexadecimal digits, of one stimulus after another."""
        for at, place in enumerate(self.order):
            yield self.ids[place], self.digests[SHORT * at : SHORT * (at + 1)].hex()


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What makes a run this run."""

    inputs: Inputs
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    numerics: dict[str, Any]
    stimuli: StimulusHashes
    ember: str
    """Version of the program."""

    @property
    def record(self) -> dict[str, Any]:
        """The identity as plain data, as it is stored."""
        return self._without_stimuli | {"stimuli": [list(pair) for pair in self.stimuli]}

    @property
    def stored(self) -> bytearray:
        """The canonical JSON of `record`, without making the record of many stimuli."""
        whole = canonical_json(self._without_stimuli | {"stimuli": []}, indent=1)
        # no text holds a line break, and no other key stands at this depth
        before, after = whole.split('\n "stimuli": []')
        body = bytearray(f'{before}\n "stimuli": ['.encode())
        for at, pair in enumerate(self.stimuli):
            name, digest = (json.dumps(text, ensure_ascii=False) for text in pair)
            body += f"{',' if at else ''}\n  [\n   {name},\n   {digest}\n  ]".encode()
        body += b"\n ]" if len(self.stimuli) else b"]"
        body += after.encode()
        return body

    @property
    def _without_stimuli(self) -> dict[str, Any]:
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "stimuli"}
        told: dict[str, Any] = plain(named)
        return told


def make_identity(plan: Plan, engine: EngineRecord, version: str) -> RunIdentity:
    """Gather the identity of a run whose config has nothing `auto` left."""
    config = plan.config
    told = plan.source.tokenizer.record()
    tokenizer = {key: value for key, value in told.items() if key not in UNIDENTIFYING}
    all_stimuli, stimuli = hash_stimuli(plan.samples.stimuli)
    places = plan.samples.stimuli.source_indices
    inputs = Inputs(
        config_sha256=config_sha256(config),
        plan_sha256=plan_sha256(plan),
        stimuli_sha256=all_stimuli,
        sample_order_sha256=sample_order_sha256([places[at] for at in plan.samples.order]),
        model_sha256=plan.source.file.sha256(),
        tokenizer_sha256=sha256_of(tokenizer),
        numerics_version=int(engine.numerics["numerics_version"]),
        hooks_sha256=plan.hooks.sha256,
    )
    return RunIdentity(inputs, _identity(plan), tokenizer, engine.deciding, stimuli, version)


def hash_stimuli(stimuli: PackedStimuli) -> tuple[str, StimulusHashes]:
    """Hash all stimuli as `stimuli_sha256` does, and each of them."""
    order, given = array("i", range(len(stimuli))), stimuli.source_indices
    if given != order:
        order = array("i", sorted(order, key=given.__getitem__))
    whole, digests = hashlib.sha256(), bytearray()
    for place in order:
        line = record_line(stimulus_record(stimuli[place]))
        whole.update(line)
        digests += hashlib.sha256(line[:-1]).digest()[:SHORT]
    return whole.hexdigest(), StimulusHashes(stimuli.ids, order, bytes(digests))


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
    for tokens in plan.samples.prompts:
        digest.update(len(tokens).to_bytes(4, "little") + tokens.astype("<i4").tobytes())
    captures = [[c.name, c.site, c.layers, c.pooled, c.positions_sha256] for c in plan.captures]
    table = plan.scores
    arrays = (table.tokens, table.starts, table.firsts, table.merged, table.expected)
    scores = [sha256_of(array) for array in arrays]
    units = [[u.start, u.end] for u in plan.units]
    return sha256_of([units, digest.hexdigest(), captures, plan.max_tokens, scores])


def enter(run_dir: Path, current: RunIdentity) -> None:
    """Make `run_dir` the directory of this run, or find that it is.

    Raises IdentityError when it holds another run, or files that are no run's.
    """
    body = current.stored
    if not _holds(run_dir, body):
        _settle(run_dir, current, body)
    del body
    give_back()


def _settle(run_dir: Path, current: RunIdentity, body: bytearray) -> None:
    stored = _read(run_dir)
    if stored is None:
        refuse_foreign(run_dir)
        _store(run_dir, body)
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


def _holds(run_dir: Path, body: bytearray) -> bool:
    """Whether the identity in a directory is the one to be stored, byte by byte."""
    try:
        return (run_dir / IDENTITY).read_bytes() == body
    except OSError:
        return False


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


def _store(run_dir: Path, body: bytearray) -> None:
    with (
        placing.disk_errors(run_dir, "cannot record the run's identity", len(body)),
        placing.staged(run_dir, f"identity-{os.getpid()}", "identity.json") as staged,
    ):
        staged.write_bytes(body)
        placing.sync_file(staged)
        placing.place(staged, run_dir / IDENTITY)
