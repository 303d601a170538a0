"""What a worker may keep."""

from ember.resources import Resources
from pipelines.crew import SHARE, Crew
from pipelines.estimates import Memory


def test_weights_are_kept_where_the_limit_has_room_beside_what_a_unit_needs() -> None:
    crew = Crew(2, "asked", Memory(100, 20, 30, 40, 10), 1000, None, Resources(2, "affinity", 2000))
    room = int(SHARE * 1000) - 200
    assert crew.weight_budget == room
    assert crew.keeps_weights(room)
    assert not crew.keeps_weights(room + 1)
    assert crew.keeps_weights(0)  # a file of float32 is read where it lies
