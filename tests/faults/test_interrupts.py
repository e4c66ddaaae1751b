"""Signals whose handlers raise, at any moment: what was acknowledged is stored, nobody is kept out, and nothing hangs.

The handler of a signal may raise between any two instructions of the main thread. What an interrupt ends is either the
process or what `asyncio.run` was doing; then the program may go on. `interrupted_writer.py` is that program.
"""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from perdure._core.values.clock import new_id
from tests.architecture.source import ROOT
from tests.faults.children import Place
from tests.seeds import chance

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
SECONDS = 30.0
"""The time within which a process has ended what an interrupt has ended."""


class Trial:
    """One program, which is interrupted a few times."""

    def __init__(self, place: Place, dice: random.Random, errors: Path) -> None:
        self.place = place
        self.dice = dice
        self.signals = 0
        self.stored: list[tuple[str, int, str]] = []
        self.has_begun = threading.Event()
        self.is_at_rest = threading.Event()
        """Set when the program has survived, and has appended once more."""
        self.errors = errors
        manner = dice.choice(["ends", "continues"])
        command = [sys.executable, "-m", "tests.faults.interrupted_writer", place.address, place.tenant, manner]
        with errors.open("wb") as file:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
            )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.has_begun.set()
            what, *rest = line.decode().split()
            if what == "last":
                self.is_at_rest.set()
            else:
                self.stored.append((rest[0], int(rest[1]), rest[2]))
        self.has_begun.set()
        self.is_at_rest.set()

    def interrupt(self) -> None:
        """Send one to three signals, some of them twice at almost the same moment."""
        assert self.process.stdin is not None
        assert self.has_begun.wait(SECONDS)
        for _ in range(self.dice.randint(1, 3)):
            time.sleep(self.dice.uniform(0.0, 0.15))
            number = self.dice.choice(SIGNALS)
            for _ in range(1 + (self.dice.random() < 0.3)):
                self.process.send_signal(number)
                self.signals += 1
                time.sleep(self.dice.uniform(0.0, 0.002))
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def look(self) -> list[str]:
        """Return what is wrong, as another process sees it, while the program still lives if it has survived."""
        if not self.is_at_rest.wait(SECONDS):
            self.process.send_signal(signal.SIGUSR2)  # it tells where it hangs
            time.sleep(1.0)
            return [f"it hangs: {self.errors.read_text(errors='replace')[-6000:]}"]
        return asyncio.run(self._compare())

    async def _compare(self) -> list[str]:
        store = self.place.opened()
        try:
            wrong: list[str] = []
            for session_id in {each[0] for each in self.stored}:
                found = [(entry.seq, entry.id) for entry in await store.read(session_id)]
                if [seq for seq, _ in found] != [*range(1, len(found) + 1)]:
                    wrong.append(f"{session_id} has gaps: {found}")
                wrong += [f"{each} is lost" for each in self.stored if each[0] == session_id and each[1:] not in found]
            lease = await asyncio.wait_for(store.acquire(f"other-{new_id()}"), SECONDS)
            await store.release(lease)
            return wrong
        except TimeoutError:
            return ["others cannot write"]
        finally:
            await store.aclose()

    def end(self) -> None:
        """End the program, however it fares."""
        self.process.kill()
        self.process.wait()
        self.reader.join(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["sqlite", "file", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def test_what_was_acknowledged_survives_signals_whose_handlers_raise(kind, request, tmp_path, long, report):
    dice, wanted, signals, trials = chance("interrupts", kind), (600 if long else 12), 0, 0
    address = request.getfixturevalue("postgres").address() if kind == "postgres" else ""
    while signals < wanted:
        trials += 1
        place = Place(address, new_id()) if address else Place(f"{kind}:{tmp_path / f'sessions-{trials}'}")
        trial = Trial(place, dice, tmp_path / f"{trials}.txt")
        try:
            trial.interrupt()
            wrong = trial.look()
        finally:
            trial.end()
        signals += trial.signals
        assert not wrong, "\n".join(wrong)
    report.append(f"interrupts, {kind}: {signals} signals in {trials} programs, nothing lost, none hung")
