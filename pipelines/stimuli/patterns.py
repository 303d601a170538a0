"""A table of patterns with their Arabic names, as `configs/roots.yaml` and the built-in model's training use them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern: its slots, and what Arabic grammar calls it (the forms of the verb go by their masdars)."""

    slots: str
    title: str


PATTERNS: Final = {
    "active_participle": Pattern("1A2i3", "اسم الفاعل"),
    "passive_participle": Pattern("ma12uu3", "اسم المفعول"),
    "place_noun": Pattern("ma12a3", "اسم المكان"),
    "instrument": Pattern("mi12A3", "اسم الآلة"),
    "elative": Pattern("ʾa12a3", "اسم التفضيل"),
    "intensive": Pattern("1a22A3", "صيغة المبالغة"),
    "past_i": Pattern("1a2a3a", "ماضي الثلاثي"),
    "past_i_passive": Pattern("1u2i3a", "ماضي المجهول"),
    "past_ii": Pattern("1a22a3a", "ماضي التفعيل"),
    "past_iii": Pattern("1A2a3a", "ماضي المفاعلة"),
    "past_iv": Pattern("ʾa12a3a", "ماضي الإفعال"),
    "past_v": Pattern("ta1a22a3a", "ماضي التفعل"),
    "past_vi": Pattern("ta1A2a3a", "ماضي التفاعل"),
    "past_vii": Pattern("in1a2a3a", "ماضي الانفعال"),
    "past_viii": Pattern("i1ta2a3a", "ماضي الافتعال"),
    "past_x": Pattern("ista12a3a", "ماضي الاستفعال"),
    "masdar_ii": Pattern("ta12ii3", "مصدر التفعيل"),
    "masdar_iii": Pattern("mu1A2a3ap", "مصدر المفاعلة"),
    "masdar_iv": Pattern("ʾi12A3", "مصدر الإفعال"),
    "masdar_v": Pattern("ta1a22u3", "مصدر التفعل"),
    "masdar_vi": Pattern("ta1A2u3", "مصدر التفاعل"),
    "masdar_vii": Pattern("in1i2A3", "مصدر الانفعال"),
    "masdar_viii": Pattern("i1ti2A3", "مصدر الافتعال"),
    "masdar_x": Pattern("isti12A3", "مصدر الاستفعال"),
    "active_ii": Pattern("mu1a22i3", "فاعل التفعيل"),
    "passive_ii": Pattern("mu1a22a3", "مفعول التفعيل"),
    "active_iii": Pattern("mu1A2i3", "فاعل المفاعلة"),
    "active_iv": Pattern("mu12i3", "فاعل الإفعال"),
    "active_viii": Pattern("mu1ta2i3", "فاعل الافتعال"),
    "active_x": Pattern("musta12i3", "فاعل الاستفعال"),
}
