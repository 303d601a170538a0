"""The schema says what the models accept."""

import json
from pathlib import Path

from click.testing import CliRunner

from ember.sites import SITES
from pipelines.cli.schema import config_schema, schema
from pipelines.config.reference import reference_page

ROOT = Path(__file__).resolve().parents[3]


def test_it_prints_json():
    pretty = CliRunner().invoke(schema)
    compact = CliRunner().invoke(schema, ["--json"])
    assert pretty.exit_code == compact.exit_code == 0
    assert json.loads(pretty.output) == json.loads(compact.output) == config_schema()
    assert compact.output.count("\n") == 1


def test_it_describes_what_a_config_may_say():
    found = config_schema()
    assert found["title"] == "ember.pipeline/v1"
    assert found["properties"]["schema"]["const"] == "ember.pipeline/v1"
    assert found["additionalProperties"] is False
    assert set(found["required"]) == {"schema", "name", "stimuli", "output"}
    assert found["oneOf"] == [{"required": ["model"]}, {"required": ["models"]}]
    parts = found["$defs"]
    assert parts["CaptureConfig"]["properties"]["site"]["enum"] == list(SITES)
    assert parts["CaptureConfig"]["properties"]["position"]["default"] == "last"
    assert {"type": "string"} in parts["RootPatternConfig"]["properties"]["roots"]["items"]["anyOf"]
    assert parts["RootPatternConfig"]["properties"]["roots"]["minItems"] == 1
    assert parts["GenerateConfig"]["required"] == ["max_tokens"]


def test_every_reference_has_its_definition():
    text = json.dumps(config_schema())
    named = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert named <= set(config_schema()["$defs"])


def test_the_reference_page_is_current():
    """After a change of keys: `ember pipeline schema --markdown > docs/reference/config.md`."""
    printed = CliRunner().invoke(schema, ["--markdown"])
    assert printed.exit_code == 0
    assert (ROOT / "docs/reference/config.md").read_text(encoding="utf-8") == printed.output
    assert CliRunner().invoke(schema, ["--markdown", "--json"]).exit_code == 2


def test_every_key_is_on_the_page():
    page = reference_page()
    for part in config_schema()["$defs"].values():
        for key in part.get("properties", {}):
            assert f"| `{key}` |" in page
