"""A large sweep of probes beside the loop over scikit-learn's pipelines that a user would write.

    python -m tests.bench.probes sweep FOLDER [--stimuli 20000] [--layers 16] [--width 2048] [--workers 2]
    python -m tests.bench.probes compare [--stimuli 4000] [--width 512]
    python -m tests.bench.probes fits [--stimuli 20000] [--width 2048]

`sweep` writes a run by the product's own writers, probes one label of ten classes (random split, five folds, four
strengths, control task, code length, both baselines) and watches the memory of all processes. `compare` times one
matrix as a whole on both sides, one thread each, and compares predictions; `fits` times single training sets. Both tell
processor seconds, which other processes disturb least.
"""

import argparse
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from pipelines.manifest import CaptureRecord
from pipelines.probes import ProbeConfig, probe
from pipelines.probes.design import Design
from pipelines.probes.fitting import Task, cross_validate
from pipelines.probes.logistic import fit_logistic
from pipelines.probes.splits import Grouping, make_folds
from pipelines.stimuli.record import Stimulus
from tests.foundry import probe_run
from tests.foundry.probe_run import Word, write_probe_run

CLASSES = 10
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)


def states(codes: Any, width: int, layer: int) -> Any:
    """Correlated states as models have them (variances fall as 1/rank) with class means in 40 directions."""
    random = np.random.default_rng(layer)
    spectrum = (np.arange(1, width + 1) ** -0.5).astype(np.float32)
    mixing = np.linalg.qr(random.standard_normal((width, width)))[0].astype(np.float32)
    x = random.standard_normal((len(codes), width), np.float32) * spectrum
    means = random.standard_normal((CLASSES, 40)).astype(np.float32) * spectrum[20:60] * 0.25 * (layer % 8)
    x[:, 20:60] += means[codes]
    return x @ mixing


def sweep(folder: Path, stimuli: int, layers: int, width: int, workers: int) -> dict[str, Any]:
    """Write the run if it is not there, probe it, and tell time and peak memory."""
    codes = np.random.default_rng(0).integers(0, CLASSES, stimuli)
    if not (folder / "run").exists():
        probe_run.UNIT = 1000
        words = [
            Word({"class": f"c{codes[i]}"}, f"w {i:05d}", (1, 2 + i // 200, 300 + i % 200)) for i in range(stimuli)
        ]
        record = CaptureRecord("last", "after_layer", tuple(range(layers)), "last", width)

        def of_layer(_capture: str, layer: int, _stimuli: Sequence[Stimulus]) -> Any:
            return states(codes, width, layer)

        write_probe_run(folder / "run", words, of_layer, captures=[record], width=width)
    given = {"runs": (str(folder / "run"),), "splits": ["random"], "output": {"dir": str(folder / "probes")}}
    config = ProbeConfig.model_validate(given)
    with _Peak() as peak:
        started = time.monotonic()
        probe(
            config, workers=workers, say=lambda line: print(f"{time.monotonic() - started:7.1f} s  {line}", flush=True)
        )
        seconds = time.monotonic() - started
    return {"stimuli": stimuli, "layers": layers, "width": width, "workers": workers, "seconds": seconds} | peak.record


class _Peak:
    """The largest private memory of this process and all below it, sampled every 0.2 s."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.record: dict[str, float] = {"peak_gb": 0.0}

    def __enter__(self) -> "_Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            total = 0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                try:
                    total += process.memory_info().rss - process.memory_info().shared
                except psutil.Error:
                    continue
            self.record["peak_gb"] = max(self.record["peak_gb"], total / 1e9)


def compare(stimuli: int, width: int) -> dict[str, Any]:
    """One matrix from states to predictions, with the control task, on both sides."""
    x, task = _task(stimuli, width)
    folds = task.folds.assigned[0]
    with threadpool_limits(1):
        started = time.process_time()
        own, control = cross_validate(Design(x), task, "logistic", STRENGTHS)
        ours = time.process_time() - started
        started = time.process_time()
        predicted, remembered = np.empty(stimuli, np.int64), np.empty(stimuli, np.int64)
        for fold in range(5):
            test, training = folds == fold, folds != fold
            search = GridSearchCV(
                _pipeline(1.0), {"logisticregression__C": list(STRENGTHS)}, cv=PredefinedSplit(folds[training])
            )
            search.fit(x[training], task.codes[training])
            predicted[test] = search.predict(x[test])
            peer = _pipeline(search.best_params_["logisticregression__C"]).fit(x[training], task.control[training])
            remembered[test] = peer.predict(x[test])
        theirs = time.process_time() - started
    same = float(np.mean(own.predicted == predicted)), float(np.mean(control.predicted == remembered))
    return {"stimuli": stimuli, "width": width, "ours": ours, "theirs": theirs, "factor": theirs / ours, "same": same}


def fits(stimuli: int, width: int) -> dict[str, Any]:
    """One training set (three of five folds) at all strengths."""
    x, task = _task(stimuli, width)
    rows = task.folds.training_rows((frozenset([0, 1]),))
    with threadpool_limits(1):
        design = Design(x)
        started = time.process_time()
        assert design.basis is not None
        basis = time.process_time() - started
        started = time.process_time()
        fit_logistic(design.training(rows), [task.codes[rows]], CLASSES, STRENGTHS)
        ours = time.process_time() - started
        theirs = []
        for strength in STRENGTHS:
            started = time.process_time()
            _pipeline(strength).fit(x[rows], task.codes[rows])
            theirs.append(time.process_time() - started)
            print(f"C = {strength}: {theirs[-1]:.1f} s", flush=True)
    told = {"rows": len(rows), "width": width, "basis": basis, "ours": ours, "theirs": theirs}
    return told | {"factor": sum(theirs) / ours}


def _pipeline(strength: float) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))


def _task(stimuli: int, width: int) -> tuple[Any, Task]:
    random = np.random.default_rng(0)
    codes = random.integers(0, CLASSES, stimuli)
    prompts = Grouping("prompt", tuple(map(str, range(stimuli))), np.arange(stimuli))
    folds = make_folds(codes, list(map(str, range(CLASSES))), [prompts], prompts, count=5, seed=0)
    return states(codes, width, 7), Task(np.arange(stimuli), codes, random.permutation(codes), CLASSES, folds)


def main() -> None:
    """Run one of the measurements and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sweep", "compare", "fits"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--stimuli", type=int)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    small = given.what == "compare"
    stimuli, width = given.stimuli or (4000 if small else 20_000), given.width or (512 if small else 2048)
    if given.what == "sweep":
        print(json.dumps(sweep(given.folder, stimuli, given.layers, width, given.workers)))
    else:
        print(json.dumps({"compare": compare, "fits": fits}[given.what](stimuli, width)))


if __name__ == "__main__":
    main()
