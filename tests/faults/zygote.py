"""A warm process that forks others: it has everything loaded, no thread, no event loop and no store open.

Above: `trials.py`, which says what is done with the children. Below: the system.
"""

import contextlib
import faulthandler
import os
import random
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator

from tests.faults.children import Tell

HUNG_SECONDS = 45.0
"""A process that takes longer than this does not end at all."""
PAUSE_SECONDS = 0.004
"""Between what a process tells and its end lies up to this much, so that the end comes anywhere."""
KILLED = -signal.SIGKILL

_CHUNK = 65536


class Bell:
    """Rings when a child stops, goes on or ends."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def hush(self) -> None:
        """Forget that it has rung."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.reader, _CHUNK)

    def leave(self) -> None:
        """In a child, which has no children."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.reader)
        os.close(self._writer)


class Child:
    """A process that was forked from this one, and the lines that it has told."""

    def __init__(self, bell: Bell, work: Callable[[Tell], object]) -> None:
        self.reader, writer = os.pipe()
        self.began = time.monotonic()
        self.seconds = 0.0
        """How long it took, once it has ended."""
        self.lines: list[str] = []
        self.status: int | None = None
        """Its exit code, once it has ended; -9 when it was killed."""
        self.is_stopped = False
        self.is_silent = False
        """Whether it will tell nothing more."""
        self._torn = b""
        self.pid = os.fork()
        if self.pid == 0:
            bell.leave()
            os.close(self.reader)
            _live(work, writer)
        os.close(writer)
        os.set_blocking(self.reader, False)

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more, and all that it told has been heard."""
        return self.status is not None and self.is_silent

    @property
    def was_killed(self) -> bool:
        """Whether it died by SIGKILL."""
        return self.status == KILLED

    def send(self, number: signal.Signals) -> None:
        """A signal, unless it is too late."""
        if self.status is None:
            os.kill(self.pid, number)

    def look(self) -> None:
        """Hear what it has told, and see how it is, without waiting."""
        while not self.is_silent:
            try:
                chunk = os.read(self.reader, _CHUNK)
            except BlockingIOError:
                break
            if not chunk:
                self.is_silent = True
                os.close(self.reader)
            *whole, self._torn = (self._torn + chunk).split(b"\n")
            self.lines += [line.decode() for line in whole]
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                break
            self._note(status)

    def _note(self, status: int) -> None:
        if os.WIFSTOPPED(status):
            self.is_stopped = True
        elif os.WIFCONTINUED(status):
            self.is_stopped = False
        else:
            self.status = os.waitstatus_to_exitcode(status)
            self.seconds = time.monotonic() - self.began
            self.is_stopped = False


def _live(work: Callable[[Tell], object], pipe: int) -> None:
    """The whole life of a child: it never comes back."""
    status = 1
    faulthandler.enable(pipe)  # one that crashes tells where
    try:
        work(lambda line: os.write(pipe, f"{line}\n".encode()))
        status = 0
    except BaseException:  # noqa: BLE001 - it must not go on as a second zygote
        text = traceback.format_exc()
        os.write(pipe, "".join(f"CRASHED {line}\n" for line in text.splitlines()).encode())
    finally:
        os._exit(status)


class Nursery:
    """The children that a trial has; none outlives it."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._children: list[Child] = []

    def fork(self, work: Callable[[Tell], object]) -> Child:
        """A child that does this."""
        child = Child(self._bell, work)
        self._children.append(child)
        return child

    def wait(self, done: Callable[[], object], seconds: float = HUNG_SECONDS) -> bool:
        """Listen to all children until something is so; `False` when it is not so after that time."""
        deadline = time.monotonic() + seconds
        while True:
            for child in self._children:
                child.look()
            if done():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            readers = [child.reader for child in self._children if not child.is_silent]
            select.select([self._bell.reader, *readers], [], [], left)
            self._bell.hush()

    def until_told(self, child: Child, lines: int, chance: random.Random) -> None:
        """Until it has told so many lines, and a bit longer; or until it has ended or stopped by itself."""

        def is_over() -> bool:
            return child.has_ended or child.is_stopped

        self.wait(lambda: is_over() or len(child.lines) >= lines)
        self.wait(is_over, chance.uniform(0, PAUSE_SECONDS if lines else 10 * PAUSE_SECONDS))

    def end(self, *children: Child) -> None:
        """Let these come to their ends; one that hangs is killed, and says so."""
        if not self.wait(lambda: all(child.has_ended for child in children)):
            for child in children:
                if not child.has_ended:
                    child.lines.append("HUNG")
            self.kill(*children)

    def kill(self, *children: Child) -> None:
        """At once."""
        for child in children:
            child.send(signal.SIGKILL)
        self.wait(lambda: all(child.has_ended for child in children))

    def close(self) -> None:
        """Nobody is left."""
        self.kill(*self._children)
        self._children.clear()


@contextlib.contextmanager
def nursery(bell: Bell) -> Iterator[Nursery]:
    """Children for a while."""
    children = Nursery(bell)
    try:
        yield children
    finally:
        children.close()
