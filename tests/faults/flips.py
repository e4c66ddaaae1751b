"""Stores with one flipped bit: what they say, compared with what was written, and what a resumed run does.

For `test_bit_flips.py`. A log ends in the middle of a run, after any of its entries, as a killed process leaves it.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from perdure import Agent, PerdureError, tool, user
from perdure.events import Custom, Entry, MessageAdded, RunStarted, ToolStarted
from perdure.models import Request
from perdure.stores import MemoryStore, Post, Store, open_store
from perdure.testing import ScriptedModel, call, calls

SESSION, FORK, OTHER, LONG = "s", "fork", "other", "long"
INPUT = "order-1"
TURNS = (call("pay", number=1), calls(call("pay", number=2), call("pay", number=3)), "Paid.")


class Written(NamedTuple):
    """A closed store, and what it said before."""

    folder: Path
    spec: str
    """Of the store, with the folder left out."""
    said: Any
    begun: frozenset[int]
    """The payments whose intents are stored, so that they have happened."""

    def copy(self, folder: Path) -> str:
        """Copy it, and return the address of the copy."""
        shutil.copytree(self.folder, folder)
        return self.spec.format(folder)


class Told(logging.Handler):
    """Warnings of the stores."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def listening() -> Iterator[Told]:
    """Collect warnings while it lasts."""
    told = Told()
    logger = logging.getLogger("perdure")
    logger.addHandler(told)
    try:
        yield told
    finally:
        logger.removeHandler(told)


def agent(store: Store, paid: list[int]) -> Agent:
    """An agent that pays three times, and answers."""

    @tool
    async def pay(number: int) -> str:
        """Pay."""
        paid.append(number)
        return f"paid {number}"

    return Agent(ScriptedModel(answer, repeat_last=True), tools=[pay], store=store)


def answer(request: Request) -> Any:
    """The reply to a conversation as far as it has come."""
    return TURNS[min(sum(message.role == "tool" for message in request.messages), len(TURNS) - 1)]


async def whole_log() -> list[Entry]:
    """The log of a run that nothing has cut off."""
    store = MemoryStore()
    await agent(store, []).session(SESSION).run("go", input_id=INPUT)
    return await store.read(SESSION)


async def write(spec: str, folder: Path, log: Sequence[Entry]) -> Written:
    """Fill a store with this log and some company, and close it."""
    os.mkdir(folder)  # noqa: PTH102 - in a test, nothing else waits
    store = open_store(spec.format(folder))
    try:
        await _append(store, SESSION, log)
        await _append(store, OTHER, [Entry(n, 1.0, Custom("note", {"n": n}), f"o-{n}") for n in range(1, 30)])
        await _append(store, LONG, [Entry(1, 1.0, MessageAdded(user("long " * 4_000)), "l-1")])
        await store.post(SESSION, Post("post-1", "steer", msgspec.to_builtins(user("faster")), 1.0))
        await store.post("new", Post("post-2", "steer", {"text": "begin"}, 1.0))
        await store.fork(SESSION, FORK, at=3)
        await _append(store, FORK, [Entry(4, 1.0, Custom("forked"), "f-4")])
        said = await say(store)
    finally:
        await store.aclose()
    return Written(folder, spec, said, frozenset(begun_payments(log)))


def begun_payments(log: Sequence[Entry]) -> list[int]:
    """The payments with an intent in the log."""
    events = [entry.event for entry in log]
    made = [each for event in events if isinstance(event, MessageAdded) for each in event.message.tool_calls]
    numbers = {each.call_id: msgspec.json.decode(each.arguments)["number"] for each in made}
    return [numbers[event.call_id] for event in events if isinstance(event, ToolStarted)]


async def _append(store: Store, session_id: str, log: Sequence[Entry]) -> None:
    lease = await store.acquire(session_id)
    for entry in log:
        await store.append(lease, [entry], sync=isinstance(entry.event, RunStarted | ToolStarted))
    await store.release(lease)


async def say(store: Store) -> Any:
    """Everything that a store says."""
    ids = (SESSION, FORK, OTHER, LONG, "new")
    return msgspec.to_builtins(
        [
            sorted(await store.list(), key=lambda info: info.session_id),
            [[await store.info(each), await store.read(each), await store.posts(each)] for each in ids],
        ]
    )


def flip(folder: Path, chance: Random, choose: Callable[[Path], bool] = lambda _: True) -> str:
    """Flip one bit of one of the files in a folder; return where."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size and choose(path)]
    sizes = [file.stat().st_size for file in files]
    (path,) = chance.choices(files, chance.choice(([1] * len(files), sizes)))  # also small ones often
    content = bytearray(path.read_bytes())
    bit = chance.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return f"{path.name}, byte {bit // 8}, bit {bit % 8}"


async def findings(written: Written, address: str, *, by_resume: bool) -> tuple[list[str], list[str]]:
    """What is wrong with a damaged copy; and what was told of the damage."""
    wrong: list[str] = []
    store = open_store(address)
    with listening() as told:
        try:
            is_equal = await say(store) == written.said
        except PerdureError as error:
            told.messages.append(str(error))
            is_equal = False
        if not is_equal and not told.messages:
            wrong.append("it says something else, and nothing of the damage")
        paid = list(written.begun)
        session = agent(store, paid).session(SESSION)
        try:
            await (session.resume() if by_resume else session.run("go", input_id=INPUT))
        except PerdureError as error:
            told.messages.append(str(error))
        finally:
            await session.aclose()
        wrong += [f"payment {number} is made twice" for number in (1, 2, 3) if paid.count(number) > 1]
    await store.aclose()
    return wrong, told.messages
