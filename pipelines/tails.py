"""Student's distribution beside the normal one."""

import math
from typing import Final

FAR: Final = 600.0
"""Beyond this there is nothing to tell apart, and exp would overflow."""


def students(normal: float, freedom: int) -> float:
    """The point of Student's distribution beyond which as much lies as beyond `normal` of the normal one.

    Wallace's approximation (1959), never too near: from 7 degrees of freedom on 0.6 % too far at 3, with 4 degrees
    0.5 % too far at 1.96.
    """
    squared = (normal * (8 * freedom + 3) / (8 * freedom + 1)) ** 2 / freedom
    return math.sqrt(freedom * math.expm1(min(squared, FAR)))
