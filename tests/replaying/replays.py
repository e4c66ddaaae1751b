"""Replays that have to agree, or must not: what the tests of replays share."""

from typing import Any

from perdure import Agent
from perdure.events import Entry
from perdure.stores import MemoryStore
from perdure.testing import Divergence, ReplayReport, ScriptedModel, Source, replay


async def agreeing(agent: Agent[Any], **given: Any) -> ReplayReport:
    """Replay session `s`, which has to agree. No model is asked, and the session stays as it is."""
    entries, asked = await agent.store.read("s"), _asked(agent)
    replayed = await replay(agent, "s", **given)
    assert replayed.divergence is None, str(replayed.divergence)
    assert await agent.store.read("s") == entries
    assert _asked(agent) == asked
    return replayed


async def diverging(agent: Agent[Any], source: Source = "s") -> Divergence:
    """Replay a session, which must not agree."""
    asked = _asked(agent)
    replayed = await replay(agent, source)
    assert replayed.divergence is not None
    assert _asked(agent) == asked
    return replayed.divergence


async def agreeing_wherever_it_is_cut(agent: Agent[Any], *, first: int = 3, **given: Any) -> None:
    """Replay what there would be of session `s` if the process had died after each of its entries."""
    entries = list(await agent.store.read("s"))
    for count in range(first, len(entries)):
        replayed = await replay(agent, entries[:count], **given)
        assert replayed.divergence is None, f"cut after {count}: {replayed.divergence}"


async def with_session(agent: Agent[Any], entries: list[Entry], **changes: Any) -> Agent[Any]:
    """The agent, whose session `s` has only these entries."""
    store = MemoryStore()
    lease = await store.acquire("s")
    await store.append(lease, entries, sync=True)
    await store.release(lease)
    return agent.replace(store=store, **changes)


def _asked(agent: Agent[Any]) -> list[int]:
    models = [each.model for each in agent.reachable]
    return [len(model.requests) for model in models if isinstance(model, ScriptedModel)]
