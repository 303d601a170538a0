"""`ember pipeline schema`: what a config may say."""

import json
from typing import Any

import click

from pipelines.config import RunConfig
from pipelines.config.models import SCHEMA
from pipelines.config.reference import reference_page


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print on one line, for machines.")
@click.option("--markdown", is_flag=True, help="Print tables of all keys for people instead.")
def schema(as_json: bool, markdown: bool) -> None:
    """Print the JSON Schema of a config file, with every key's meaning and default.

    Editors use it to complete and check configs: `ember pipeline schema > ember.schema.json`.
    """
    if as_json and markdown:
        raise click.UsageError("--json and --markdown exclude each other; give one of them")
    if markdown:
        click.echo(reference_page(), nl=False)
        return
    click.echo(json.dumps(config_schema(), ensure_ascii=False, indent=None if as_json else 2))


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a config file; `models` is the alternative to `model`."""
    body = RunConfig.model_json_schema(by_alias=True)
    model = body["properties"]["model"]
    one = {"anyOf": [{"type": "string"}, model]}
    body["properties"]["models"] = {
        "type": "array",
        "minItems": 1,
        "items": one,
        "description": "A sweep: one run for each model, in output.dir/<name of the model's file>.",
    }
    body["required"].remove("model")
    body["oneOf"] = [{"required": ["model"]}, {"required": ["models"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body, "title": SCHEMA}
