"""Processes that are killed, for `test_kill.py`.

    python -m tests.faults.children serve           forks a driver for each order that comes in as a line of JSON
    python -m tests.faults.children drive ORDER     is such a driver itself, in an interpreter of its own

A driver takes a conversation from wherever it finds it to its end, so it may be killed and started any number of times.
It tells every entry of the log that it has seen stored, and its tools write each effect into a ledger outside.
"""

import asyncio
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from tests.transcript import assert_valid
from windlass import Agent, Permissions, Request, ToolContext, Verdict, open_store, tool
from windlass.core import call as preparing
from windlass.core import faults, loop
from windlass.core.event import Entry
from windlass.core.fold import State, fold
from windlass.core.store import Store
from windlass.testing import ScriptedModel, call, calls

SESSION = "s"
HUNG_SECONDS = 30.0
"""A driver that takes longer than this does not end at all."""


class Order(msgspec.Struct):
    """What a driver is to do."""

    folder: str
    """Where the store and the ledger are."""
    store: str = "sqlite"
    """The kind of store."""
    faults: str = ""
    """Points at which it kills itself, as in the environment variable."""
    bug: str = ""
    """The name of a bug to have, for the tests of the test."""
    kill_after_seconds: float | None = None
    """When it is killed from outside."""


class Report(msgspec.Struct):
    """What became of a driver."""

    status: int
    """Its exit code; -9 when it was killed."""
    told: list[str]
    """The lines that it told before that."""
    seconds: float


# -- the server --------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Fork a driver for each order, and answer with its report. This process has no thread and no file open."""
    for line in sys.stdin:
        report = forked(msgspec.json.decode(line, type=Order))
        sys.stdout.write(f"{msgspec.json.encode(report).decode()}\n")
        sys.stdout.flush()


def forked(order: Order) -> Report:
    """Let a driver run until it ends, dies, or is killed."""
    reader, writer = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            drive(order, writer)
        except BaseException:  # noqa: BLE001 - it must not go on as a second server
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    told = listen(pid, reader, began, order.kill_after_seconds)
    _, status = os.waitpid(pid, 0)
    return Report(os.waitstatus_to_exitcode(status), told, time.monotonic() - began)


def listen(pid: int, reader: int, began: float, kill_after_seconds: float | None) -> list[str]:
    """What a driver tells until it ends; it is killed when its time has come."""
    text = b""
    deadline = began + (HUNG_SECONDS if kill_after_seconds is None else kill_after_seconds)
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            deadline = began + 2 * HUNG_SECONDS
            text += b"TOO SLOW\n" if kill_after_seconds is None else b""
        elif chunk := os.read(reader, 65536):
            text += chunk
        else:
            break
    os.close(reader)
    *lines, _torn = text.decode().split("\n")
    return lines


# -- the driver --------------------------------------------------------------------------------------------------------


def drive(order: Order, pipe: int) -> None:
    """Take the conversation to its end, in this process."""
    if order.faults:
        faults.arm_from(order.faults)
    if order.bug:
        BUGS[order.bug]()
    asyncio.run(converse(order.folder, order.store, lambda line: os.write(pipe, f"{line}\n".encode())))


def kept(folder: str, store: str) -> Store:
    """Where the conversation is kept."""
    return open_store(f"{store}:{folder}/sessions")


async def converse(folder: str, kind: str, tell: Callable[[str], object]) -> None:
    """Begin, go on with, or add to the conversation, until both prompts have their answers."""

    async def watch(entry: Entry) -> None:
        if entry.seq:
            tell(f"stored {entry.seq} {entry.id}")

    store = kept(folder, kind)
    agent = Agent(model(tell), tools=tools(f"{folder}/ledger"), store=store, permission=Permissions(handler=agree))
    session = agent.replace(watchers=[watch]).session(SESSION)
    while True:
        state = fold(await store.read(SESSION))
        if state.interrupted:
            outcome = await session.resume()
        elif missing := next((prompt for prompt in ("go", "again") if prompt not in prompts(state)), None):
            outcome = await session.run(missing)
        else:
            break
        tell(f"ended {outcome.status} {outcome.reason}")
    await session.aclose()
    await store.aclose()
    tell("finished")


def prompts(state: State) -> list[str]:
    """What the person has said."""
    return [message.text for message in state.messages if message.role == "user"]


async def agree(requests: Any) -> list[Verdict]:
    """Everything is allowed, after a moment."""
    await asyncio.sleep(0)
    return [Verdict(allow=True)] * len(requests)


def model(tell: Callable[[str], object]) -> ScriptedModel:
    """Follows the conversation wherever it stands, and tells about requests that no provider would take."""
    script = {
        "go": (
            calls(call("pay"), call("put"), call("look"), call("pay")),
            call("sign"),
            calls(call("put"), call("sign"), call("pay")),
            "Done.",
        ),
        "again": (call("pay"), "Fine."),
    }

    def answer(request: Request) -> Any:
        try:
            assert_valid(request.messages)
        except AssertionError as error:
            tell(f"INVALID {error}")
        turn, place = 0, len(request.messages)
        while request.messages[place - 1].role != "user":
            place -= 1
            turn += request.messages[place].role == "tool"
        return script[request.messages[place - 1].text][turn]

    return ScriptedModel(answer, repeat_last=True)


def tools(ledger: str) -> list[Any]:
    """One of each kind: what may happen once, what may be repeated, and a function on a thread."""

    def write(name: str, key: str) -> None:
        """One line for each effect. A receiver that is idempotent knows a key that it has seen."""
        file = os.open(ledger, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(file, f"{name} {key}\n".encode())
        os.close(file)

    @tool(permission=True)
    async def pay(context: ToolContext) -> str:
        """Pays."""
        await asyncio.sleep(0.001)  # on the way there and back it can be killed too
        write("pay", context.idempotency_key)
        await asyncio.sleep(0.001)
        return "paid"

    @tool(effect="idempotent")
    async def put(context: ToolContext) -> str:
        """Puts something somewhere."""
        write("put", context.idempotency_key)
        await asyncio.sleep(0)
        return "put"

    @tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Looks."""
        write("look", context.idempotency_key)
        await asyncio.sleep(0)
        return "seen"

    @tool(parallel=False)
    def sign(context: ToolContext) -> str:
        """Signs, on a thread."""
        write("sign", context.idempotency_key)
        return "signed"

    return [pay, put, look, sign]


# -- bugs, to see that the test finds them -----------------------------------------------------------------------------


def rerun_unknown_calls() -> None:
    """Forget that a call had begun before the crash."""
    prepared = preparing.prepared

    async def forgetful(run, call):
        run.state.started.pop(call.call_id, None)
        return await prepared(run, call)

    preparing.prepared = forgetful


def store_no_intents() -> None:
    """Begin effects without saying so."""

    async def nothing(_run, _wave):
        pass

    loop.intend = nothing


BUGS = {"rerun unknown calls": rerun_unknown_calls, "store no intents": store_no_intents}


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    if program == "serve":
        serve()
    else:
        drive(msgspec.json.decode(arguments[0], type=Order), sys.stdout.fileno())
