"""What a replay gives to an agent in place of a model."""

from typing import Any

import pytest

from perdure.core.event import Entry, Event, MessageAdded, ModelEvent, ModelRequested, RunEnded, RunStarted
from perdure.core.message import user
from perdure.core.model import ModelInfo, Request, model_info
from perdure.replaying.difference_text import NOTHING
from perdure.replaying.log_comparison import LogComparer, ReplayStopped
from perdure.replaying.recorded_input_playback import Playback, RecordedModel
from perdure.replaying.recorded_log_index import index_recorded_log


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
