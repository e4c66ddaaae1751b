"""Makes the logs that this version leaves behind: python -m tests.logs.record FOLDER

Run once for each release, with the code of that release, into a folder of its version; what it wrote is never changed
again. (1.0 is written anew for as long as it is not released, whenever a format or an event changes.) The same sessions
are written in three ways: as lines of JSON, into an SQLite file, and into a folder of files. Time, ids and the machine
are made up, so that doing it twice gives the same sessions.
"""

import asyncio
import collections.abc
import random
import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints
from unittest import mock

import msgspec

from perdure import Agent, Message, Permissions, Text, ToolCall, ToolResult, Usage, allow, deny, tool, user
from perdure._core.values import clock
from perdure._stores import lease_holder as holder
from perdure.events import EVENTS, Entry, Event, MessageAdded, ModelRequested, RunStarted, ToolStarted, Unknown
from perdure.stores import FileStore, MemoryStore, SqliteStore, Store, encode_entry
from perdure.testing import FakeClock, ScriptedModel, call, calls

TALK, CUT_OFF, EVERY_KIND = "talk", "cut-off", "every-kind"
SESSIONS = (TALK, CUT_OFF, EVERY_KIND)

FUTURE = {"kind": "from_the_future", "run_id": "run-f", "note": {"kept": ["as", "it", "came", 1, None]}}
"""An event of a kind that no version knows."""

_VALUES: dict[Any, object] = {
    str: "x",
    int: 3,
    float: 2.5,
    bool: True,
    Any: {"any": ["json", 1, None]},
    Message: user("x"),
    ToolResult: ToolResult("call-f", "lower", (Text("x"),)),
    Usage: Usage(10, 20),
}
"""What a field is filled with, by its type."""


@tool(effect="read")
def depth(of: str) -> str:
    """How deep it is.

    Args:
        of: The place.
    """
    return f"{of}: 12 fathoms"


@tool(effect="at_most_once")
def lower(anchor: str) -> str:
    """Let an anchor go.

    Args:
        anchor: Which one.
    """
    return f"{anchor} is down"


async def talk(store: Store) -> None:
    """A run with a call that was allowed and one that was denied."""
    model = ScriptedModel(
        calls(call("depth", of="the bay"), call("lower", anchor="the kedge")),
        "The bay is 12 fathoms deep. é \U0001f6a2",
    )
    permission = Permissions(deny("lower"), allow())
    agent = Agent(
        model, name="mate", tools=[depth, lower], store=store, permission=permission, clock=FakeClock(1_700_000_000.0)
    )
    session = agent.session(TALK)
    (await session.run("Where may we anchor?")).unwrap()
    await session.aclose()


def cut_off() -> list[Event]:
    """A run that ended with its process: one call had been started, one had not."""
    asked = (ToolCall("call-1", "lower", '{"anchor":"the bower"}'), ToolCall("call-2", "depth", '{"of":"the bar"}'))
    return [
        RunStarted("mate", run_id="run-c"),
        MessageAdded(user("Anchor here."), run_id="run-c"),
        ModelRequested(1, model="scripted", messages=1, run_id="run-c"),
        MessageAdded(Message("assistant", (Text("Aye."), *asked)), run_id="run-c"),
        ToolStarted("call-1", "lower", "at_most_once", "key-1", run_id="run-c"),
    ]


def every_kind() -> list[Event]:
    """One durable event of each kind, with every field filled."""
    kinds = [kind for _, kind in sorted(EVENTS.items()) if kind.durable and kind is not Unknown]
    return [*(filled(kind) for kind in kinds), Unknown("from_the_future", FUTURE, run_id="run-f")]


def filled(kind: type[Event]) -> Event:
    """An event with a value in every field."""
    return kind(**{**_fields(kind), "run_id": "run-f", "path": ""})


def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: _value(hints[name]) for name in kind.__struct_fields__}


def _value(hint: Any) -> object:
    first, *_ = [*get_args(hint), None]
    match get_origin(hint):
        case None:
            return _VALUES[hint] if hint in _VALUES else hint(**_fields(hint))
        case typing.Literal:
            return first
        case collections.abc.Mapping:
            return {"key": "value"}
        case origin if origin is tuple:
            return (_value(first),)
        case _:
            return _value(first)


def made_up(name: str, events: list[Event]) -> list[Entry]:
    """Entries of events that nobody has run."""
    return [Entry(seq, 1_700_000_000.0 + seq, event, f"{name}-{seq}") for seq, event in enumerate(events, 1)]


async def sessions() -> dict[str, list[Entry]]:
    """Everything that is written, the same each time."""
    store = MemoryStore()
    with always_the_same():
        await talk(store)
    others = {name: made_up(name, events) for name, events in ((CUT_OFF, cut_off()), (EVERY_KIND, every_kind()))}
    return {TALK: await store.read(TALK), **others}


async def fill(store: Store, logs: dict[str, list[Entry]]) -> None:
    """Write them into a store, in several appends, and close it."""
    for name, entries in logs.items():
        lease = await store.acquire(name)
        await store.append(lease, entries[:2], sync=True)
        await store.append(lease, entries[2:-1], sync=False)
        await store.append(lease, entries[-1:], sync=True)
        await store.release(lease)
    await store.aclose()


@contextmanager
def always_the_same() -> Iterator[None]:
    """Ids that are the same each time, and no trace of this machine."""
    time = SimpleNamespace(time_ns=lambda: 1_700_000_000 * 10**9)
    chance = SimpleNamespace(urandom=random.Random(1).randbytes)
    names = SimpleNamespace(gethostname=lambda: "museum")
    with (
        mock.patch.multiple(clock, time=time, os=chance),
        mock.patch.multiple(holder, socket=names, _process_identity=lambda _: ("", "")),
    ):
        yield


async def record(folder: Path) -> None:
    """Write the three forms into a folder."""
    logs = await sessions()
    told = FakeClock(1_700_000_000.0)
    stores: list[Store] = [
        SqliteStore(folder / "sessions.db", clock=told),
        FileStore(folder / "sessions", clock=told),
    ]
    for store in stores:
        with always_the_same():
            await fill(store, logs)
    for name, entries in logs.items():
        (folder / f"{name}.jsonl").write_bytes(b"".join([encode_entry(entry) + b"\n" for entry in entries]))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    asyncio.run(record(place))
