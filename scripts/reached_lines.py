"""Note which lines of the source each test reaches, so that a changed line is tried with the tests that can notice it.

    python -m scripts.reached_lines                all folders of tests, into build/reached
    python -m scripts.reached_lines core stores    only these folders or files; what was noted of the others stays

`scripts.mutants` reads the notes if there are any. They are made by a plugin of pytest, with the monitoring of Python
3.12: a line is told once for each test, and costs nothing when it runs again. A Python process that a test starts notes
its lines in a file (`scripts/started_processes`), unless it has an environment of its own.
"""

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from scripts.check import MARKS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/perdure")
NOTES = Path("build/reached")
STARTED = Path(__file__).resolve().parent / "started_processes"
LEFT_OUT = ("architecture", "bench", "docs", "scripts", "typing", "faults")
"""The folders of tests that look at the project instead of running its code, or take too long to be run each time."""
monitoring: Any = getattr(sys, "monitoring", None)  # which Python 3.11 does not have
IN_TURN = 10
"""So many tests of a file are taken before those of the next."""
MOST_SECONDS = 30.0
MOST_TESTS = 1_500
"""The tests of one line are no more than this, and take no longer, by what they took when they were noted."""


def digest(path: Path) -> str:
    """Return the digest of a source file, which says whether its lines are still where they were."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


# -- noting them -------------------------------------------------------------------------------------------------------


class Noting:
    """A plugin of pytest that notes the lines which each test reaches."""

    def __init__(self, source: Path, notes: Path) -> None:
        self.source = str(source) + os.sep
        self.notes = notes
        self.seconds: dict[str, float] = {}
        self.reached: dict[str, set[tuple[str, int]]] = {}
        self._here: set[tuple[str, int]] = set()
        self._watched: set[CodeType] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="reached-")
        self._read: dict[Path, int] = {}
        """Bytes that were read of the notes of each process that tests have started."""

    def pytest_sessionstart(self) -> None:
        os.environ["PERDURE_REACHED_BELOW"] = self._folder.name
        os.environ["PERDURE_REACHED_SOURCE"] = self.source
        os.environ["PYTHONPATH"] = os.pathsep.join([str(STARTED), *filter(None, [os.environ.get("PYTHONPATH")])])
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "reached lines")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.PY_START, self._enter)
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._reach)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.PY_START)

    def _enter(self, code: CodeType, _offset: int) -> object:
        if code.co_filename.startswith(self.source) and code not in self._watched:
            self._watched.add(code)
            monitoring.set_local_events(monitoring.COVERAGE_ID, code, monitoring.events.LINE)
        return monitoring.DISABLE

    def _reach(self, code: CodeType, line: int) -> object:
        self._here.add((code.co_filename, line))
        return monitoring.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._here = self.reached[item.nodeid] = set()
        monitoring.restart_events()
        try:
            return (yield)
        finally:
            self._here.update(self._read_started())

    def _read_started(self) -> Iterator[tuple[str, int]]:
        """Yield the lines that started processes have reached since this was last called."""
        for file in Path(self._folder.name).iterdir():
            with file.open("rb") as notes:
                notes.seek(self._read.get(file, 0))
                whole = notes.read().rpartition(b"\n")[0]
            self._read[file] = self._read.get(file, 0) + len(whole) + bool(whole)
            for each in whole.splitlines():
                line, _, name = each.decode().partition(" ")
                yield name, int(line)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.reached.pop(report.nodeid, None)  # skipped, or it fails anyway

    def pytest_sessionfinish(self) -> None:
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.NO_EVENTS)
        for event in (monitoring.events.PY_START, monitoring.events.LINE):
            monitoring.register_callback(monitoring.COVERAGE_ID, event, None)
        monitoring.free_tool_id(monitoring.COVERAGE_ID)
        self._folder.cleanup()
        tests = list(self.reached)
        files: dict[str, dict[int, list[int]]] = {}
        for number, test in enumerate(tests):
            for name, line in self.reached[test]:
                files.setdefault(name, {}).setdefault(line, []).append(number)
        noted = {
            "tests": [[test, round(self.seconds.get(test, 0.0), 3)] for test in tests],
            "files": {
                str(PACKAGE / name.removeprefix(self.source)): {"digest": digest(Path(name)), "lines": lines}
                for name, lines in files.items()
            },
        }
        self.notes.parent.mkdir(parents=True, exist_ok=True)
        self.notes.write_text(json.dumps(noted))


def pytest_configure(config: pytest.Config) -> None:
    """Be a plugin where the environment names the file of the notes."""
    if notes := os.environ.get("PERDURE_REACHED"):
        config.pluginmanager.register(Noting(config.rootpath / PACKAGE, Path(notes)))


# -- reading them ------------------------------------------------------------------------------------------------------


class Reached:
    """What is noted of the tests and the lines that they reach."""

    def __init__(self, notes: Sequence[Mapping[str, Any]], root: Path = ROOT) -> None:
        self._notes = notes
        self._root = root

    @classmethod
    def read(cls, root: Path = ROOT) -> "Reached":
        """Read all notes; there may be none."""
        return cls([json.loads(file.read_text()) for file in sorted((root / NOTES).glob("*.json"))], root)

    def __bool__(self) -> bool:
        return bool(self._notes)

    def find_tests(self, path: Path, line: int, nearest: Sequence[str], *, seconds: float = MOST_SECONDS) -> list[str]:
        """Return tests that reach a line, for half a minute: some of each file, the nearest and quickest first.

        Where the file has changed since, or the line is reached by being imported, they are the tests that reach the
        file at all.
        """
        found = dict[str, float]()
        place = find_place((self._root / path).read_text(), line)
        for note in self._notes:
            if file := note["files"].get(str(path)):
                lines = {int(line): numbers for line, numbers in file["lines"].items()}
                same = file["digest"] == digest(self._root / path)
                numbers = _reaching(lines, place if same else None)
                found.update((test, took) for test, took in (note["tests"][number] for number in numbers))
        rank = {file: place for place, file in enumerate(nearest)}
        by_file: dict[str, list[str]] = {}
        for test in sorted(found, key=lambda test: found[test]):
            by_file.setdefault(test.partition("::")[0], []).append(test)
        files = sorted(by_file, key=lambda file: rank.get(file, len(rank)))
        # Each file has its turns, for the nearest may reach a line hundreds of times and look at something else.
        rounds = range(0, max(map(len, by_file.values()), default=0), IN_TURN)
        chosen, left = list[str](), seconds
        for test in (each for begin in rounds for file in files for each in by_file[file][begin : begin + IN_TURN]):
            if found[test] <= left and len(chosen) < MOST_TESTS:
                chosen.append(test)
                left -= found[test]
        return chosen


def find_place(source: str, line: int) -> range | None:
    """Return the lines of the statement in which a line is; of a default, those of the function; None in no function.

    A part of a statement matters to tests that never come to it: `or` for `and` makes them come there.
    """
    holding = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    functions = [node for node in holding if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    if not functions:
        return None
    statement, function = holding[-1], functions[-1]
    if statement is function:
        return range(function.body[0].lineno, (function.end_lineno or line) + 1)
    body: Sequence[ast.stmt] = getattr(statement, "body", [])
    last = max(line, body[0].lineno - 1) if body else statement.end_lineno or line
    return range(statement.lineno, last + 1)


def _reaching(lines: Mapping[int, Sequence[int]], place: range | None) -> set[int]:
    """Return the numbers of the tests that reach one of these lines, or of all lines."""
    return {number for line, numbers in lines.items() if place is None or line in place for number in numbers}


def main(*names: str) -> int:
    """Run tests folder by folder, and note what they reach; return the exit code."""
    folders = [folder.name for folder in sorted((ROOT / "tests").iterdir()) if any(folder.glob("**/test_*.py"))]
    worst = 0
    for name in names or [folder for folder in [*folders, "."] if folder not in LEFT_OUT]:
        place = sorted(map(str, (ROOT / "tests").glob("test_*.py"))) if name == "." else [str(ROOT / "tests" / name)]
        environment = {
            **os.environ,
            "PERDURE_REACHED": str(ROOT / NOTES / f"{name.strip('.').replace('/', '-') or 'top'}.json"),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "scripts.reached_lines"]
        print(f"reached: {name}", flush=True)
        done = subprocess.run([*command, "--tb=line", "-m", MARKS, *place], cwd=ROOT, env=environment, check=False)
        worst = max(worst, done.returncode)
    return worst


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
