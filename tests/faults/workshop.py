"""Warm processes that carry out trials side by side, for the tests of kills, takeovers and races.

Above: the tests. Below: `trials.py`, in processes of their own.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from perdure._core.values import faults
from tests.architecture.source import ROOT
from tests.faults.report import Report

COMMAND = (sys.executable, "-m", "tests.faults.trials")
SIZE = 4
"""Trials that go on at the same time: they wait for the disk and for each other as much as they compute."""


class Tally:
    """What came of many trials."""

    def __init__(self) -> None:
        self.trials = 0
        self.done = 0
        """Kills, takeovers or races, all together."""
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        """What happened on the way, and how often."""
        self.slowest = 0.0
        """The longest that a process took to go on after all others, in seconds."""

    def __str__(self) -> str:
        recovery = f", recovered and finished within {self.slowest:.1f} s" if self.slowest else ""
        return f"{self.done} in {self.trials} trials{recovery}, {len(self.wrong)} violations"

    def add(self, trial: Any, report: Report) -> None:
        """One more."""
        self.trials += 1
        self.done += report.done
        self.seen.update(report.seen)
        self.slowest = max(self.slowest, report.seconds)
        self.wrong += [f"{wrong}\n    in {trial}" for wrong in report.wrong]


class Workshop:
    """Several warm processes."""

    def __init__(self) -> None:
        environment = {**os.environ, faults.FAULTS_VARIABLE: ""}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._benches = [subprocess.Popen(COMMAND, cwd=ROOT, env=environment, **pipes) for _ in range(SIZE)]

    def carry_out(self, trials: Iterable[Any], enough: int = sys.maxsize) -> Tally:
        """Trials, until enough has been done in them, or something went wrong, or there are no more."""
        tally, waiting, lock = Tally(), iter(trials), threading.Lock()

        def work(bench: "subprocess.Popen[bytes]") -> None:
            while True:
                with lock:
                    trial = None if tally.wrong or tally.done >= enough else next(waiting, None)
                if trial is None:
                    return
                report = _report(bench, trial)
                with lock:
                    tally.add(trial, report)

        with ThreadPoolExecutor(SIZE) as threads:
            for _ in threads.map(work, self._benches):
                pass
        return tally

    def close(self) -> None:
        """End them all."""
        for bench in self._benches:
            bench.communicate(timeout=30)


def _report(bench: "subprocess.Popen[bytes]", trial: Any) -> Report:
    orders, reports = bench.stdin, bench.stdout
    assert orders is not None
    assert reports is not None
    with contextlib.suppress(BrokenPipeError):
        orders.write(msgspec.json.encode(trial) + b"\n")
        orders.flush()
    answer = reports.readline()
    assert answer, f"the process that forks the others has died before or in {trial}: its words are on stderr"
    return msgspec.json.decode(answer, type=Report)
