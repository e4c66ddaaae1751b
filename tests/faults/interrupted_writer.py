"""A process that writes to a store, and whose signal handlers raise: to be interrupted at any moment.

It tells each entry that it has seen stored. What an interrupt ends is begun anew, in the same process, until the end of
its input tells it to stop; then it appends once more in every session, so that what an interrupt has left shows.

    python -m tests.faults.interrupted_writer ADDRESS TENANT ends|continues
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from types import FrameType

from perdure._core.values.clock import new_id
from perdure.events import Custom, Entry
from perdure.stores import Lease, Post, PostgresStore, Store, open_store

WAKING = {asyncio.BaseEventLoop.call_soon.__code__}
SESSIONS = 3
APPENDS = 12


class InterruptedError(Exception):  # noqa: A001 - nobody catches the other one here
    """What a handler raises that is no request to end."""


def tell(line: str) -> None:
    """Write a line in one piece."""
    os.write(1, f"{line}\n".encode())


def end_process(number: int, frame: FrameType | None) -> None:
    """As programs do that want their `finally` blocks on SIGTERM."""
    if is_waking(frame):
        delay(number)
        return
    sys.exit(3)


def raise_interrupted(number: int, frame: FrameType | None) -> None:
    """As programs do that limit a time by an alarm; a moment later if asyncio would drop it.

    An ordinary exception that is raised in a callback of asyncio's own, such as that of `asyncio.wait`, is logged by
    the event loop, and what the callback would have told is lost: no library can prevent that.
    """
    if is_waking(frame) or (
        frame is not None and frame.f_code.co_filename == asyncio.tasks.__file__ and is_callback(frame)
    ):
        delay(number)
        return
    raise InterruptedError


def delay(number: int) -> None:
    """Have the handler of a signal called again in a millisecond."""
    signal.signal(signal.SIGALRM, signal.getsignal(number))
    signal.setitimer(signal.ITIMER_REAL, 0.001)


def is_waking(frame: FrameType | None) -> bool:
    """Return True while asyncio wakes a task whose future has its result.

    The future is done by then, and forgets whom it was to wake: an exception there leaves that task asleep for ever,
    even when it is cancelled. Nobody but asyncio can prevent that.
    """
    while frame is not None:
        if frame.f_code in WAKING:
            return True
        frame = frame.f_back
    return False


def is_callback(frame: FrameType) -> bool:
    """Return True if a function was called by the event loop itself."""
    return frame.f_back is not None and frame.f_back.f_code is asyncio.Handle._run.__code__


async def append(store: Store, lease: Lease, seq: int, *, sync: bool) -> None:
    """Append as the loop does: at once if that is possible."""
    entry = Entry(
        seq, 1.0, Custom("data", {"text": "x" * 100}), f"{lease.session_id}-{lease.fence}-{new_id()[-12:]}-{seq}"
    )
    append_now = getattr(store, "append_now", None)
    if append_now is None or not append_now(lease, [entry], sync=sync):
        await store.append(lease, [entry], sync=sync)
    tell(f"stored {lease.session_id} {entry.seq} {entry.id}")


async def drive(store: Store, session_id: str, *, count: int) -> None:
    """Append some entries to a session, in one lease."""
    lease = await store.acquire(session_id)
    try:
        entries = await store.read(session_id)
        head = entries[-1].seq if entries else 0
        for number in range(count):
            head += 1
            await append(store, lease, head, sync=number % 3 == 0)
            if number % 5 == 0:
                await store.post(session_id, Post(new_id(), "steer", {"text": "on"}, 1.0))
    finally:
        await store.release(lease)


async def drive_all(address: str, tenant: str, count: int, name: str) -> None:
    """Drive all sessions at once."""
    store = PostgresStore(address, tenant=tenant) if tenant else open_store(address)
    try:
        await asyncio.gather(*[drive(store, f"{name}-{number}", count=count) for number in range(SESSIONS)])
    finally:
        if os.getpid() % 2:  # some programs close their stores, and some do not
            await store.aclose()


def read_input(stopped: threading.Event) -> None:
    """Wait for the end of the input."""
    os.read(0, 1)
    stopped.set()


def main(address: str, tenant: str, manner: str) -> None:
    """Write until the input ends, or an interrupt ends the process."""
    faulthandler.register(signal.SIGUSR2)
    stopped = threading.Event()
    threading.Thread(target=read_input, args=(stopped,), daemon=True).start()
    signal.signal(signal.SIGTERM, end_process)
    signal.signal(signal.SIGUSR1, raise_interrupted)
    while not stopped.is_set():
        try:
            asyncio.run(drive_all(address, tenant, APPENDS, f"s-{new_id()}"))
        except (InterruptedError, KeyboardInterrupt, SystemExit):
            if manner == "ends":
                raise
    for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    asyncio.run(drive_all(address, tenant, 2, f"after-{os.getpid()}"))
    tell("last")
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:4])
