"""What all kinds of stimuli may say."""

from typing import Annotated

from pipelines.settings import Listed, Settings
from pipelines.stimuli.normalisers import Normaliser
from pipelines.stimuli.record import ExpectMode
from pipelines.stimuli.select_config import SelectConfig


class CommonConfig(Settings):
    """What all three kinds of stimuli share."""

    expect_mode: ExpectMode = "exact"
    """How a continuation is compared with the expected text once both are trimmed: equal, starting with it, or
    containing it."""
    allow_leaks: bool = False
    """Go on although a prompt's text gives a label away that `reveals` does not declare."""
    normalize: Annotated[tuple[Normaliser, ...], Listed] | None = None
    """Changes of the texts, by name and in this order; by default none. The prompts as given are kept beside them."""
    select: SelectConfig | None = None
    """Which of the stimuli to use; by default all."""
