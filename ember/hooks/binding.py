"""From what a caller gives as experiments to instances, one set for each prompt."""

from collections.abc import Callable, Sequence

from ember.errors import InputError
from ember.hooks.experiment import Experiment, check_experiment

Given = Experiment | Callable[[], Experiment]
"""An instance, for a single prompt; or a class or other factory, called once for every prompt."""


def bind_experiments(given: Sequence[Given], n_prompts: int) -> list[tuple[Experiment, ...]]:
    """Return the experiments of each prompt; no list at all where none are given.

    Raises InputError for what is no experiment, an instance for several prompts, or one instance twice.
    """
    if isinstance(given, Experiment) or callable(given):
        raise InputError("experiments is one experiment; give a list")
    if not given:
        return []
    bound = [tuple(_made(one, n_prompts) for one in given) for _ in range(n_prompts)]
    instances = [one for mine in bound for one in mine]
    if len({id(one) for one in instances}) != len(instances):
        raise InputError("one experiment instance serves twice: give a factory that makes a new one each time")
    return bound


def _made(given: Given, n_prompts: int) -> Experiment:
    if not isinstance(given, Experiment):
        if not callable(given):
            raise InputError(f"found {type(given).__name__}, expected an ember.hooks.Experiment, a class or a factory")
        return check_experiment(given())
    if n_prompts > 1:
        raise InputError(
            f"experiment {getattr(given, 'name', type(given).__name__)!r} is one instance for {n_prompts} prompts: "
            "give its class, or a factory that makes one for each prompt"
        )
    return check_experiment(given)
