"""Experiments by name: what is found, what is refused and how, and what travels to another process."""

import pickle
import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ember.errors import InputError
from ember.hooks import Experiment, ModelContext, ModelFamily, loading
from ember.hooks.activation_stats import ActivationStats
from ember.hooks.loading import BUILT_IN, load_experiment
from ember.hooks.zero_layer_output import ZeroLayerOutput

SOURCE = """
    from dataclasses import dataclass
    from ember.hooks import Experiment

    class Plain(Experiment):
        name = "plain"
        mutates = False

    class Halved(Experiment):
        def __init__(self, layer: int, *, factor: float = 0.5) -> None:
            self.name = f"halved-{layer}"
            self.layer, self.factor = layer, factor

    @dataclass
    class Record(Experiment):
        every: int = 1
        name = "record"

    class Anything(Experiment):
        name = "anything"
        def __init__(self, **options) -> None:
            self.options = options

    class Picky(Experiment):
        name = "picky"
        def __init__(self, layer: int) -> None:
            raise ValueError(f"layer {layer} is not to my taste")

    class Nameless(Experiment):
        pass

    class Other:
        pass

    def maker() -> Experiment:
        return Plain()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(SOURCE))
    return path


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_of_the_table_imports_and_calls_itself_so(name: str) -> None:
    found = load_experiment(f"{name}:0:mlp" if name == "zero_layer_output" else name)
    assert found.name == name == found().name


def test_built_ins_say_whether_they_change_values() -> None:
    assert load_experiment("activation_stats").mutates is False
    assert load_experiment("zero_layer_output:1:layer").mutates is True


def test_the_short_form_sets_the_option() -> None:
    short, long = load_experiment("zero_layer_output:-1:mlp"), load_experiment("zero_layer_output", {"spec": "-1:mlp"})
    assert short == long
    assert isinstance(short(), ZeroLayerOutput)


def test_each_call_makes_another_instance() -> None:
    factory = load_experiment("activation_stats")
    assert isinstance(factory(), ActivationStats)
    assert factory() is not factory()


def test_a_class_of_a_module() -> None:
    factory = load_experiment("ember.hooks.activation_stats:ActivationStats")
    assert type(factory()) is ActivationStats


def test_a_class_of_a_file_with_options(file: Path) -> None:
    factory = load_experiment(f"{file}:Halved", {"layer": 2, "factor": 0.25})
    made = factory()
    assert (made.name, made.layer, made.factor, factory.mutates) == ("halved-2", 2, 0.25, True)
    assert factory.name == "halved-2"
    plain = load_experiment(f"{file}:Plain")
    assert (plain.name, plain.mutates, type(plain()).__mro__[1]) == ("plain", False, Experiment)
    assert load_experiment(f"{file}:Record", {"every": 3})().every == 3
    assert load_experiment(f"{file}:Anything", {"a": 1, "b": 2})().options == {"a": 1, "b": 2}


def test_a_relative_file_stays_found_from_elsewhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    factory = load_experiment("mine.py:Plain")
    monkeypatch.chdir("/")
    assert factory().name == "plain"


def test_a_factory_travels_to_another_process(file: Path) -> None:
    factory = load_experiment(f"{file}:Halved", {"layer": 7})
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)().name)"
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(factory), capture_output=True, check=True, timeout=60
    )
    assert done.stdout.strip() == b"halved-7"
    assert pickle.loads(pickle.dumps(factory)) == factory


def test_a_file_that_changes_is_another_class_and_refused_in_a_run_that_began_before(file: Path) -> None:
    before = load_experiment(f"{file}:Plain")
    before()
    file.write_text(file.read_text().replace('"plain"', '"level"'))  # of the same length, in the same second
    assert load_experiment(f"{file}:Plain").name == "level"
    assert load_experiment(f"{file}:Plain").source_sha256 != before.source_sha256
    with pytest.raises(InputError, match=r"mine\.py has changed since the run began"):
        before()


def test_an_entry_point_of_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [
        EntryPoint("stats-of-mine", "ember.hooks.activation_stats:ActivationStats", loading.ENTRY_POINTS),
        EntryPoint("gone", "no_such_package:Thing", loading.ENTRY_POINTS),
        EntryPoint("text", "ember.hooks.loading:ENTRY_POINTS", loading.ENTRY_POINTS),
    ]
    monkeypatch.setattr(loading, "entry_points", lambda *, group: offered if group == "ember.experiments" else [])
    assert type(load_experiment("stats-of-mine")()) is ActivationStats
    with pytest.raises(InputError, match=r"'gone': no_such_package:Thing, .* cannot be imported: ModuleNotFoundError"):
        load_experiment("gone")
    with pytest.raises(InputError, match=r"'text': found 'ember\.experiments', expected a subclass"):
        load_experiment("text")
    with pytest.raises(InputError, match=r"known: activation_stats, zero_layer_output, gone, stats-of-mine, text"):
        load_experiment("nothing")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("activation_stat", r"unknown \(did you mean 'activation_stats'\?\); known: activation_stats, zero_layer"),
        ("", r"'' is unknown; known: activation_stats, zero_layer_output; or give module:Class or path"),
        (":Thing", r"expected module:Class or path/to/file\.py:Class"),
        ("ember.hooks:", r"expected module:Class or path/to/file\.py:Class"),
        ("no_such_module:Thing", r"no_such_module cannot be imported: ModuleNotFoundError: .*path of a file as in"),
        ("../bad name:Thing", r"cannot be imported: "),
        ("no/such/file.py:Thing", r"no/such/file\.py cannot be imported: FileNotFoundError"),
        ("json:JSONEncoder", r"found <class 'json\.encoder\.JSONEncoder'>, expected a subclass of ember\.hooks\.Exp"),
        ("json:dumps", r"found <function dumps .*, expected a subclass of ember\.hooks\.Experiment"),
        (
            "ember.hooks.activation_stats:ActivationStat",
            r"has no 'ActivationStat' \(did you mean 'ActivationStats'\?\); its experiments: ActivationStats",
        ),
        ("json:Thing", r"json has no 'Thing'; its experiments: none"),
        ("activation_stats:1", r"activation_stats takes nothing after its name"),
        ("zero_layer_output", r"the option 'spec' is missing; give it as in zero_layer_output:3:attention"),
        ("zero_layer_output:", r"found '', expected LAYER:OUTPUT with OUTPUT one of attention, mlp, layer"),
        ("zero_layer_output:3:heads", r"found '3:heads', expected LAYER:OUTPUT .* for example 3:attention"),
        ("zero_layer_output:x:mlp", r"found 'x:mlp', expected LAYER:OUTPUT"),
        ("ember.hooks:Experiment", r"Experiment cannot be made: Experiment\.name: found None, expected a text"),
    ],
)
def test_what_cannot_be_loaded_is_one_clear_error(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_experiment(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Halved", {"layr": 1}, r"unknown option 'layr' \(did you mean 'layer'\?\); Halved takes: layer, factor"),
        ("Halved", {"factor": 1}, r"the option 'layer' is missing; Halved takes: layer, factor"),
        ("Plain", {"layer": 1}, r"unknown option 'layer'; Plain takes: no options"),
        ("Plain", {3: 1}, r"unknown option 3; Plain takes: no options"),
        ("Anything", {3: 1}, r"Anything cannot be made: TypeError: keywords must be strings"),
        ("Picky", {"layer": 3}, r"Picky cannot be made: ValueError: layer 3 is not to my taste"),
        ("Nameless", {}, r"Nameless cannot be made: Nameless\.name: found None"),
        ("Other", {}, r"found <class '.*Other'>, expected a subclass of ember\.hooks\.Experiment"),
        ("maker", {}, r"found <function maker .*>, expected a subclass of ember\.hooks\.Experiment"),
        ("Halve", {}, r"has no 'Halve' \(did you mean 'Halved'\?\); its experiments: Anything, Halved, Nameless, P"),
    ],
)
def test_what_a_class_of_a_file_does_not_take(file: Path, name: str, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_experiment(f"{file}:{name}", options)


def test_an_option_of_a_built_in_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown option 'layer'; ZeroLayerOutput takes: spec"):
        load_experiment("zero_layer_output", {"layer": 3})


def test_a_short_form_and_its_option_together_are_refused() -> None:
    with pytest.raises(InputError, match="'spec' is given too"):
        load_experiment("zero_layer_output:1:mlp", {"spec": "2:mlp"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class:", "SyntaxError: invalid syntax"),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("x = '\0'", "SyntaxError|ValueError"),
    ],
)
def test_a_file_that_fails_when_imported_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    for _ in range(2):  # a failed import leaves nothing behind
        with pytest.raises(InputError, match=rf"broken\.py cannot be imported: ({message})"):
            load_experiment(f"{path}:Thing")
    assert not [name for name in sys.modules if getattr(sys.modules[name], "__file__", None) == str(path)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def __init__(self): raise SystemExit(0)", "Thing cannot be made: SystemExit: 0"),
        ("mutates = property(lambda self: 1 / 0)", "Thing cannot be made: ZeroDivisionError: division by zero"),
    ],
)
def test_a_class_that_cannot_be_made_is_one_clear_error(tmp_path: Path, body: str, said: str) -> None:
    path = tmp_path / "thing.py"
    path.write_text(f"from ember.hooks import Experiment\nclass Thing(Experiment):\n    name = 'thing'\n    {body}\n")
    with pytest.raises(InputError, match=said):
        load_experiment(f"{path}:Thing")


def test_a_directory_and_a_file_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("class Thing: pass")
    for where in (tmp_path, tmp_path / "text.txt"):
        with pytest.raises(InputError, match="cannot be imported"):
            load_experiment(f"{where}:Thing")


def test_nothing_is_written_beside_a_file(file: Path) -> None:
    load_experiment(f"{file}:Plain")
    assert [path.name for path in file.parent.iterdir()] == ["mine.py"]


CHECKED = """
from ember.hooks import Experiment

class Narrow(Experiment):
    name = "narrow"

    def check_model(self, ctx):
        if ctx.hidden_size > 64:
            raise ValueError(f"{ctx.architecture}: {ctx.hidden_size} numbers are too many")

class Leaving(Experiment):
    name = "leaving"

    def check_model(self, ctx):
        raise SystemExit(3)
"""


def test_an_experiment_says_which_models_it_runs_on(tmp_path: Path) -> None:
    path = tmp_path / "checked.py"
    path.write_text(CHECKED)
    large, small = (ModelContext(ModelFamily.LLAMA, None, "llama", 5, width) for width in (128, 64))
    load_experiment("activation_stats").check(large)
    narrow = load_experiment(f"{path}:Narrow")
    narrow.check(small)
    with pytest.raises(InputError, match=r"^experiment 'narrow' does not fit the model: ValueError: llama: 128 "):
        narrow.check(large)
    with pytest.raises(InputError, match=r"^experiment 'leaving' does not fit the model: SystemExit: 3"):
        load_experiment(f"{path}:Leaving").check(small)
    load_experiment("zero_layer_output:-5:mlp").check(small)
    for layer in (5, -6):
        with pytest.raises(InputError, match=rf"'zero_layer_output' does not fit the model: layer {layer} does not"):
            load_experiment(f"zero_layer_output:{layer}:mlp").check(small)
