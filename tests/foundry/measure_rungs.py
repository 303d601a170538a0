"""Measure what the recorded goldens show, on both routes, as records of `ember validate`.

    python -m tests.foundry.measure_rungs OUT_DIR && python -m ember.validation.page OUT_DIR/*.json

Takes the tiny models of `cases` and `families_cases`, and the goldens beside the repository if they are there. Records
that OUT_DIR has already are passed over.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import ember
from ember.validation import report
from ember.validation.compare import compare
from ember.validation.recording import Recording, read_recording
from tests.foundry.cases import CONTEXT, TINY_CASES
from tests.foundry.families import tiny_family
from tests.foundry.families_cases import FAMILY_CASES
from tests.foundry.tiny import tiny_llama

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "ember" / "goldens" / "recorded"
SHARED = ROOT.parent / "shared" / "goldens"
SHARED_REFERENCE = {"name": "llama.cpp", "version": "llama-cpp-python 0.3.36, exact GELU"}


def cases(folder: Path) -> Iterator[tuple[str, Path, Recording]]:
    """Make every model, and give it with its name and its recording."""
    for name, arguments in TINY_CASES.items():
        path = tiny_llama(folder / f"{name}.gguf", context=CONTEXT, **arguments)
        yield f"foundry {name}", path, _named(read_recording(RECORDED / f"{name}.npz"))
    for name, case in FAMILY_CASES.items():
        path = tiny_family(folder / f"family-{name}.gguf", case.tiny, metadata=case.metadata)
        yield f"foundry {name}", path, _named(read_recording(RECORDED / f"family-{name}.npz"))
    for path in sorted(SHARED.glob("*.gguf")):
        recording = read_recording(path.with_suffix(".npz"))
        yield f"golden {path.stem}", path, replace(recording, about=SHARED_REFERENCE)


def _named(recording: Recording) -> Recording:
    """Take the reference's name and version out of the sentence that the foundry's recordings have."""
    told = str(recording.about["recorded_with"])
    if told.startswith("transformers"):
        about = {
            "name": "transformers",
            "version": told.split(";")[0].removeprefix("transformers "),
            "angles": "float64",
        }
    else:
        about = {"name": "llama.cpp", "version": told.split(",")[0]}
    return replace(recording, about=about)


def main() -> None:
    (folder,) = sys.argv[1:] or sys.exit(__doc__)
    failed = []
    with tempfile.TemporaryDirectory() as made:
        for name, path, recording in cases(Path(made)):
            for route in ("reference", "fast"):
                target = Path(folder) / f"{name.replace(' ', '-')}-{route}.json"
                if target.exists():
                    continue
                with ember.open(path, route=route, threads=1) as model:
                    found = compare(model, recording)
                    record = report.make_record(model, recording, found, named=name)
                record["model"]["name"] = name
                if found.agrees:
                    target.write_text(json.dumps(record, ensure_ascii=False))
                else:
                    failed.append(f"{name} {route}: {'; '.join(found.problems()[:3])}")
    sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
