"""Experiments by name: built-ins, a class of a module or file, or what an installed package offers.

An experiment is named by text on the command line and in configurations, and made once for every prompt, perhaps in
another process: what travels is the name with its options, and the class is found anew where it is used.
"""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ember.errors import InputError
from ember.hooks.contexts import ModelContext
from ember.hooks.experiment import Experiment, check_experiment, words_of

ENTRY_POINTS: Final = "ember.experiments"
BUILT_IN: Final[dict[str, tuple[str, str | None, str]]] = {
    # name: (module:class, the option that the short form NAME:TEXT sets, how the name is given)
    "activation_stats": ("ember.hooks.activation_stats:ActivationStats", None, "activation_stats"),
    "zero_layer_output": ("ember.hooks.zero_layer_output:ZeroLayerOutput", "spec", "zero_layer_output:3:attention"),
}


@dataclass(frozen=True, slots=True)
class ExperimentFactory:
    """Makes the experiments of a run, one instance a prompt. Travels between processes as its name and options."""

    spec: str
    """As given, with a file's path made absolute and a short form's text moved to `options`."""
    options: Mapping[str, Any]
    """Keyword arguments of the class."""
    name: str = ""
    """What the experiment calls itself."""
    mutates: bool = True
    """Whether the experiment may change values: captures beside it must then say `observe`."""
    source_sha256: str = ""
    """Of the file that defines the class; empty where there is none."""

    def __call__(self) -> Experiment:
        """Make a new instance.

        Raises InputError where the class cannot be found, has changed since it was loaded, or refuses its options.
        """
        found = _find(self.spec)
        if self.source_sha256 and _source_sha256(found) != self.source_sha256:
            raise InputError(
                f"experiment {self.spec!r}: {inspect.getsourcefile(found)} has changed since the run began; "
                "let it be until the run has ended, or begin anew"
            )
        try:
            return check_experiment(found(**self.options))
        except (Exception, SystemExit) as error:
            raise InputError(f"experiment {self.spec!r}: {found.__name__} cannot be made: {_told(error)}") from error

    def check(self, model: ModelContext) -> None:
        """Raise InputError, with the experiment's name and reason, where it cannot run on `model`."""
        experiment = self()
        try:
            experiment.check_model(model)
        except (Exception, SystemExit) as error:
            raise InputError(f"experiment {experiment.name!r} does not fit the model: {_told(error)}") from error


def load_experiment(spec: str, options: Mapping[str, Any] | None = None) -> ExperimentFactory:
    """Find an experiment and return what makes its instances; one is made and dropped, to see that it can be.

    `spec` is a built-in name, the short form `zero_layer_output:3:attention`, `module:Class`, `path/to/file.py:Class`,
    or the name of an entry point of the group `ember.experiments`. `options` are the class's keyword arguments. Raises
    InputError for what cannot be found or imported, is no Experiment, or does not take the options.
    """
    named, chosen = _split(spec, options or {})
    found = _find(named)
    _check_options(named, found, chosen)
    factory = ExperimentFactory(named, chosen)
    sample = factory()
    return replace(factory, name=sample.name, mutates=sample.mutates, source_sha256=_source_sha256(found))


def _split(spec: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Move the text of a short form to the options, and make a file's path absolute."""
    name, colon, text = spec.partition(":")
    if name not in BUILT_IN:
        where, _, attribute = spec.rpartition(":")
        return (f"{Path(where).absolute()}:{attribute}" if is_file(where) else spec), dict(options)
    _, option, example = BUILT_IN[name]
    if not colon:
        if option is not None and not options:
            raise InputError(f"experiment {spec!r}: the option {option!r} is missing; give it as in {example}")
        return name, dict(options)
    if option is None:
        raise InputError(f"experiment {spec!r}: {name} takes nothing after its name; give {example}")
    if option in options:
        raise InputError(f"experiment {spec!r}: the option {option!r} is given too; give one of them")
    return name, {**options, option: text}


def _find(spec: str) -> type[Experiment]:
    found = _object(spec)
    if not (isinstance(found, type) and issubclass(found, Experiment)):
        raise InputError(f"experiment {spec!r}: found {found!r}, expected a subclass of ember.hooks.Experiment")
    return found


def _object(spec: str) -> Any:
    if spec in BUILT_IN:
        spec = BUILT_IN[spec][0]
    if ":" not in spec:
        return _of_entry_point(spec)
    where, _, attribute = spec.rpartition(":")
    if not where or not attribute:
        raise InputError(f"experiment {spec!r}: expected module:Class or path/to/file.py:Class")
    module = _imported(spec, where)
    if not hasattr(module, attribute):
        offered = [name for name, one in vars(module).items() if isinstance(one, type) and issubclass(one, Experiment)]
        raise InputError(
            f"experiment {spec!r}: {where} has no {attribute!r}{_near(attribute, offered)}; "
            f"its experiments: {', '.join(sorted(set(offered) - {'Experiment'})) or 'none'}"
        )
    return getattr(module, attribute)


def _source_sha256(found: type[Experiment]) -> str:
    try:
        return hashlib.sha256(Path(inspect.getsourcefile(found) or "").read_bytes()).hexdigest()
    except (OSError, TypeError):  # made at a prompt, or in a compiled module
        return ""


def is_file(where: str) -> bool:
    """Whether what stands before the colon of a spec is a file, and not a module."""
    return where.endswith(".py") or "/" in where


def _imported(spec: str, where: str) -> ModuleType:
    try:
        return _file_module(Path(where)) if is_file(where) else importlib.import_module(where)
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        raise InputError(
            f"experiment {spec!r}: {where} cannot be imported: {_told(error)}; "
            "give an importable module, or the path of a file as in ./my_experiment.py:MyExperiment"
        ) from error


def _file_module(path: Path) -> ModuleType:
    """Import a file under a name made of its path and text, so that a changed file is another module."""
    text = path.read_bytes()
    name = f"ember_experiment_{hashlib.sha256(str(path).encode() + bytes(1) + text).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    source = importlib.util.spec_from_file_location(name, path)
    if source is None:
        raise ImportError("expected a file whose name ends in .py")
    module = importlib.util.module_from_spec(source)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        # the loader would go by the file's time and size, and take the code of the text before
        exec(compile(text, path, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _of_entry_point(name: str) -> Any:
    offered = _entry_points()
    if name not in offered:
        known = [*BUILT_IN, *sorted(offered)]
        raise InputError(
            f"experiment {name!r} is unknown{_near(name, known)}; known: {', '.join(known)}; "
            "or give module:Class or path/to/file.py:Class"
        )
    try:
        return offered[name].load()
    except (Exception, SystemExit) as error:
        where = offered[name].value
        raise InputError(
            f"experiment {name!r}: {where}, which an installed package offers, cannot be imported: {_told(error)}"
        ) from error


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _check_options(spec: str, found: type[Experiment], options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(found).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    accepted = [one.name for one in named]
    listed = f"{found.__name__} takes: {', '.join(accepted) or 'no options'}"
    for option in options:
        if option not in accepted:
            raise InputError(f"experiment {spec!r}: unknown option {option!r}{_near(str(option), accepted)}; {listed}")
    missing = [one.name for one in named if one.default is one.empty and one.name not in options]
    if missing:
        raise InputError(f"experiment {spec!r}: the option {missing[0]!r} is missing; {listed}")


def _near(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {words_of(error)}"
