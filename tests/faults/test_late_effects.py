"""A process that is stopped in the first of three calls and replaced begins none of the others when it goes on.

Real processes, real signals, and a ledger outside of everything that the store knows.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import Session, SessionBusy, Status
from perdure._core.log.store import CONFIRMED_SECONDS
from perdure._core.values.clock import new_id
from perdure.events import ToolFinished
from perdure.stores import Store, UnsupportedByStore
from tests.faults.late_driver import NAMES, SESSION, open_place, paying_agent

ENOUGH_SECONDS = 60.0


@pytest.fixture
def ledger(tmp_path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def address(request, tmp_path) -> str:
    if request.param == "postgres":
        return f"{request.getfixturevalue('postgres').address()}#{new_id()}"
    return f"{request.param}:{tmp_path}/sessions"


@contextlib.asynccontextmanager
async def stopped_driver(address: str, ledger: Path, effect: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has stopped itself in its first call."""
    command = (sys.executable, "-m", "tests.faults.late_driver", address, str(ledger), effect)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(ENOUGH_SECONDS):
            while _state_of(process.pid) != "T":
                assert process.returncode is None, "it has ended before it was stopped"
                await asyncio.sleep(0.01)
        # Its lease was confirmed before it stopped: that is over now, even if the store was so slow to confirm it on a
        # busy machine that the confirmation counts for a multiple of the usual time.
        await asyncio.sleep(50 * CONFIRMED_SECONDS)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


async def wake(process: asyncio.subprocess.Process) -> str:
    """Let the process go on to its end, and return how its run ended for it."""
    process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(ENOUGH_SECONDS):
        output, _ = await process.communicate()
    return output.decode().strip()


async def resume_when_free(session: Session) -> str:
    """Resume the run as soon as the lease of the other process has expired."""
    async with asyncio.timeout(ENOUGH_SECONDS):
        while True:
            with contextlib.suppress(SessionBusy):
                return (await session.resume()).status
            await asyncio.sleep(0.05)


def paid(ledger: Path) -> Counter[tuple[bool, str]]:
    """How often each payment was made, by this process (`True`) or by the other one."""
    lines = [line.split() for line in ledger.read_text().splitlines()]
    return Counter([(int(pid) == os.getpid(), name) for pid, name, _ in lines])


async def statuses(store: Store) -> list[Status]:
    return [each.event.result.status for each in await store.read(SESSION) if isinstance(each.event, ToolFinished)]


PLACES = ("sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres")))


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize("address", PLACES, indirect=True)
async def test_a_stopped_driver_that_was_taken_over_begins_no_other_effect(address, ledger):
    async with stopped_driver(address, ledger, "at_most_once") as process:
        store = open_place(address)
        agent = paying_agent(store, ledger, "at_most_once", "I do not know.", stops=False)
        assert (await agent.session(SESSION).resume(take_over=True)).status == "done"
        assert await wake(process) == "fenced"
        assert paid(ledger) == {(False, "one"): 1}
        assert await statuses(store) == [Status.UNKNOWN] * 3
        await store.aclose()


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize("address", PLACES, indirect=True)
async def test_what_a_person_has_made_again_is_not_made_by_the_driver_that_was_stopped(address, ledger):
    async with stopped_driver(address, ledger, "ask") as process:
        store = open_place(address)
        session = paying_agent(store, ledger, "ask", "Paid.", stops=False).session(SESSION)
        outcome = await session.resume(take_over=True)
        while outcome.status == "waiting":
            for question in outcome.questions:
                await session.answer(question.ask_id, "retry")
            outcome = await session.resume()
        assert outcome.status == "done"
        assert await wake(process) == "fenced"
        assert paid(ledger) == {(False, "one"): 1, **{(True, name): 1 for name in NAMES}}
        fences = [int(line.split()[2]) for line in ledger.read_text().splitlines()]
        assert fences[0] < min(fences[1:]), "the world outside can tell the two apart by the fence"
        await store.aclose()


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.needs("postgres")
@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_a_driver_that_was_stopped_for_longer_than_its_lease_begins_no_other_effect(address, ledger):
    async with stopped_driver(address, ledger, "at_most_once") as process:
        store = open_place(address)
        agent = paying_agent(store, ledger, "at_most_once", "I do not know.", stops=False)
        assert await resume_when_free(agent.session(SESSION)) == "done"
        assert await wake(process) == "fenced"
        assert paid(ledger) == {(False, "one"): 1}
        await store.aclose()


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize("address", ["file"], indirect=True)
async def test_a_stopped_driver_that_cannot_be_taken_over_finishes_what_it_began(address, ledger):
    async with stopped_driver(address, ledger, "at_most_once") as process:
        store = open_place(address)
        agent = paying_agent(store, ledger, "at_most_once", stops=False)
        with pytest.raises(UnsupportedByStore):
            await agent.session(SESSION).resume(take_over=True)
        assert await wake(process) == "done"
        assert paid(ledger) == {(False, name): 1 for name in NAMES}
        assert await statuses(store) == [Status.OK] * 3
        await store.aclose()
