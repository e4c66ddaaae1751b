"""Agents whose models need no memory: each answers from what it is told, so any process can go on with them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure import Agent, Message, Session, Tool, ToolContext, tool
from perdure._core.log.store import get_process_wide_session_key
from perdure.events import Entry, Event
from perdure.models import Request
from perdure.stores import MemoryStore, Store
from perdure.testing import ScriptedModel, call, calls

Say = Callable[[Request], Any]


def since_prompt(request: Request) -> Sequence[Message]:
    """What was said since the last prompt."""
    said = list(request.messages)
    first = max(place for place, each in enumerate(said) if each.role == "user" and not each.origin)
    return said[first:]


def following(*steps: Any) -> ScriptedModel:
    """A model that answers each prompt with these steps, one after the other; the last of them is words."""

    def say(request: Request) -> Any:
        return steps[sum(each.role == "assistant" for each in since_prompt(request))]

    return ScriptedModel(say, repeat_last=True)


def act_tool(done: list[str], name: str = "act") -> Tool[..., Any]:
    """An effect that must not happen twice; what has happened is written down outside."""

    @tool(name=name)
    async def act(what: str, context: ToolContext[Any]) -> str:
        """Acts."""
        done.append(f"{context.idempotency_key.rpartition('/')[0].partition('/')[2]} {what}")
        return f"did {what}"

    return act


def family(done: list[str], store: Store | str = "memory:", **options: Any) -> Agent[Any]:
    """A chief who asks two scouts at once and then a clerk; each scout has a helper, and all of them act."""
    helper = Agent(following(call("act", what="help"), "Helped."), name="helper", tools=[act_tool(done)])
    scout = Agent(
        following(calls(call("act", what="scout"), call("helper", task="Help me.")), "Scouted."),
        name="scout",
        tools=[act_tool(done), helper.as_tool()],
    )
    clerk = Agent(following(call("act", what="note"), "Noted."), name="clerk", tools=[act_tool(done)])
    both = calls(call("scout", task="Go north."), call("scout", task="Go south."), call("act", what="lead"))
    return Agent(
        following(both, call("clerk", task="Write it down."), call("clerk", task="Write more down."), "All is done."),
        name="chief",
        tools=[act_tool(done), scout.as_tool(), clerk.as_tool(durable=True)],
        store=store,
        **options,
    )


S = TypeVar("S", bound=MemoryStore)


async def left_behind_in(store: S, entries: Sequence[Entry], session_id: str = "s") -> S:
    """The same store; a process has died in it after these entries."""
    lease = await store.acquire(session_id)
    await store.append(lease, list(entries), sync=True)
    await store.release(lease)
    return store


async def left_behind(entries: Sequence[Entry], session_id: str = "s") -> MemoryStore:
    """A store in which a process has died after these entries."""
    return await left_behind_in(MemoryStore(), entries, session_id)


def below(events: Sequence[Event], path: str) -> list[Event]:
    """The events of one agent."""
    return [event for event in events if event.path == path]


async def cancel_background_tasks(session: Session[Any]) -> None:
    """Cancel what background agents do for a session, as an event loop does that is closed under them."""
    place = get_process_wide_session_key(session.store, session.session_id)
    working = [each.background for each in session.agent.extensions if each.background is not None]
    tasks = [task for each in working for task in each.list_tasks(place)]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
