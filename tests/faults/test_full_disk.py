"""A session on a disk that is full, for real: it stops with a clear error, and goes on when there is room again."""

import itertools
from typing import Any

import pytest

from perdure import Agent, Session, StoreError, ToolContext, tool
from perdure.engines import fold_entries
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from tests.faults.account import violations
from tests.faults.conversation import without_intent
from tests.faults.witness import Record, Witness
from tests.seeds import chance
from tests.small_disk import mounted, remount
from tests.transcript import assert_valid

PROMPTS = 200
"""More than the disk can hold."""


@pytest.fixture
def small_disk(tmp_path):
    """A disk of two megabytes."""
    with mounted(tmp_path, "2m") as place:
        yield place


def talkative(store: Witness, effects: list[tuple[str, str]]) -> Session:
    """A session whose tool brings home something large each time."""
    content = chance("large")

    @tool
    async def fetch(context: ToolContext) -> str:
        """Fetches something."""
        effects.append(("fetch", context.idempotency_key))
        return content.randbytes(8000).hex()

    script: list[Any] = [call("fetch"), "Here it is."]
    model = ScriptedModel(*script * PROMPTS)
    return Agent(model, tools=[fetch], store=store).session("s")


@pytest.mark.parametrize("address", ["sqlite:{}/sessions.db", "file:{}/sessions"], ids=["sqlite", "files"])
async def test_a_session_on_a_full_disk_stops_and_goes_on_when_there_is_room(small_disk, address):
    book: list[Record] = []
    effects: list[tuple[str, str]] = []
    store = Witness(open_store(address.format(small_disk)), book)
    session = talkative(store, effects)

    async def talk_for_ever():
        for _ in itertools.count():
            await go_on(store, session)

    for _ in range(4):  # each time something smaller may still fit
        with pytest.raises(StoreError, match=r"the disk is full.*make room"):
            await talk_for_ever()
    assert len(effects) > 5
    remount(small_disk, "size=16m")
    assert await violations(store.store, book, after_cut=False) == []
    assert without_intent(await store.read("s"), effects) == []
    outcome = await go_on(store, session)
    assert outcome.status == "done"
    log = await store.read("s")
    assert_valid(fold_entries(log).messages)
    assert without_intent(log, effects) == []
    await session.aclose()
    await store.aclose()


async def go_on(store: Witness, session: Session):
    """Finish what was begun, or say something new."""
    if fold_entries(await store.read("s")).is_interrupted:
        return await session.resume()
    return await session.run("once more")
