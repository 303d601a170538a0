"""The `ember pipeline` group: a literal table of verbs, each imported only when called."""

import importlib
from typing import Final

import click

VERBS: Final[dict[str, tuple[str, str]]] = {
    # verb: (module:attribute, one line of help)
    "run": ("pipelines.cli.run:run", "Run a config, or go on with its run."),
    "plan": ("pipelines.cli.plan:plan", "Show what a config would do: units, rows, bytes, memory, first prompts."),
    "lint": ("pipelines.cli.lint:lint", "Look for trouble in a config's stimuli: encodings, leaks, tokens, classes."),
    "status": ("pipelines.cli.status:status", "Show how far the run in a directory is."),
    "verify": ("pipelines.cli.verify:verify", "Check every file of a run against its manifest."),
    "compare": ("pipelines.cli.compare:compare", "Compare two finished runs, layer by layer."),
    "geometry": (
        "pipelines.cli.geometry:geometry",
        "Measure how layers of a run resemble each other and its labels.",
    ),
    "causal-trace": (
        "pipelines.cli.causal_trace:causal_trace",
        "Put single states of one prompt back into another, and see what comes back.",
    ),
    "reproduce": ("pipelines.cli.reproduce:reproduce", "Make a finished run anew, and say what differs first."),
    "export": ("pipelines.cli.export:export", "Write a finished run as NumPy arrays or CSV."),
    "schema": ("pipelines.cli.schema:schema", "Print the JSON schema of the configuration."),
}


class LazyGroup(click.Group):
    """A group whose verbs are imported when they are called; listing them imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of their use."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return the verb called `name`; None if there is none."""
        if name not in VERBS:
            return None
        module, attribute = VERBS[name][0].split(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Run stimulus sets through a model, and keep hidden states with their origin."""
