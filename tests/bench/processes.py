"""Rows about whole processes: cold starts, one worker and more, memory, and what grows with the number of prompts."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.bench import memory
from tests.bench.rounds import ROOT, Contender, measure
from tests.bench.setting import Ratio, Row, Setting, as_line, ratio
from tests.bench.states import FACE, TUNED, encoded, tuned_key
from tests.bench.worker import UNSET
from tests.bench.workload import texts

POLL_SECONDS = 0.05


def cold_row(setting: Setting) -> Row:
    """From nothing to a file, in one process each; the model's file is in the page cache."""
    requests = _cold_requests(setting)
    if "transformers" in requests:
        _script(setting.reference, "prepare", requests["transformers"])
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in requests}
    for _ in range(setting.rounds):
        for name, path in requests.items():
            python = sys.executable if name == "ember" else setting.reference
            taken[name].append(_script(python, name, path))
            print(f"{name}: {taken[name][-1][0]:.2f} s", file=sys.stderr)
    _check_states({name: json.loads(path.read_text(encoding="utf-8"))["out"] for name, path in requests.items()})
    lines = {name: _line(times, setting.prompts, "prompts") for name, times in taken.items()}
    title = (
        f"A whole process: open, tokenise, every layer's last token of {setting.prompts} templated prompts, write, "
        f"end; {setting.model.name} (transformers is given token ids and the weights as safetensors)"
    )
    others = [name for name in lines if name != "ember"]
    ratios = [ratio(f"ember / {name}", lines["ember"], lines[name], 1.0, cpu=setting.threads == 1) for name in others]
    return Row("cold", title, lines, ratios)


def _cold_requests(setting: Setting) -> dict[str, Path]:
    """Write each contender's request."""
    prompts = texts(setting.prompts)
    names = ["ember", *(["llama.cpp", "transformers"] if setting.reference else [])]
    llama, face = (setting.tuned.get(tuned_key(setting, "short", label)) for label in (TUNED, FACE))
    common = {
        "model": str(setting.model.resolve()),
        "texts": prompts,
        "threads": setting.threads,
        "ids": encoded(setting, prompts),
        "safetensors": str(setting.folder / "safetensors"),
        "variant": llama or {"batch": 256, "flash": True},
        "batch": (face or {"batch": 50})["batch"],
    }
    found = {}
    for name in names:
        found[name] = setting.folder / f"cold-{name}.json"
        request = common | {"out": str(setting.folder / f"cold-{name}.npy")}
        found[name].write_text(json.dumps(request), encoding="utf-8")
    return found


def _script(python: str | None, name: str, request: Path) -> tuple[float, float]:
    """Run a script to its end; returns seconds and processor seconds."""
    assert python is not None
    return _run([python, "-m", "tests.bench.cold", name, str(request)])


def _run(command: Sequence[str], cwd: Path = ROOT) -> tuple[float, float]:
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=cwd, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, words = process.communicate()
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {words.decode()[-2000:]}")
    return seconds, _children_seconds()


_spent = 0.0


def _children_seconds() -> float:
    """Processor seconds of children since the last call: those that have ended."""
    global _spent
    times = os.times()
    now = times.children_user + times.children_system
    taken, _spent = now - _spent, now
    return taken


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in UNSET}


def _check_states(outs: dict[str, str]) -> None:
    states = {name: np.load(path) for name, path in outs.items()}
    for name, theirs in states.items():
        ours = states["ember"]
        layers = slice(None, -1)  # transformers norms the last one
        products = (ours * theirs)[:, layers].sum(-1)
        norms = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
        least = float((products / norms[:, layers]).min())
        if least < 0.97:
            raise RuntimeError(f"{name} wrote something else than Ember: cosine {least}")


def _line(times: Sequence[tuple[float, float]], work: float, unit: str, **about: Any) -> dict[str, Any]:
    seconds, cpu = [one[0] for one in times], [one[1] for one in times]
    median = statistics.median(seconds)
    return {
        "seconds": seconds,
        "median_seconds": median,
        "cpu_seconds": cpu,
        "median_cpu_seconds": statistics.median(cpu),
        "work": work,
        "unit": unit,
        "per_second": work / median,
        "about": about,
    }


def workers_row(setting: Setting) -> Row:
    """The pipeline with one worker and with as many as there are threads, one BLAS thread each."""
    stimuli = setting.folder / "crowd.jsonl"
    sentences = texts(200)
    prompts = [f"{n}. {sentences[n % 200]}" for n in range(setting.crowd)]
    _write_prompts(stimuli, prompts)
    counts = (1, setting.threads)
    whole: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    units: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    for number in range(setting.rounds):
        for count in counts:
            directory = setting.folder / f"crowd-{count}-{number}"
            taken = _pipeline(setting.model, stimuli, directory, "all", count)
            timing = _timing(directory)
            whole[count].append(taken)
            units[count].append((timing["seconds_of_units"], taken[1]))
            print(f"{count} workers: {taken[0]:.1f} s, units {timing['seconds_of_units']:.1f} s", file=sys.stderr)
    lines = {}
    for count in counts:
        label = f"{count} worker{'s' * (count > 1)}"
        lines[f"{label}, units"] = _line(units[count], setting.crowd, "prompts")
        lines[f"{label}, whole command"] = _line(whole[count], setting.crowd, "prompts")
    many = f"{setting.threads} workers"
    lines |= (alone := _products_alone(setting))
    ratios = [
        ratio(f"{many} / 1 worker, {what}", lines[f"{many}, {what}"], lines[f"1 worker, {what}"], wanted, cpu=False)
        for what, wanted in (("units", 1.8), ("whole command", None))
    ]
    one, several = alone.values()
    ratios.append(ratio("what the machine gives: matrix products alone", several, one, cpu=False))
    return Row(
        "workers", f"`ember pipeline run` of {setting.crowd} prompts, every layer's last token, {setting.model.name}",
        lines, ratios,
    )  # fmt: skip


def _products_alone(setting: Setting) -> dict[str, dict[str, Any]]:
    """The matrix products of the templated prompts in one process, and in several with their share of them."""
    prompts = encoded(setting, texts(setting.prompts))
    request = {"peer": "ceiling", "model": str(setting.model.resolve()), "threads": 1, "shared": False}
    contenders = [
        Contender(f"matrix products alone, {count} process{'es' * (count > 1)}", sys.executable, given, count)
        for count in (1, setting.threads)
        for given in [request | {"prompts": prompts}]
    ]
    tokens = sum(map(len, prompts))
    return {label: as_line(timing, tokens) for label, timing in measure(contenders, setting.rounds).items()}


def _write_prompts(path: Path, prompts: Sequence[str]) -> None:
    lines = (json.dumps({"prompt": prompt}, ensure_ascii=False) for prompt in prompts)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _pipeline(model: str | Path, stimuli: Path, directory: Path, layers: Any, workers: int) -> tuple[float, float]:
    """Run a config to its end; returns seconds and processor seconds."""
    return _run(_command(model, stimuli, directory, layers, workers))


def _command(model: str | Path, stimuli: Path, directory: Path, layers: Any, workers: int) -> list[str]:
    named = str(model) if str(model).startswith("builtin:") else str(Path(model).resolve())
    config = {
        "schema": "ember.pipeline/v1",
        "name": directory.name,
        "model": {"path": named},
        "stimuli": {"file": str(stimuli)},
        "hooks": {"capture": [{"site": "after_layer", "layers": layers, "position": "last"}]},
        "guard": {"allow_chance": True},  # some of these prompts are not what the built-in model was taught
        "output": {"dir": str(directory)},
    }
    path = directory.with_suffix(".yaml")
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return [sys.executable, "-m", "ember", "pipeline", "run", str(path), "--workers", str(workers)]


def _timing(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / ".ember/runtime.json").read_text(encoding="utf-8"))["sessions"][-1]
    return found


def growth_row(setting: Setting) -> Row:
    """Short prompts on the built-in model: time for each, and the memory of the command and of its largest worker."""
    lines = {}
    for count in setting.sizes:
        stimuli, directory = setting.folder / f"short-{count}.jsonl", setting.folder / f"short-{count}"
        _write_prompts(stimuli, [f"الجذر ك ت ب رقم {n}:" for n in range(count)])
        seconds, highest = _watched(_command("builtin:sarf-nano", stimuli, directory, [-1], setting.threads))
        timing = _timing(directory)
        line = _line([(seconds, _children_seconds())], count, "prompts", units=timing["units"])
        line |= {"seconds_of_units": timing["seconds_of_units"], "ms_per_prompt": seconds * 1000 / count}
        lines[f"{count:,} prompts"] = line | {f"private_mb_{who}": round(b / 1e6) for who, b in highest.items()}
        print(f"{count}: {seconds:.1f} s, {highest}", file=sys.stderr)
    ratios = _growth(list(lines.values())) if len(lines) > 2 else []
    title = f"`ember pipeline run` of short prompts on the built-in model, {setting.threads} workers, one run each"
    return Row("growth", title, lines, ratios)


def _growth(lines: Sequence[dict[str, Any]]) -> list[Ratio]:
    """Compare the last three sizes: what a further prompt takes, early and late, and how memory grows."""

    def further(key: str, at: int) -> float:
        return float((lines[at][key] - lines[at - 1][key]) / (lines[at]["work"] - lines[at - 1]["work"]))

    last = len(lines) - 1
    seconds, used = (further(key, last) / further(key, last - 1) for key in ("median_seconds", "median_cpu_seconds"))
    memory = [Ratio(f"memory of {who}, last / second last", _over(lines, key), 1.0) for who, key in MEMORIES]
    return [Ratio("time for each further prompt, late / early", seconds, 1.0, used), *memory]


MEMORIES = (("the command", "private_mb_command"), ("the largest worker", "private_mb_worker"))


def _over(lines: Sequence[dict[str, Any]], key: str) -> float:
    return float(lines[-1][key] / lines[-2][key])


def _watched(command: Sequence[str]) -> tuple[float, dict[str, int]]:
    """Run a command; returns its seconds and the highest private memory of it and of its largest descendant."""
    started = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        highest = {"command": 0, "worker": 0}
        top = psutil.Process(run.pid)
        while run.poll() is None:
            highest["command"] = max(highest["command"], _private(run.pid))
            children = [_private(child.pid) for child in _descendants(top)]
            highest["worker"] = max([highest["worker"], *children])
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - started
        if run.returncode:
            assert run.stderr is not None
            raise RuntimeError(f"{' '.join(command)} ended with {run.returncode}: {run.stderr.read().decode()[-2000:]}")
    return seconds, highest


def _descendants(top: psutil.Process) -> list[psutil.Process]:
    try:
        return top.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _private(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem") if name in fields)


def memory_row(setting: Setting) -> Row:
    """Private memory of one process that runs the shape of a 1B model, weights streamed."""
    found = memory.measure(setting.big_model())
    line = _line([(found["seconds"], found["seconds"])], found["rows"], "tokens")
    line |= {name: value for name, value in found.items() if name.startswith("private_mb_")}
    highest = found["private_mb_highest"] / 1000
    title = f"One unit of {found['rows']} rows, every layer captured, weights streamed, one thread; a 1B shape in Q8_0"
    return Row("memory", title, {"Ember": line}, [Ratio("private memory in GB, at most", highest, 1.0)])
