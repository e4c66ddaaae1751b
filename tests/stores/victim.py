"""Processes that use a store and are killed: python -m tests.stores.victim

Reads orders, a line of JSON each, and carries each out in a child that is forked for it and kills itself at the end:
nothing is released, nothing closed. Tells what the child was acknowledged, also as a line of JSON. This process itself
never opens a store, so that forking is safe and takes a few milliseconds.
"""

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import msgspec

from perdure import PerdureError
from perdure.stores import Lease, Post, PostgresStore, decode_entry, open_store
from tests.architecture.source import ROOT


class Order(msgspec.Struct, frozen=True):
    """What to do before dying."""

    store: str
    """As `open_store` takes it."""
    tenant: str
    session_id: str
    take_over: bool
    batches: list[list[str]]
    """Entries to append, as JSON; each batch is one append."""
    post: Post | None


class Report(msgspec.Struct, frozen=True):
    """What was acknowledged."""

    refusal: str = ""
    """The name of the error that `acquire` raised."""
    lease: Lease | None = None
    appended: int = 0
    """How many batches."""
    posted: bool | None = None


class Killer:
    """The other end: gives orders to a process of this module."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.stores.victim"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe)

    def kill(self, order: Order) -> Report:
        """Have an order carried out by a process that does not survive it."""
        orders, reports = self._process.stdin, self._process.stdout
        assert orders is not None
        assert reports is not None
        orders.write(msgspec.json.encode(order) + b"\n")
        orders.flush()
        return msgspec.json.decode(reports.readline(), type=Report)

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=30)


async def carry_out(order: Order) -> Report:
    """Do all of it, or stop where the session is refused."""
    store = PostgresStore(order.store, tenant=order.tenant) if order.tenant else open_store(order.store)
    posted = None if order.post is None else await store.post(order.session_id, order.post)
    options: dict[str, Any] = {"take_over": True} if order.take_over else {}
    try:
        lease = await store.acquire(order.session_id, **options)
    except PerdureError as error:
        return Report(type(error).__name__, posted=posted)
    for batch in order.batches:
        await store.append(lease, [decode_entry(line.encode()) for line in batch], sync=False)
    return Report("", lease, len(order.batches), posted)


async def live_and_die(order: Order, pipe: int) -> None:
    """Inside the loop, for closing that would let go of things."""
    report = await carry_out(order)
    os.write(pipe, msgspec.json.encode(report))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Carry out order after order."""
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(reader)
            asyncio.run(live_and_die(order, writer))
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            report = pipe.read()
        os.waitpid(pid, 0)
        sys.stdout.buffer.write(report + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
