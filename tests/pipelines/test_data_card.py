"""The data card: written at the end of a run, so that it opens as a dataset; never over a user's own page."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from pipelines.data_card import CARD, MARK, data_card, front_matter, write_card
from pipelines.manifest import build_manifest, read_manifest
from pipelines.reading import load
from pipelines.running import run
from pipelines.verify import verify
from tests.faults.rig import make_config, prompts
from tests.foundry.fake_run import make_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of a few prompts with two tables."""
    folder = tmp_path_factory.mktemp("card")
    items = [{"prompt": p, "labels": {"n": str(i % 2)}} for i, p in enumerate(prompts(6))]
    config = make_config(
        folder, items, generate={"max_tokens": 2}, stimuli={"items": items, "select": {"sample": {"count": 4}}}
    )
    assert run(config, scheduler="serial").status == "complete"
    return config.output.path


def head(card: str) -> dict[str, Any]:
    _, front, _ = card.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(front)
    return found


def test_every_table_opens_by_its_glob(finished: Path) -> None:
    told = head((finished / CARD).read_text(encoding="utf-8"))
    assert [one["config_name"] for one in told["configs"]] == ["stimuli", "activations", "generations"]
    assert [one for one in told["configs"] if one.get("default")] == [told["configs"][0]]
    manifest = read_manifest(finished)
    for one in told["configs"]:
        files = sorted(finished.glob(one["data_files"]))
        assert files == sorted(finished / part.path for part in manifest.parts_of(one["config_name"]))
        rows = ds.dataset(files).count_rows()
        assert rows == sum(part.rows for part in manifest.parts_of(one["config_name"]))


def test_the_hub_s_own_library_opens_it(finished: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the Hub's library is not installed: pip install datasets")
    assert set(datasets.get_dataset_config_names(str(finished))) == {"stimuli", "activations", "generations"}
    states = datasets.load_dataset(str(finished), "activations", cache_dir=str(tmp_path))["train"]
    assert len(states) == 4 * 3


def test_it_says_what_was_run(finished: Path) -> None:
    card = (finished / CARD).read_text(encoding="utf-8")
    manifest = read_manifest(finished)
    for said in (manifest.semantic_hash, manifest.inputs.model_sha256, "`label_n`", "| after_layer | 0 to 2 | last |"):
        assert said in card
    assert "| stimuli after sample | `4 of 6` |" in card
    assert str(finished) not in card


def test_the_run_is_still_sound_and_reads_as_before(finished: Path) -> None:
    verify(finished)
    assert load(finished).stimuli.num_rows == 4


def test_it_is_a_function_of_the_manifest(finished: Path) -> None:
    written = (finished / CARD).read_text(encoding="utf-8")
    assert data_card(read_manifest(finished), ["n"]) == written


def test_a_page_of_the_user_s_own_is_left_alone(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    manifest = read_manifest(made.directory)
    write_card(made.directory, manifest, ["root"])
    page = made.directory / CARD
    assert MARK in page.read_text(encoding="utf-8")
    page.write_text(page.read_text(encoding="utf-8").replace(MARK, "Mine."), encoding="utf-8")
    write_card(made.directory, manifest, ["other"])
    assert "Mine." in page.read_text(encoding="utf-8")
    page.unlink()
    (tmp_path / "elsewhere").write_text(MARK)
    page.symlink_to(tmp_path / "elsewhere")
    write_card(made.directory, manifest, ["root"])
    assert (tmp_path / "elsewhere").read_text() == MARK


def test_failures_and_changes_are_said_first(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", failed=(1, 4))
    made.origin = replace(made.origin, hooks={"interventions": [{}, {}], "experiments": []})
    card = data_card(made.finish(), [])
    assert "**2 of the prompts failed**" in card
    assert "**The model was changed while it ran** (2 interventions)" in card
    assert "Labels" not in card


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    made.origin = replace(made.origin, model=made.origin.model | {"name": "a `b`\n# c"})
    card = data_card(made.finish(), ["x`|y\nz"])
    assert "`a 'b' # c`" in card
    assert "`label_x'\\|y z`" in card


@pytest.mark.parametrize(("samples", "size"), [(999, "n<1K"), (1000, "1K<n<10K"), (10**7, "n>10M")])
def test_sizes(tmp_path: Path, samples: int, size: str) -> None:
    made = make_run(tmp_path / "run", units=(1,))
    manifest = build_manifest(made.inputs, made.origin, samples=samples, parts=made.parts)
    assert front_matter(manifest)["size_categories"] == [size]
