"""Races of several processes for one session. Above: `trials.py`. Below: `zygote.py` and the stores."""

import asyncio
import os
import random
from collections.abc import Sequence

import msgspec

from perdure import SessionBusy
from perdure._core.values.clock import new_id
from perdure.events import Custom, Entry
from perdure.stores import Fenced, Store
from tests.faults.children import Place, Tell
from tests.faults.report import Report
from tests.faults.zygote import Child, Nursery


class Gates:
    """Let all racers through at once. Each tells one line, then waits at the next gate.

    There are two, in turn: whoever is quick cannot slip through the same one twice before the others have passed it.
    """

    def __init__(self, racers: int) -> None:
        self._pipes = (os.pipe(), os.pipe())
        self._racers = racers
        self.passed = 0
        """How many gates lie behind us."""

    def open(self) -> None:
        """For each racer once."""
        _, writer = self._pipes[self.passed % 2]
        os.write(writer, b"." * self._racers)
        self.passed += 1

    def enter(self) -> None:
        """As a racer, in whose process this is its own: wait until the next gate is opened."""
        reader, _ = self._pipes[self.passed % 2]
        os.read(reader, 1)
        self.passed += 1

    def close(self) -> None:
        """Nobody will race any more."""
        for pipe in self._pipes:
            os.close(pipe[0])
            os.close(pipe[1])


class RaceTrial(msgspec.Struct, tag=True, frozen=True):
    """One race after the other, each for a session of its own, by the same processes."""

    place: Place
    seed: str
    racers: int
    rounds: int
    take_over: bool = False
    """Whether everybody takes the session from whoever has it; then everybody appends to it."""

    def carry_out(self, children: Nursery) -> Report:
        """As many races as there are rounds."""
        chance = random.Random(self.seed)
        left_behind(self.place, [f"race-{number}" for number in range(self.rounds) if chance.random() < 0.3], children)
        gates = Gates(self.racers)
        racers = [children.fork(lambda tell: asyncio.run(self._race(gates, tell))) for _ in range(self.racers)]
        wrong: list[str] = []
        for _ in range(self.rounds):
            words = [_heard(children, gates, racers) for _ in range(3 if self.take_over else 2)]
            judge = _of_those_who_take_over if self.take_over else _of_those_who_ask
            wrong += judge(racers, words[-1])
        children.end(*racers)
        gates.close()
        wrong += [line for racer in racers for line in racer.lines if line.startswith(("CRASHED", "HUNG"))]
        return Report(self.rounds, wrong)

    async def _race(self, gates: Gates, tell: Tell) -> None:
        store = self.place.opened()
        for number in range(self.rounds):
            await store.read(f"race-{number}")  # it is open now
            tell("ready")
            gates.enter()
            await (_overtake if self.take_over else _compete)(store, f"race-{number}", gates, tell)
        await store.aclose()


def left_behind(place: Place, sessions: Sequence[str], children: Nursery) -> None:
    """Some sessions belong to somebody who has died."""

    async def hold(tell: Tell) -> None:
        store = place.opened()
        for session_id in sessions:
            await store.acquire(session_id)
        tell("held")
        await asyncio.Event().wait()

    holder = children.fork(lambda tell: asyncio.run(hold(tell)))
    children.wait(lambda: holder.lines or holder.has_ended)
    children.kill(holder)


# -- the racers --------------------------------------------------------------------------------------------------------


async def _compete(store: Store, session_id: str, gates: Gates, tell: Tell) -> None:
    """Ask for the session; hold what was won until everybody has asked."""
    try:
        lease = await store.acquire(session_id)
    except SessionBusy as error:
        tell(f"busy: {error}")
        gates.enter()
    else:
        tell("won")
        gates.enter()
        await store.release(lease)


async def _overtake(store: Store, session_id: str, gates: Gates, tell: Tell) -> None:
    """Take the session, and when everybody has, use it."""
    lease = await store.acquire(session_id, take_over=True)
    tell("taken")
    gates.enter()
    try:
        await store.append(lease, [Entry(1, 0.0, Custom("mine"), f"{new_id()}-1")], sync=False)
        tell("won")
    except Fenced:
        tell("fenced")
    gates.enter()
    await store.release(lease)


# -- the judge ---------------------------------------------------------------------------------------------------------


def _heard(children: Nursery, gates: Gates, racers: Sequence[Child]) -> list[str]:
    """What each has told since the last gate; then the next one is opened."""
    place = gates.passed
    children.wait(lambda: all(len(racer.lines) > place or racer.has_ended for racer in racers))
    gates.open()
    return [racer.lines[place] if len(racer.lines) > place else "gone" for racer in racers]


def _of_those_who_ask(racers: Sequence[Child], words: Sequence[str]) -> list[str]:
    """One has won, and all others know who that is."""
    winners = [racer for racer, word in zip(racers, words, strict=True) if word == "won"]
    if len(winners) != 1:
        return [f"{len(winners)} of {len(racers)} have won: {words}"]
    others = [word for word in words if word != "won"]
    return [f"this does not name {winners[0].pid}: {word}" for word in others if f" {winners[0].pid} " not in word]


def _of_those_who_take_over(racers: Sequence[Child], words: Sequence[str]) -> list[str]:
    """The last one has the session, and all others are fenced."""
    if sorted(words) == [*["fenced"] * (len(racers) - 1), "won"]:
        return []
    return [f"of {len(racers)} who took it over one had to be left: {words}"]
