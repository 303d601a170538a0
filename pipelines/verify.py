"""Comparing what is on disk with what the manifest says, and the manifest with itself.

Nothing is repaired. Paths are judged before anything is opened, files are hashed in chunks, and a file whose bytes are
not the recorded ones is not decoded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines import placing, tables
from pipelines.answer_checks import answer_problems
from pipelines.attention_checks import attention_group_problems, attention_keys, attention_problems
from pipelines.content import ContentHasher
from pipelines.crosscheck import (
    Continuations,
    PartRows,
    Stimuli,
    capture_problems,
    expected_samples,
    finding_problems,
    generation_problems,
    group_problems,
    stimuli_problems,
    tiling_problems,
)
from pipelines.errors import VerifyError
from pipelines.findings import read_findings
from pipelines.manifest import Manifest, read_manifest, semantic_hash
from pipelines.parts import ATTENTION, EXPERIMENTS, GENERATIONS, STIMULI, STIMULI_PATH, TABLES, PartFile, confined
from pipelines.rows import LABEL_PREFIX


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `check` found."""

    directory: Path
    manifest: Manifest | None
    """None if it could not be read."""
    problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether everything is as it should be."""
        return not self.problems

    def rows(self, table: str) -> int:
        """Rows of a table, as the manifest lists them."""
        return sum(part.rows for part in self.manifest.parts_of(table)) if self.manifest else 0


def verify(run_dir: Path) -> Verdict:
    """Check a finished run; raises VerifyError listing every problem."""
    verdict = check(run_dir)
    if not verdict.sound:
        raise refusal(verdict)
    return verdict


def refusal(verdict: Verdict) -> VerifyError:
    """Return the error that lists all problems of a verdict."""
    count = "1 problem" if len(verdict.problems) == 1 else f"{len(verdict.problems)} problems"
    return VerifyError(f"{verdict.directory}: {count}\n  " + "\n  ".join(verdict.problems))


def check(run_dir: Path) -> Verdict:
    """Check a finished run and return what was found, problems included."""
    try:
        manifest = read_manifest(run_dir)
    except VerifyError as error:
        return Verdict(run_dir, None, (str(error),))
    checker = _Checker(run_dir, manifest)
    checker.check_all()
    return Verdict(run_dir, manifest, tuple(checker.problems))


class _Checker:
    """Goes once over all files of a run."""

    def __init__(self, run_dir: Path, manifest: Manifest) -> None:
        self.problems: list[str] = []
        self._dir = run_dir
        self._manifest = manifest
        self._stimuli: Stimuli | None = None
        self._content: dict[str, str] = {}
        self._generated: dict[int, list[int]] = {}
        self._continuations: Continuations | None = None

    def check_all(self) -> None:
        stimuli, samples = self._manifest.parts_of(STIMULI), self._manifest.samples
        if [part.path for part in stimuli] != [STIMULI_PATH]:
            self.problems.append(
                f"the manifest must list {STIMULI_PATH} once; it lists {len(stimuli)} tables of stimuli"
            )
        for part in stimuli:
            self._check_part(part)
        if stimuli and (stimuli[0].rows, stimuli[0].sample_start, stimuli[0].sample_end) != (samples, 0, samples):
            self.problems.append(
                f"{samples} samples are announced, but {stimuli[0].rows} stimuli, or another range of them"
            )
        # generations first: they say which steps there are
        for table in (GENERATIONS, *(name for name in TABLES if name != GENERATIONS), EXPERIMENTS):
            self._check_table(table)
        for table in (*TABLES, EXPERIMENTS):
            self._check_strays(table, {Path(part.path).name for part in self._manifest.parts_of(table)})
        for part in self._manifest.parts:
            if part.table not in (STIMULI, *TABLES, EXPERIMENTS):
                self.problems.append(f"{part.path!r}: there is no table {part.table!r}")
        self._check_failures()
        self._check_hashes()

    def _check_table(self, table: str) -> None:
        parts = self._manifest.parts_of(table)
        widths = {capture.width for capture in self._manifest.origin.captures if capture.table == table}
        if len(widths) > 1:
            self.problems.append(f"{table}: its captures have different widths: {sorted(widths)}")
        wanted = parts or widths or (table == ATTENTION and self._manifest.origin.attention)
        if self._stimuli and wanted:
            self.problems += tiling_problems(table, parts, self._manifest)
        for part in parts:
            self._check_part(part)
        if table == GENERATIONS and not self.problems:
            self._continuations = Continuations.of(self._generated, self._manifest.samples)

    def _check_strays(self, table: str, known: set[str]) -> None:
        folder = self._dir / table
        if folder.is_symlink() or not folder.is_dir():
            return
        for path in sorted(folder.iterdir()):
            if path.name not in known:
                self.problems.append(
                    f"{table}/{path.name}: not in the manifest; readers take every file here for a part: remove it"
                )

    def _check_part(self, part: PartFile) -> None:
        try:
            path = confined(self._dir, part)
        except VerifyError as error:
            self.problems.append(str(error))
            return
        found = list(_byte_problems(path, part))
        # Bytes that are not the recorded ones are not handed to a decoder.
        if not found:
            try:
                for problem in self._decode(path, part):
                    found.append(problem)
            except tables.DAMAGE as error:
                found.append(f"cannot be decoded: {error}")
        self.problems += [f"{part.path}: {problem}" for problem in dict.fromkeys(found)]

    def _decode(self, path: Path, part: PartFile) -> Iterator[str]:
        if part.table == EXPERIMENTS:
            yield from self._findings(path, part)
            return
        schema, metadata, count = tables.schema_and_count(path)
        if not schema.equals(self._schema(part, schema.names)):
            yield "its columns or their types are not those of this layout"
            return
        if count != part.rows:
            yield f"has {count} rows, the manifest says {part.rows}"
        if metadata.get("ember.input_hash", self._manifest.input_hash) != self._manifest.input_hash:
            yield "was written for other inputs: its ember.input_hash differs"
        hasher = ContentHasher(schema)
        yield from self._rows(path, part, hasher)
        self._content[part.path] = hasher.hexdigest()
        if self._content[part.path] != part.content_sha256:
            yield f"its decoded content hashes to {self._content[part.path]}, the manifest says {part.content_sha256}"

    def _rows(self, path: Path, part: PartFile, hasher: ContentHasher) -> Iterator[str]:
        if part.table == ATTENTION:
            yield from self._attention(path, part, hasher)
            return
        rows, samples = PartRows(), [np.empty(0, np.int32)]
        for group in tables.read_groups(path):
            hasher.update(group)
            samples.append(tables.column(group, "sample_index"))
            if self._stimuli and part.table != STIMULI:
                yield from group_problems(group, self._stimuli, self._continuations)
                if part.table != GENERATIONS:
                    rows.add(group)
            if part.table == GENERATIONS:
                yield from answer_problems(group, self._manifest.origin.generation)
                columns = (group[name].to_pylist() for name in ("sample_index", "token_ids"))
                self._generated |= dict(zip(*columns, strict=True))
        if part.table == STIMULI:
            yield from self._take_stimuli(path)
        elif self._stimuli is None or not 0 <= part.sample_start <= part.sample_end <= self._manifest.samples:
            # Without stimuli nothing bounds what the manifest announces.
            return
        elif part.table == GENERATIONS:
            yield from generation_problems(part, np.concatenate(samples), self._manifest)
        else:
            yield from capture_problems(part, rows, self._manifest, self._stimuli, self._continuations)

    def _attention(self, path: Path, part: PartFile, hasher: ContentHasher) -> Iterator[str]:
        keys: dict[tuple[str, int], list[NDArray[np.int64]]] = {}
        for group in tables.read_groups(path):
            hasher.update(group)
            if self._stimuli is not None:
                yield from attention_group_problems(group, self._stimuli)
                key, found = attention_keys(group)
                keys.setdefault(key, []).append(found)
        if self._stimuli is not None and 0 <= part.sample_start <= part.sample_end <= self._manifest.samples:
            expected = expected_samples(part, self._manifest)
            yield from attention_problems(keys, self._manifest.origin.attention, expected, self._stimuli)

    def _findings(self, path: Path, part: PartFile) -> Iterator[str]:
        found = list(read_findings(path))
        self._content[part.path] = part.sha256
        if len(found) != part.rows:
            yield f"has {len(found)} lines, the manifest says {part.rows}"
        if part.content_sha256 != part.sha256:
            yield "its content hash is not its checksum"
        if self._stimuli is not None:
            yield from finding_problems(part, found, self._stimuli.ids, self._manifest)

    def _take_stimuli(self, path: Path) -> Iterator[str]:
        table = tables.joined(list(tables.read_groups(path)), tables.stimuli_schema(()))
        if table.num_rows == self._manifest.samples:
            self._stimuli = Stimuli.of(table)
            yield from stimuli_problems(table, self._manifest)

    def _schema(self, part: PartFile, names: list[str]) -> Any:
        if part.table == STIMULI:
            return tables.stimuli_schema([n.removeprefix(LABEL_PREFIX) for n in names if n.startswith(LABEL_PREFIX)])
        if part.table == GENERATIONS:
            return tables.generations_schema()
        if part.table == ATTENTION:
            return tables.attention_schema()
        widths = {capture.width for capture in self._manifest.origin.captures if capture.table == part.table}
        return tables.activations_schema(max(widths, default=1), self._manifest.origin.dtype)

    def _check_failures(self) -> None:
        failed, manifest = self._manifest.failed_samples, self._manifest
        if list(failed) != sorted(set(failed)) or not all(0 <= sample < manifest.samples for sample in failed):
            self.problems.append(f"failed_samples are not ascending indices below {manifest.samples}")
        if (manifest.status == "partial") != bool(failed):
            self.problems.append(f"status is {manifest.status!r} with {len(failed)} failed samples")
        if failed and not (self._dir / "failures.jsonl").is_file():
            self.problems.append("failures.jsonl is absent: it says why samples failed")

    def _check_hashes(self) -> None:
        manifest = self._manifest
        if manifest.input_hash != manifest.inputs.input_hash:
            self.problems.append("input_hash is not the hash of the inputs that the manifest lists")
        found = [
            replace(part, content_sha256=self._content.get(part.path, part.content_sha256)) for part in manifest.parts
        ]
        if manifest.semantic_hash != semantic_hash(manifest.input_hash, found, manifest.failed_samples):
            self.problems.append("semantic_hash is not the hash of the inputs and of the content of all parts")


def _byte_problems(path: Path, part: PartFile) -> Iterator[str]:
    if not path.is_file():
        yield "is absent; run the same command again to compute it"
    elif (size := path.stat().st_size) != part.bytes:
        yield f"has {size} bytes, the manifest says {part.bytes}; delete it and run the same command again"
    elif (found := placing.sha256_file(path)) != part.sha256:
        yield f"its sha256 is {found}, the manifest says {part.sha256}; delete it and run the same command again"
