"""The pairs of configs/causal_trace.yaml, and docs/figures/causal_trace.png from a finished trace of it.

    python docs/figures/causal_trace.py pairs                        # writes configs/causal_trace.csv
    ember pipeline causal-trace configs/causal_trace.yaml
    python docs/figures/causal_trace.py outputs/causal-trace         # needs the extra `analysis`

docs/figures/causal_trace_smollm2.png is the heat map that the recipe draws for the config in docs/tutorials.

A pair differs in one radical of the root or in the pattern's name; the answers are the forms that `pipelines.stimuli`
states for the clean prompt.
"""

import csv
import sys
from pathlib import Path

from pipelines.stimuli.morphology import apply

HERE = Path(__file__).resolve()
PAIRS = HERE.parents[2] / "configs/causal_trace.csv"
PATTERNS = {
    "active participle": ("1A2i3", "اسم الفاعل"),
    "passive participle": ("ma12uu3", "اسم المفعول"),
    "place noun": ("ma12a3", "اسم المكان"),
    "intensive": ("1a22A3", "صيغة المبالغة"),
    "past": ("1a2a3a", "ماضي الثلاثي"),
    "past II": ("1a22a3a", "ماضي التفعيل"),
    "past VIII": ("i1ta2a3a", "ماضي الافتعال"),
    "past X": ("ista12a3a", "ماضي الاستفعال"),
}
ROOTS = {
    "radical 1": [("كتب", "رتب"), ("درس", "غرس"), ("فتح", "نتح"), ("جمع", "لمع"), ("حفظ", "لفظ"), ("شرب", "غرب")],
    "radical 2": [("كتب", "كسب"), ("درس", "دعس"), ("فتح", "فرح"), ("جمع", "جرع"), ("علم", "عظم"), ("شرب", "شحب")],
    "radical 3": [("كتب", "كتم"), ("درس", "درج"), ("فتح", "فتك"), ("جمع", "جمد"), ("علم", "علق"), ("شرب", "شرح")],
}
"""Clean and corrupt root: they share the other two radicals."""
SWAPS = [
    ("كتب", "active participle", "passive participle"),
    ("درس", "passive participle", "place noun"),
    ("فتح", "past II", "past"),
    ("جمع", "place noun", "active participle"),
    ("علم", "past X", "past II"),
    ("شرب", "past", "past X"),
]
"""Root, clean and corrupt pattern."""


def rows() -> list[dict[str, str]]:
    """The pairs, a row each."""
    found = []
    names = list(PATTERNS)
    for group, pairs in ROOTS.items():
        for i, (clean, corrupt) in enumerate(pairs):
            pattern = names[i % len(names)]
            found.append(row(f"{group} differs", (clean, pattern), (corrupt, pattern)))
    found += [row("pattern differs", (root, clean), (root, corrupt)) for root, clean, corrupt in SWAPS]
    return found


def row(group: str, clean: tuple[str, str], corrupt: tuple[str, str]) -> dict[str, str]:
    """One pair of (root, pattern)."""
    other = corrupt[0] if corrupt[0] != clean[0] else corrupt[1]
    return {
        "pair": f"{clean[0]} {clean[1]} / {other}",
        "group": group,
        "clean": prompt(*clean),
        "corrupt": prompt(*corrupt),
        "expected": " " + apply(clean[0], PATTERNS[clean[1]][0]).surface,
        "pattern": PATTERNS[clean[1]][1],
        "root": " ".join(clean[0]),
    }


def prompt(root: str, pattern: str) -> str:
    """The template `by_name` of configs/roots.yaml."""
    return f"{PATTERNS[pattern][1]} من الجذر {' '.join(root)}:"


def write_pairs(path: Path) -> None:
    """Write the pairs as CSV."""
    found = rows()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def draw_figure(trace: Path, out: Path) -> None:
    """Draw the means over the pairs of each group."""
    from pipelines.causal_trace.effects import average
    from pipelines.causal_trace.effects_table import read_effects
    from pipelines.causal_trace.heat_map import draw, picture

    caption = (
        "sarf-nano, 24 pairs. Each cell: the state of the clean prompt that enters one layer at one token, put back "
        "into the corrupt prompt; how much of the difference in the log-probability of the clean form comes back, in "
        "%. Column all: all tokens at once. Bold: where the two prompts of some pair differ. Prompts are read "
        "from right to left."
    )
    panels = [panel for panel in average(read_effects(trace / "effects.parquet")) if panel.site == "before_layer"]
    figure = draw(panels, "", caption, right_to_left=True)
    out.write_bytes(picture(figure, "png"))


if __name__ == "__main__":
    if sys.argv[1] == "pairs":
        write_pairs(PAIRS)
    else:
        draw_figure(Path(sys.argv[1]), HERE.with_suffix(".png"))
