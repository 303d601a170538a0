"""The files and configs of docs/how-to/stimuli.md, read and built as the page says."""

import re
from pathlib import Path

import pytest
import yaml

from pipelines.config import config_sha256, dump, load_config
from pipelines.stimuli import StimulusSet, build_set
from pipelines.stimuli.normalisers import NORMALISERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/stimuli.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^`([\w.]+)`:\n\n```\w*\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
CONFIGS = [(name, text) for name, text in BLOCKS if name.endswith(".yaml")]
RUN = {
    "schema": "ember.pipeline/v1", "name": "page", "model": {"path": "builtin:sarf-nano"},
    "hooks": {"capture": [{"site": "after_layer"}]}, "output": {"dir": "out"},
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StimulusSet]:
    """Every config of the page, built."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in BLOCKS:
        (folder / name).write_text(text, encoding="utf-8")
    found = {}
    for name, text in CONFIGS:
        section = yaml.safe_load(text)
        (folder / name).write_text(yaml.safe_dump(RUN | section, allow_unicode=True, sort_keys=False), encoding="utf-8")
        found[name] = build_set(load_config(folder / name))
    return found


@pytest.mark.parametrize(("name", "text"), CONFIGS, ids=[name for name, _ in CONFIGS])
def test_each_config_gives_what_its_comment_says(made: dict[str, StimulusSet], name: str, text: str) -> None:
    (count,) = re.findall(r"^stimuli:  # (\d+) stimuli$", text, re.MULTILINE)
    assert len(made[name].stimuli) == int(count)


def test_what_a_run_writes_down_is_the_same_config(tmp_path: Path) -> None:
    for name, text in CONFIGS:
        (tmp_path / name).write_text(
            yaml.safe_dump(RUN | yaml.safe_load(text), allow_unicode=True, sort_keys=False), encoding="utf-8"
        )
        config = load_config(tmp_path / name)
        (tmp_path / "again.yaml").write_text(dump(config), encoding="utf-8")
        again = load_config(tmp_path / "again.yaml")
        assert dump(again) == dump(config)
        assert config_sha256(again) == config_sha256(config)


def test_the_page_has_all_kinds() -> None:
    assert len(CONFIGS) == 7
    for name in NORMALISERS:
        assert f"| `{name}` |" in PAGE


def test_what_the_page_says_of_them(made: dict[str, StimulusSet]) -> None:
    assert "root" not in made["bare.yaml"].stimuli[3].labels
    assert made["asked.yaml"].stimuli[1].prompt == "جذر الكلمة كاتب هو"
    assert made["analysed.yaml"].record["source"]["words_without_analysis_left_out"] == 1
    assert [s.labels["span"] for s in made["nouns.yaml"].stimuli] == ["word", "word", "several_words", "part"]
    assert made["agreement.yaml"].stimuli[1].labels == {"feature": "gender", "pair": "a1", "role": "bad"}
    assert made["sets.yaml"].stimuli[1].reveals == ("root",)
    assert made["stripped.yaml"].record["normalize"] == {"strip_tatweel": 0, "strip_diacritics": 3}


def test_the_selection_of_the_page_is_valid() -> None:
    from pipelines.stimuli.select_config import SelectConfig

    (block,) = re.findall(r"```yaml\n(select:.*?)```", PAGE, re.DOTALL)
    assert SelectConfig.model_validate(yaml.safe_load(block)["select"]).sample is not None
