"""The `ember` command: a literal table of verbs, each imported only when called.

`pipeline` and its kin live in another package, which Ember finds through the entry-point group `ember.commands`, so
that the instrument never imports the factory.
"""

import gc
import importlib
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import click

from ember.errors import EmberError

VERBS: Final[dict[str, tuple[str, str]]] = {
    # verb: (module:attribute, one line of help)
    "inspect": (
        "ember.cli.inspect:inspect",
        "Show a GGUF file: metadata, tensors, types, sizes, and what Ember makes of it.",
    ),
    "tokenize": ("ember.cli.tokenize:tokenize", "Show ids, pieces and byte offsets of a text."),
    "capture": ("ember.cli.capture:capture", "Write hidden states of prompts to a .npy or .npz file."),
    "logits": ("ember.cli.logits:logits", "Show the likeliest next tokens of prompts, or write all logits."),
    "generate": ("ember.cli.generate:generate", "Continue a prompt, draw tokens, or talk."),
    "trace": ("ember.cli.trace:trace", "Write a journal of every operation of a prompt, or sum one up."),
    "demo": ("ember.cli.demo:demo", "See the built-in model form Arabic words from roots."),
    "bench": ("ember.cli.bench:bench", "Time a model on this machine, beside what the machine can do."),
    "untrained": ("ember.cli.untrained:untrained", "Write a copy of a model with its weights shuffled: a baseline."),
    "validate": ("ember.cli.validate:validate", "Compare every site of every layer with a reference."),
}
PLUGIN_HELP: Final = {
    "pipeline": "Run stimulus sets through a model: run, plan, verify, compare, causal-trace, …",
    "probe": "Ask at which layers labels can be read from hidden states, next to controls.",
    "report": "Write a finished run up as one HTML page that needs nothing else.",
}
INTERRUPTED: Final = 130


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; listing them imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs of the table, then those of other packages."""
        return [*VERBS, *sorted(_plugins())]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return the command called `name`; None if there is none."""
        if name in VERBS:
            module, attribute = VERBS[name][0].split(":")
            return _as_command(getattr(importlib.import_module(module), attribute))
        plugin = _plugins().get(name)
        return _as_command(_loaded(plugin)) if plugin else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs from the table, without importing any."""
        known = {name: text for name, (_, text) in VERBS.items()} | PLUGIN_HELP
        rows = [(name, known.get(name, "")) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _plugins() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="ember.commands")}


def _loaded(plugin: EntryPoint) -> Any:
    """Import a command of another package; `pipelines` is a name that others use too."""
    package = importlib.import_module(plugin.module.partition(".")[0])
    if not hasattr(package, "__ember__"):
        found = getattr(package, "__file__", None) or list(package.__path__)
        raise EmberError(
            f"`ember {plugin.name}` needs Ember's own package {package.__name__!r}, but Python found another one at "
            f"{found}; run from another directory, or take the other one off PYTHONPATH"
        )
    return plugin.load()


def _as_command(found: Any) -> click.Command:
    if not isinstance(found, click.Command):
        raise EmberError(f"{found!r} is not a command; another package answers to this name")
    return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ember", prog_name="ember")
def cli() -> None:
    """Take hidden states out of GGUF models on CPUs, with the origin of every tensor."""


def run(command: Callable[[], Any]) -> int:
    """Call a click command and turn its outcome into an exit status, printing errors as one message."""
    try:
        result = command()
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except EmberError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_status
    except BrokenPipeError:
        return 1
    except OSError as error:
        # what verbs write themselves they answer for; what is left is standard output
        click.echo(f"error: the output could not be written: {error.strerror or error}", err=True)
        return 1
    return result if isinstance(result, int) else 0


def main() -> None:
    """Run the command line; the entry point of the `ember` script and of `python -m ember`."""
    status = run(lambda: cli.main(standalone_mode=False))
    # the last search for garbage would go through all libraries, half a second after everything is done
    gc.freeze()
    sys.exit(status)
