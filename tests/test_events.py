"""`perdure.events`: the public place of every event."""

import perdure.events
from perdure._core.values.event import PlannedTask
from perdure.events import EVENTS, Entry, Event, ModelEvent


def test_every_event_is_public():
    assert {kind.__name__ for kind in EVENTS.values()} <= set(perdure.events.__all__)


def test_each_name_is_the_one_of_the_core():
    exported = {name: getattr(perdure.events, name) for name in perdure.events.__all__}
    own = {kind.__name__: kind for kind in EVENTS.values()}
    parts = {"Event": Event, "Entry": Entry, "ModelEvent": ModelEvent, "PlannedTask": PlannedTask}
    assert exported == {**own, **parts}
