"""What `ember pipeline plan` shows: numbers, what deserves a look, and the first prompts as the model sees them."""

from dataclasses import asdict
from typing import Any, Final

from pipelines.canonical import plain
from pipelines.crew import Crew, plan_crew
from pipelines.duration import estimate_duration, in_words
from pipelines.errors import RunError
from pipelines.estimates import check_disk, size, table_bytes
from pipelines.hook_report import hooks_lines, hooks_record
from pipelines.plan import Plan, PlannedSample

FIRST: Final = 3
"""Prompts that are shown."""


def plan_record(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data."""
    crew = plan_crew(plan, len(plan.units))
    tables = table_bytes(plan)
    lengths = [len(sample.tokens) for sample in plan.samples]
    return {
        "name": plan.config.name,
        "model": _model(plan),
        "stimuli": plan.stimuli_record,
        "prompts": len(plan.samples),
        "tokens_per_prompt": {"min": min(lengths), "max": max(lengths)},
        "max_tokens": plan.max_tokens,
        "rows": plan.rows,
        "rows_shared": plan.rows_shared,
        "rows_scored": plan.rows_scored,
        "scores": {
            "texts": len(plan.scores.merged),
            "merged": int(plan.scores.merged.sum()),
            "top_k": plan.top_k,
        },
        "sampling": asdict(plan.choosing) if plan.choosing.samples else None,
        "units": len(plan.units),
        "unit_rows": plan.unit_rows,
        **hooks_record(plan),
        "bytes": tables,
        "bytes_total": sum(tables.values()),
        "workers": _workers(plan, crew),
        "memory": {
            "per_worker": crew.need.total,
            "limit_per_worker": crew.limit,
            "mapped_once": sum(part.size for part in plan.source.file.parts),
            "decoded": plan.source.file.decoded_bytes,
            "weights": "resident" if crew.keeps_weights(plan.source.file.decoded_bytes) else "streamed",
            "available": crew.resources.memory,
        },
        "time": plain(estimate_duration(plan, crew.workers)),
        "notes": [*plan.notes, *_limits(plan, crew, sum(tables.values()))],
        "first": [_shown(plan, sample) for sample in plan.samples[:FIRST]],
    }


def plan_lines(told: dict[str, Any]) -> list[str]:
    """Say in words what `plan_record` gave."""
    return [
        _head_line(told),
        *_numbers(told),
        *_costs(told),
        *(f"note      {note}" for note in told["notes"]),
        *(line for sample in told["first"] for line in _sample_lines(sample)),
    ]


def _model(plan: Plan) -> dict[str, Any]:
    card = plan.source.card
    return {
        "path": str(plan.source.path),
        "architecture": card.architecture,
        "n_layers": card.n_layers,
        "hidden_size": card.hidden_size,
        "context_length": card.context_length,
    }


KEPT: Final = {
    "resident": "decoded once in each worker and kept beside that",
    "streamed": "decoded layer by layer for every unit",
}


def _workers(plan: Plan, crew: Crew) -> dict[str, Any]:
    return {
        "count": crew.workers,
        "decided_by": crew.decided_by,
        "blas_threads": plan.config.engine.blas_threads,
        "cpus": crew.resources.cpus,
        "cpus_by": crew.resources.cpu_source,
    }


def _head_line(told: dict[str, Any]) -> str:
    lengths = told["tokens_per_prompt"]
    sampling = told["sampling"]
    how = f" (temperature {sampling['temperature']}, seed {sampling['seed']})" if sampling else ""
    generate = f", {told['max_tokens']} tokens generated after each{how}" if told["max_tokens"] else ""
    return f"{told['name']}: {told['prompts']} prompts of {lengths['min']} to {lengths['max']} tokens{generate}"


def _numbers(told: dict[str, Any]) -> list[str]:
    model, saved = told["model"], told["rows"] / told["rows_shared"]
    shape = f"{model['n_layers']} layers of {model['hidden_size']}, context {model['context_length']}"
    return [
        f"model     {model['path']} ({model['architecture']}, {shape})",
        *_selection(told["stimuli"]),
        f"rows      {told['rows']:,} token rows, {told['rows_shared']:,} after sharing prefixes ({saved:.1f}x)",
        *_scores(told),
        f"units     {told['units']} of at most {told['unit_rows']:,} rows",
        *hooks_lines(told),
    ]


def _selection(record: dict[str, Any]) -> list[str]:
    """Say what was left out or changed on the way to the prompts; nothing where nothing was."""
    steps = [f"{step['after']:,} after {step['step']}" for step in record.get("steps", ())[1:]]
    changed = [f"{count:,} changed by {name}" for name, count in record.get("normalize", {}).items()]
    read = [f"{record['steps'][0]['after']:,} read"] if steps or changed else []
    return [f"stimuli   {', '.join([*read, *steps, *changed])}"] if read else []


def _scores(told: dict[str, Any]) -> list[str]:
    asked, more = told["scores"], told["rows_scored"]
    lines = [f"scores    {asked['texts']:,} texts, {more:,} more token rows, {asked['merged']:,} merged"]
    first = [f"top       the {asked['top_k']} likeliest first tokens of each prompt"]
    return lines * bool(asked["texts"]) + first * bool(asked["top_k"])


def _costs(told: dict[str, Any]) -> list[str]:
    workers, memory = told["workers"], told["memory"]
    tables = ", ".join(f"{name} {size(n)}" for name, n in told["bytes"].items())
    each = f"{workers['blas_threads']} BLAS thread{'s' * (workers['blas_threads'] > 1)} each"
    private = f"about {size(memory['per_worker'])} private a worker (limit {size(memory['limit_per_worker'])})"
    return [
        f"disk      up to {size(told['bytes_total'])}: {tables}",
        f"workers   {workers['count']} (by {workers['decided_by']}), {each}; "
        f"{workers['cpus']} usable processors (by {workers['cpus_by']})",
        f"memory    {private}; the model's {size(memory['mapped_once'])} are mapped once for all",
        f"weights   {memory['weights']}: {size(memory['decoded'])} of float32, {KEPT[memory['weights']]}",
        f"time      about {in_words(told['time']['seconds'])} on this machine, if it does nothing else",
    ]


def _limits(plan: Plan, crew: Crew, disk: int) -> list[str]:
    notes = []
    if plan.config.output.path.is_file():
        notes.append(f"the run would be refused: output.dir {plan.config.output.path} is a file")
    if crew.need.total > crew.limit:
        notes.append(
            f"a worker needs about {size(crew.need.total)}, its limit is {size(crew.limit)}: "
            "lower engine.unit_rows, capture less, or raise run.memory_per_worker"
        )
    try:
        check_disk(plan.config.output.path, disk)
    except RunError as error:
        notes.append(f"the run would be refused: {error}")
    return notes


def _shown(plan: Plan, sample: PlannedSample) -> dict[str, Any]:
    last = int(sample.tokens[-1])
    return {
        "sample_index": sample.sample_index,
        "id": sample.stimulus.id,
        "prompt": sample.stimulus.prompt,
        "token_ids": sample.tokens.tolist(),
        "last_token": plan.source.tokenizer.decode([last]),
        "last_token_id": last,
    }


def _sample_lines(sample: dict[str, Any]) -> list[str]:
    ids = sample["token_ids"]
    shown = " ".join(map(str, ids[:24])) + (f" … ({len(ids)} tokens)" if len(ids) > 24 else "")
    return [
        f"sample {sample['sample_index']}  {sample['id']}",
        f"          prompt {sample['prompt']!r}",
        f"          ids    {shown}",
        f"          last   {sample['last_token']!r} ({sample['last_token_id']})",
    ]
