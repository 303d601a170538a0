"""From a YAML file to one RunConfig, or to several for a sweep over models.

The version of the format is checked first, since every other message would mislead in a file of another one. Then all
problems of the file are reported at once.
"""

from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import ValidationError

from pipelines.config.messages import describe
from pipelines.config.models import SCHEMA, RunConfig
from pipelines.errors import ConfigError
from pipelines.settings import closest, show
from pipelines.yaml_core import Document, Problem, load_yaml

BUILTIN: Final = "builtin:"


def load_config(path: str | Path) -> RunConfig:
    """Read the one run that a config file describes.

    Raises ConfigError listing every problem, or when the file is a sweep (see `load_configs`).
    """
    configs = load_configs(path)
    if len(configs) > 1:
        raise ConfigError(f"{path}: `models` describes {len(configs)} runs, expected one; choose one with `model`")
    return configs[0]


def load_configs(path: str | Path) -> list[RunConfig]:
    """Read all runs of a config file: one for `model`, one for each entry of `models`.

    Paths of inputs become absolute, from the config's folder; `output.dir` stays as written, from the working
    directory, with the model's name added in a sweep. Raises ConfigError listing every problem.
    """
    path = Path(path)
    document = load_yaml(path)
    _check_schema(document)
    base = path.resolve().parent
    problems = [*document.problems]
    if "models" in document.value:
        configs = _sweep(document, base, problems)
    else:
        configs = [c for c in [_validated(document, document.value, base, problems)] if c]
    if problems:
        raise document.report(problems)
    for config in configs:
        config._source = path
    return configs


def _check_schema(document: Document) -> None:
    if not isinstance(document.value, dict):
        raise document.report([Problem(1, f"expected a mapping that begins with `schema: {SCHEMA}`")])
    if "schema" not in document.value:
        near = [key for key in document.value if closest(key, ["schema"])]
        hint = f" (is {near[0]!r} a slip?)" if near else ""
        raise document.report([Problem(1, f"schema: missing; write `schema: {SCHEMA}` first{hint}")])
    found = document.value["schema"]
    if found != SCHEMA:
        said = f"schema: found {show(found)}, expected {SCHEMA}, the only version this Ember reads"
        raise document.report([Problem(document.mark(("schema",)).line, said)])


def _validated(document: Document, value: dict[str, Any], base: Path, problems: list[Problem]) -> RunConfig | None:
    try:
        return RunConfig.model_validate(value, context={"base": base})
    except ValidationError as error:
        problems += describe(error, document, RunConfig)
    return None


def _sweep(document: Document, base: Path, problems: list[Problem]) -> list[RunConfig]:
    common = {key: value for key, value in document.value.items() if key != "models"}
    listed = document.value["models"]
    line = document.mark(("models",)).line
    if "model" in common:
        problems.append(Problem(line, "models: found beside `model`; keep one of the two"))
        return []
    if not isinstance(listed, list) or not listed:
        said = f"models: found {show(listed)}, expected a list of models, each a path or {{path: …, sha256: …}}"
        problems.append(Problem(line, said))
        return []
    configs = [_swept(document, common, i, base, problems) for i in range(len(listed))]
    done = [config for config in configs if config]
    dirs = [config.output.dir for config in done]
    for twice in sorted({d for d in dirs if dirs.count(d) > 1}):
        problems.append(Problem(line, f"models: two of them would write {twice!r}; their file names must differ"))
    return done


def _swept(document: Document, common: dict[str, Any], i: int, base: Path, problems: list[Problem]) -> RunConfig | None:
    given = document.value["models"][i]
    own = Document(document.file, marks={**document.marks}, key_marks={**document.key_marks})
    prefix: tuple[str | int, ...] = ("models", i)
    for marks in (own.marks, own.key_marks):
        marks.update({("model", *at[2:]): mark for at, mark in document.marks.items() if at[:2] == prefix})
    if isinstance(given, str):
        given = {"path": given}
    config = _validated(own, {**common, "model": given}, base, problems)
    if config is None:
        return None
    stem = _stem(config.model.path)
    output = config.output.model_copy(update={"dir": str(Path(config.output.dir) / stem)})
    return config.model_copy(update={"name": f"{config.name}-{stem}", "output": output})


def _stem(path: str) -> str:
    return path.removeprefix(BUILTIN) if path.startswith(BUILTIN) else PurePosixPath(path).stem
