"""What a sweep says at its end, to people and to machines."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ProbeSummary:
    """A finished sweep over one run."""

    directory: Path
    manifest: dict[str, Any]
    computed: bool
    """Whether anything was computed now; False: it was there already."""

    @property
    def record(self) -> dict[str, Any]:
        """The summary as plain data."""
        kept = ("run", "stimuli", "problems", "refusals", "texts", "highlights", "plan_sha256")
        return {"directory": str(self.directory), "computed": self.computed} | {k: self.manifest[k] for k in kept}

    def lines(self) -> list[str]:
        """Say what was found, what was refused and why, and where it lies."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        run = self.manifest["run"]
        failed = f", {run['failed_samples']} failed ones left out" if run["failed_samples"] else ""
        yield f"{self.manifest['stimuli']} stimuli of {run['name']}{failed}"
        for one in self.manifest["texts"]:
            if one["kept"] < one["found"]:
                whose = f" of {one['capture']}" if one["capture"] else ""
                yield f"{one['features']}{whose}: the {one['kept']:,} most frequent of {one['found']:,} features"
        for one in self.manifest["highlights"]:
            yield _highlight(one)
        for one in self.manifest["refusals"]:
            yield f"refused   {one['label']}, {one['split']}: {one['reason']}"
        weights = len(self.manifest["weights"])
        done = "wrote" if self.computed else "already there:"
        yield f"{done} results.parquet, classes.parquet, {weights} directions, manifest.json in {self.directory}"


def _highlight(one: dict[str, Any]) -> str:
    value, low, high = one["accuracy"]
    controls = one["controls"]
    best = max(controls, key=lambda name: controls[name])
    unsure = "not surely above" if value > controls[best] else "not above"
    verdict = _above(one) if one["above_controls"] else f"{unsure} {best.replace('_', ' ')}"
    layer = f"layer {one['layer']}" if one["layer"] >= 0 else one["site"]
    return (
        f"{one['label']}, {one['split']}, {one['probe']}, {one['capture']}: best at {layer}: {value:.1%} "
        f"[{low:.1%}, {high:.1%}]; {best.replace('_', ' ')} {controls[best]:.1%}; {verdict}"
    )


def _above(one: dict[str, Any]) -> str:
    if one["above_controls_corrected"]:
        return f"above all controls (corrected for {one['family']} looked at)"
    if not one["enough_groups"]:
        return "higher than all controls, of too few groups to say more"
    return f"above all controls by itself, not as one of {one['family']} looked at"
