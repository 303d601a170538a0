"""Experiments of one unit: an instance of each for every prompt, and what they found."""

from ember.errors import InputError
from ember.hooks import Experiment, ExperimentFailure
from ember.hooks.loading import ExperimentFactory
from ember.work import UnitResult
from pipelines.errors import RunError
from pipelines.findings import Finding
from pipelines.unit_file import UnitFile


def make_experiments(units: UnitFile, samples: range) -> list[list[Experiment]]:
    """Make the experiments of each prompt; none at all where the run has none.

    Raises RunError where a class cannot be found, or is not that of the client any more: no prompt is to blame.
    """
    makers = [
        ExperimentFactory(one.spec, one.options, one.name, one.mutates, one.source_sha256) for one in units.experiments
    ]
    if not makers:
        return []
    try:
        return [
            [make() for make, one in zip(makers, units.experiments, strict=True) if one.on[sample]]
            for sample in samples
        ]
    except InputError as error:
        raise RunError(str(error)) from error


def findings_of(units: UnitFile, samples: range, result: UnitResult) -> tuple[list[Finding], dict[int, str]]:
    """Return what the unit's experiments found, and why prompts (from 0) failed in them.

    Findings that JSON cannot say end their prompt as a hook that fails does.
    """
    failed = dict(result.hook_failures)
    found: list[tuple[int, Finding]] = []
    for prompt, name, told in result.findings:
        sample = samples[prompt]
        finding = Finding(sample, units.ids[sample], name, told)
        try:
            finding = finding.settled()
        except (TypeError, ValueError, RecursionError) as error:
            failed.setdefault(prompt, str(ExperimentFailure(name, "results", None, None, f"not JSON: {error}")))
        found.append((prompt, finding))
    gone = failed.keys() | result.failures.keys()
    return [finding for prompt, finding in found if prompt not in gone], failed
