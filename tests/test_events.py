"""`perdure.events`: the public place of every event."""

import perdure.events
from perdure.events import EVENTS


def test_every_event_is_public():
    assert {kind.__name__ for kind in EVENTS.values()} <= set(perdure.events.__all__)
