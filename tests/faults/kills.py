"""Processes that are killed, one after the other, and what is left then. Above: `trials.py`. Below: `scene.py`."""

import random
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from tests.faults.children import Place
from tests.faults.clerk import complain, keep_house
from tests.faults.report import Report
from tests.faults.scene import Scene
from tests.faults.zygote import Child, Nursery


class KillTrial(msgspec.Struct, tag=True, frozen=True):
    """Processes drive conversations and are killed, one after the other; the last one comes to the end."""

    folder: str
    place: Place
    seed: str
    kills: Sequence[str]
    """For each process but the last its fault points, or `after N`: when it has told as many lines, and a bit."""
    bug: str = ""

    def carry_out(self, children: Nursery) -> Report:
        """Chains of kills; now and then with two sessions in one process, beside another one, or with letters."""
        chance = random.Random(self.seed)
        scene = Scene(children, self.folder, self.place, self.seed, bug=self.bug)
        sessions = ["s", "t"] if chance.random() < 0.25 else ["s"]
        neighbours = [scene.fork(["n"])] if chance.random() < 0.15 else []
        poster = scene.fork_poster(sessions) if chance.random() < 0.3 else None
        kills: list[str] = []
        for kill in self.kills:
            child = scene.fork(sessions, faults=armed(kill), afresh=chance.random() < 0.3)
            if not die(children, child, kill, chance):
                break
            kills.append(kill_name(kill))
        if poster is not None:
            children.end(poster)
        last = scene.fork(sessions)
        children.end(last, *neighbours)
        wrong = scene.audit(sessions, last)
        for neighbour in neighbours:
            wrong += scene.audit(["n"], neighbour)
        return scene.closed(Report(len(kills), wrong, kills, last.seconds))


class ClerkTrial(msgspec.Struct, tag=True, frozen=True):
    """Processes that fork, redact, delete and post are killed; everything is whole then, or not there at all."""

    folder: str
    place: Place
    seed: str
    kills: Sequence[str]
    """As in a `KillTrial`; each process is followed by the next one in the same store."""
    lies: bool = False
    """Whether they say that something is deleted, and do not delete it."""

    def carry_out(self, children: Nursery) -> Report:
        """Each clerk has sessions of its own, which are looked at when it is dead."""
        chance = random.Random(self.seed)
        Path(self.folder).mkdir(parents=True)
        seen, wrong = list[str](), list[str]()
        for number, kill in enumerate(self.kills):
            name = f"clerk-{number}"
            clerk = children.fork(partial(keep_house, self.place, name, armed(kill), self.lies))
            if die(children, clerk, kill, chance):
                seen.append(kill_name(kill))
            judge = children.fork(partial(complain, self.place, name, clerk.lines))
            children.end(judge)
            wrong += [line for line in clerk.lines if line.startswith(("CRASHED", "HUNG"))] + judge.lines
        if not wrong:
            shutil.rmtree(self.folder)
        return Report(len(seen), wrong, seen)


def armed(kill: str) -> str:
    """The fault points of a process that is to be killed so."""
    return kill if "=" in kill else ""


def die(children: Nursery, child: Child, kill: str, chance: random.Random) -> bool:
    """Let a process run until it is killed; `False` when it came to its end before that."""
    if armed(kill):
        children.end(child)
    else:
        children.until_told(child, int(kill.removeprefix("after ")), chance)
        children.kill(child)
    return child.was_killed


def kill_name(kill: str) -> str:
    """Where it came, for whoever counts: a fault point, or `after`."""
    return kill.partition("=")[0].partition(" ")[0]
