"""A process that is paused or not, and replaced while it lives. Above: `trials.py`. Below: `scene.py`."""

import random
import signal

import msgspec

from tests.faults.children import Place
from tests.faults.plan import PROMPTS_ONLY
from tests.faults.report import Report
from tests.faults.scene import Scene
from tests.faults.zygote import Child, Nursery

LOCKED_SECONDS = 0.5
"""How long a process is given to take a session over. One that sleeps may keep the whole file locked meanwhile."""


class TakeoverTrial(msgspec.Struct, tag=True, frozen=True):
    """A process is paused in the middle of a conversation, another takes it over, and the first one wakes."""

    folder: str
    place: Place
    seed: str
    pause: str
    """Where it stops itself, as a fault point; `after N` lines; or `never N`: then it is replaced while it runs."""

    def carry_out(self, children: Nursery) -> Report:
        """The first one may find that it is fenced, or that somebody else drives, or that there is nothing left."""
        chance = random.Random(self.seed)
        scene = Scene(children, self.folder, self.place, self.seed)
        first = paused(scene, self.pause, chance)
        second = scene.fork([PROMPTS_ONLY], take_over=True, afresh=chance.random() < 0.3)
        was_alive = first.status is None
        children.wait(lambda: "p opened" in second.lines or second.has_ended, LOCKED_SECONDS)
        if "p opened" in second.lines:  # else the first one sleeps while it keeps the file locked
            children.until_told(second, chance.randint(0, 40), chance)
        first.send(signal.SIGCONT)
        children.end(first, second)
        last = scene.fork([PROMPTS_ONLY])
        children.end(last)
        done = was_alive and "p opened" in second.lines
        ends = [line.removeprefix("p ").partition(" ")[0] for line in first.lines[-1:] if done]
        return scene.closed(Report(int(done), scene.audit([PROMPTS_ONLY], last), ends, last.seconds))


def paused(scene: Scene, pause: str, chance: random.Random) -> Child:
    """A process that has stopped, somewhere; or that goes on, when it is not to."""
    at_point = "=" in pause
    child = scene.fork([PROMPTS_ONLY], faults=pause if at_point else "")
    if at_point:
        scene.nursery.wait(lambda: child.is_stopped or child.has_ended)
        return child
    scene.nursery.until_told(child, int(pause.partition(" ")[2]), chance)
    if not pause.startswith("never"):
        child.send(signal.SIGSTOP)
        scene.nursery.wait(lambda: child.is_stopped or child.has_ended)
    return child
