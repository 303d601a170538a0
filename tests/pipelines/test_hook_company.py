"""Acting on one prompt changes no bit of any other prompt in its unit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember
from ember.sites import SITES
from ember.work import UnitResult
from pipelines.config.hooks import HooksConfig
from pipelines.hooks import plan_hooks
from pipelines.plan import Plan, make_plan
from pipelines.unit_file import UnitFile, read_unit_file, write_unit_file
from tests.faults.rig import make_config
from tests.foundry.hook_runs import PROMPTS

NAMES = sorted(PROMPTS)
STEPS = 3
CAPTURES = [
    {"name": "states", "site": "after_layer", "position": "all", "observe": "after"},
    {"name": "mlp", "site": "after_mlp", "position": "all", "observe": "before"},
    {"name": "steps", "site": "after_layer", "position": "generated", "observe": "after"},
    {"name": "logits", "site": "after_logits", "position": "generated", "observe": "after"},
]


class Rig:
    """A plan over the prompts, and the model that runs its one unit."""

    def __init__(self, folder: Path) -> None:
        items = [{"id": name, "prompt": prompt, "labels": {"me": name}} for name, prompt in PROMPTS.items()]
        self.plan: Plan = make_plan(
            make_config(
                folder,
                [],
                model={"path": "builtin:sarf-nano"},
                stimuli={"items": items, "allow_leaks": True},
                hooks={"capture": CAPTURES},
                generate={"max_tokens": STEPS + 1},
                engine={},
            )
        )
        assert len(self.plan.units) == 1
        self.units: UnitFile = read_unit_file(folder / write_unit_file(folder, self.plan))
        self.model = ember.open("builtin:sarf-nano", threads=1)
        self.base = self.run([])

    def run(self, acts: list[dict[str, Any]]) -> UnitResult:
        """Run the unit with interventions."""
        config = HooksConfig.model_validate({"capture": CAPTURES, "intervene": acts})
        hooks = plan_hooks(config, self.plan.samples, self.plan.source.card, self.plan.max_tokens, str)
        units = replace(self.units, interventions=hooks.interventions)
        return self.model.run_unit(units.work(0, len(NAMES), 256))

    def of(self, result: UnitResult, name: str) -> list[Any]:
        """Everything that a result says of one prompt, in order of captures."""
        at = [sample.stimulus.id for sample in self.plan.samples].index(name)
        lengths = [len(sample.tokens) for sample in self.plan.samples]
        steps = [len(produced.token_ids) - 1 for produced in result.produced]
        found: list[Any] = [result.produced[at].token_ids]
        for rows, counts in zip(result.captures, (lengths, lengths, steps, steps), strict=True):
            first = sum(counts[:at])
            found.append(rows[:, first : first + counts[at]])
        return found


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    folder = tmp_path_factory.mktemp("company")
    rng = np.random.default_rng(3)
    for width in (128, 430):
        np.save(folder / f"v{width}.npy", rng.normal(size=width))
    rig = Rig(folder)
    rig.folder = folder  # type: ignore[attr-defined]
    return rig


@st.composite
def acts(draw: st.DrawFn, folder: str) -> dict[str, Any]:
    """One intervention on one prompt, behind the token that all prompts begin with."""
    site = draw(st.sampled_from(sorted(SITES)))
    operation = draw(st.sampled_from(["zero", "scale", "add", "replace", "interpolate", "project_out"]))
    act: dict[str, Any] = {"operation": operation, "site": site}
    if SITES[site].per_layer:
        act["layers"] = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True))
        places = [{"from_end": draw(st.integers(0, 3))}, {"index": draw(st.integers(1, 4))}, "generated"]
        act["position"] = draw(st.sampled_from([*places, {"generated": draw(st.integers(0, STEPS - 1))}]))
    else:
        act["position"] = draw(st.sampled_from(["last", "generated"]))
    if operation not in ("zero", "replace"):
        act["strength"] = draw(st.sampled_from([-2.0, 0.0, 0.5, 3.0]))
    if operation not in ("zero", "scale"):
        act["source"] = {"vector": f"{folder}/v{430 if SITES[site].width == 'vocab' else 128}.npy"}
    return act


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_nobody_else_changes(rig: Rig, data: st.DataObject) -> None:
    me = data.draw(st.sampled_from(NAMES))
    folder = str(rig.folder)  # type: ignore[attr-defined]
    chosen = data.draw(st.lists(acts(folder), min_size=1, max_size=3))
    result = rig.run([act | {"where": {"me": me}} for act in chosen])
    for name in NAMES:
        if name == me:
            continue
        for before, after in zip(rig.of(rig.base, name), rig.of(result, name), strict=True):
            np.testing.assert_array_equal(before, after)


def test_but_the_one_acted_on_does(rig: Rig) -> None:
    act = {"operation": "zero", "site": "after_layer", "layers": [0], "position": {"index": 2}, "where": {"me": "c"}}
    before, after = rig.of(rig.base, "c"), rig.of(rig.run([act]), "c")
    assert not np.array_equal(before[1], after[1])


def test_a_capture_of_the_run_is_a_source_for_its_own_prompt_only(rig: Rig) -> None:
    """Rows of the capture `states` in layer 0 are added in layer 3: to each prompt its own."""
    act = {"operation": "replace", "site": "after_layer", "layers": [3], "position": "all"}
    result = rig.run([act | {"source": {"capture": "states", "layer": 0}, "where": {"me": ["b", "e"]}}])
    for name in NAMES:
        states = rig.of(result, name)[1]
        assert np.array_equal(states[3], states[0]) == (name in "be")
