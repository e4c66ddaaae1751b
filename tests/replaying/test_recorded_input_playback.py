"""What a replay gives to an agent in place of a model."""

from types import SimpleNamespace
from typing import Any

import pytest

from perdure import user
from perdure._work.replay.comparison import LogComparer, ReplayStopped
from perdure._work.replay.differences import NOTHING
from perdure._work.replay.log import index_recorded_log
from perdure._work.replay.playback import Playback, RecordedModel
from perdure.events import Entry, Event, MessageAdded, ModelEvent, ModelRequested, RunEnded, RunStarted, ValueKept
from perdure.models import ModelInfo, Request, model_info
from perdure.testing import Divergence


class Silent:
    """A session in which nobody says anything."""

    async def view(self) -> list[Any]:
        return []

    async def inbox(self) -> list[Any]:
        return []


async def begin(*events: Event) -> Playback:
    log = [RunStarted("a"), MessageAdded(user("Go.")), *events]
    record = index_recorded_log([Entry(number, 0.0, event) for number, event in enumerate(log, 1)])
    playback = Playback(LogComparer(record, {}))
    session: Any = Silent()
    playback.session = session
    await playback.begin(record.segments[0])
    return playback


async def ask(playback: Playback) -> list[ModelEvent]:
    model = RecordedModel(playback, ModelInfo("m", "p"))
    return [event async for event in model.stream(Request(messages=(user("Go."), user("What else?"))))]


async def test_a_request_that_is_not_in_the_log_is_the_difference():
    playback = await begin(RunEnded("done"))
    with pytest.raises(ReplayStopped, match=r"^the model is asked for something that is not in the log$"):
        await ask(playback)
    found = playback.check.divergence
    assert found is not None
    assert (found.seq, found.about, found.what, found.recorded) == (
        *(4, "request"),
        *("the model is asked for something that is not in the log", NOTHING),
    )
    assert "What else?" in found.now
    assert "Go." not in found.now


async def test_a_request_that_the_log_breaks_off_after_is_no_difference():
    playback = await begin(ModelRequested(1))
    playback.check.current = 3
    with pytest.raises(ReplayStopped, match=r"^the record breaks off here$"):
        await ask(playback)
    assert playback.check.divergence is None


async def test_the_model_of_a_replay_is_what_the_recorded_one_was():
    info = ModelInfo("m", "p")
    assert model_info(RecordedModel(await begin(), info)) == info


class Recording:
    """A run that keeps the events which are stored in it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.state: Any = SimpleNamespace(children={})

    async def emit(self, *events: Event) -> None:
        self.events += events


async def test_entries_beside_the_conversation_are_stored_once_up_to_a_number():
    kept = [ValueKept(name, 1) for name in ("a", "b", "c")]
    playback = await begin(*kept, RunEnded("done"))
    run: Any = Recording()
    assert await playback.store_other_entries(run, 5, lambda entry: entry.seq != 3) == [kept[1]]
    assert await playback.store_other_entries(run, 5, lambda entry: entry.seq != 3) == []
    assert await playback.store_other_entries(run, 6, lambda _: True) == [kept[0], kept[2]]
    assert run.events == [kept[1], kept[0], kept[2]]
    assert playback.segment.other_entries == []


async def test_the_next_events_are_stored_as_long_as_they_are_wanted():
    playback = await begin(MessageAdded(user("More.")), RunEnded("done"))
    run: Any = Recording()

    async def store(event: Event) -> None:
        playback.check.compare_event(event)

    run.emit = store
    said = [MessageAdded(user("Go.")), MessageAdded(user("More."))]
    assert await playback.store_next(run, lambda event: isinstance(event, MessageAdded)) == said
    assert await playback.store_next(run, lambda event: isinstance(event, MessageAdded)) == []
    assert await playback.store_next(run, lambda _: True) == [RunEnded("done")]
    assert await playback.store_next(run, lambda _: True) == []


async def test_a_private_run_that_is_not_in_the_log_is_the_difference():
    playback = await begin(ValueKept("a", 1, path="other"), RunEnded("done"))
    run: Any = Recording()
    with pytest.raises(ReplayStopped):
        await playback.store_private_run(run, "inner")
    assert playback.check.divergence == Divergence(
        5, "request", "the engine asks the model privately (inner), which is not in the log", NOTHING, "inner"
    )
    assert run.events == []


async def test_a_private_run_is_stored_with_all_that_is_below_it():
    below = [ValueKept("a", 1, path="inner"), ValueKept("b", 1, path="inner/deep"), ValueKept("c", 1, path="innermost")]
    playback = await begin(*below, RunEnded("done"))
    run: Any = Recording()
    run.state.children["inner"] = SimpleNamespace(run_ended_event=RunEnded("done"))
    await playback.store_private_run(run, "inner")
    assert (run.events, playback.check.divergence) == (below[:2], None)


async def test_a_private_run_that_the_log_breaks_off_in_is_no_difference():
    playback = await begin(ValueKept("a", 1, path="inner"))
    run: Any = Recording()
    with pytest.raises(ReplayStopped, match=r"^the record breaks off in a private run$"):
        await playback.store_private_run(run, "inner")
    assert playback.check.divergence is None
