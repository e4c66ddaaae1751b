"""What a difference is about, and how it reads."""

import pytest

from perdure.core.event import (
    AutoContinued,
    Compacted,
    CompactionStarted,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    ReplyDiscarded,
    RunEnded,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
    ViewChanged,
)
from perdure.core.message import ToolResult, assistant, user
from perdure.replaying.difference_text import Divergence, get_difference_kind


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (ModelRequested(1), "request"),
        (ToolsChanged(("depth",)), "request"),
        (ToolStarted("c1", "depth", "read", "key"), "call"),
        (ToolFinished("c1", "depth", ToolResult("c1", "depth")), "call"),
        (PermissionDecided("c1", "depth", "read", "", "", True), "permission"),
        (ReplyDiscarded(1, "empty"), "reply"),
        (MessageAdded(assistant("Hello.")), "reply"),
        (MessageAdded(user("Hello.")), "message"),
        (AutoContinued(1), "message"),
        (RunEnded("done"), "ending"),
        (CompactionStarted("tokens"), "view"),
        (Compacted(user("So far."), 4), "view"),
        (ViewChanged("summaries", 4), "view"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_each_event_that_is_not_as_recorded_is_a_difference_of_its_kind(event, kind):
    assert get_difference_kind(event) == kind


def test_a_difference_reads_as_its_place_what_it_is_and_both_sides_line_by_line():
    divergence = Divergence(7, "reply", "something else is said", "one\ntwo", "one\nthree")
    assert str(divergence).splitlines() == [
        "entry 7: something else is said",
        "--- recorded",
        "+++ now",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+three",
    ]
