"""Run tests against changed source in forks of a process that has already imported them.

    python -m scripts.warm_tests collected    all tests are collected before the first request
    python -m scripts.warm_tests started      only pytest and the libraries are imported

`scripts.mutants` starts both in each copy of the project, writes one request a line to their input and reads one answer
a line from their output. Starting Python, importing pytest and collecting tests takes seconds; a fork of a process that
has done so takes milliseconds. In a fork of a process that has collected, the changed functions get the code of the
changed file. Where the change is no part of a function, the answer is that it cannot be tried this way; the other
process imports the changed file as it is. A function that ran while the tests were collected has left what it returned
in tables, decorated functions and parameters of tests: the answer says so, and it is tried in the other process too.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest

from scripts.check import MARKS
from scripts.reached_lines import LEFT_OUT, monitoring

LIBRARIES = ("aiohttp", "hypothesis.stateful", "jsonschema_rs", "msgspec", "pytest_asyncio", "apsw", "psycopg")
"""What most tests import, apart from the project itself."""

LOADED_EARLY = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Plugins are loaded before pytest could change their assertions, which have none."""

LOOK_SECONDS = 1.0
"""Seconds between two looks at whether a silent fork has ended."""

CANNOT = "cannot be tried in a warm process"
"""Starts the answer to a request for a change outside functions."""


class Request(NamedTuple):
    """Tests to run until one fails, and the changed file if there is one."""

    tests: Sequence[str]
    """Ids of tests, or paths of test files."""

    path: str = ""
    before: str = ""
    """The source of the file before it was changed."""
    seconds: float = 300.0
    test_seconds: float = 45.0
    without: Sequence[str] = ()
    """Ids of tests that are left out."""


class Answer(NamedTuple):
    """The result of running the tests of a request."""

    failed: str | None = None
    """The test that failed, or the reason for which nothing was run."""
    timed_out: bool = False
    """True when all tests together took longer than they may."""
    begun: int = 0
    """Number of tests that were begun."""
    ran_earlier: bool = False
    """True when changed code also ran while the tests were collected, and its results of then are still in use."""


# -- changed functions -------------------------------------------------------------------------------------------------


def list_changed_code(before: CodeType, after: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """Return each function's code before and after a change; None if something else differs than code in functions."""
    if not _is_same_outside_functions(before, after):
        return None
    pairs = []
    for old, new in zip(_list_nested(before), _list_nested(after), strict=True):
        if old.co_flags & OPTIMIZED:
            pairs += _list_pairs(old, new)
        else:  # the body of a class
            inner = list_changed_code(old, new)
            if inner is None:
                return None
            pairs += inner
    return pairs


OPTIMIZED = 0x1
"""The flag of code that belongs to a function, and to no module or class."""


def _list_nested(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _is_same_outside_functions(before: CodeType, after: CodeType) -> bool:
    plain = [[each for each in code.co_consts if not isinstance(each, CodeType)] for code in (before, after)]
    names = [[each.co_name for each in _list_nested(code)] for code in (before, after)]
    return before.co_code == after.co_code and repr(plain[0]) == repr(plain[1]) and names[0] == names[1]


def _is_same_code(before: CodeType, after: CodeType) -> bool:
    """Return True if two functions do the same, whatever the lines and columns of their source."""
    nested = zip(_list_nested(before), _list_nested(after), strict=False)
    same_names = before.co_names == after.co_names
    return same_names and _is_same_outside_functions(before, after) and all(_is_same_code(*pair) for pair in nested)


def _list_pairs(before: CodeType, after: CodeType) -> list[tuple[CodeType, CodeType]]:
    """Return a function's code and that of the functions in it; those that were added or left out have none before."""
    nested = zip(_list_nested(before), _list_nested(after), strict=False)
    return [
        (before, after),
        *[pair for old, new in nested if old.co_name == new.co_name for pair in _list_pairs(old, new)],
    ]


CodePlace: TypeAlias = tuple[str, str, int]
"""Where code is written: the file, the qualified name, the first line."""


def _find_code_place(code: CodeType) -> CodePlace:
    return code.co_filename, code.co_qualname, code.co_firstlineno


@contextlib.contextmanager
def note_started_code() -> Iterator[set[CodePlace]]:
    """Yield a set that gets the place of all code that starts to run, until the end of the block."""
    started: set[CodePlace] = set()
    if monitoring is None:  # Python 3.11
        yield started
        return

    def note(code: CodeType, _offset: int) -> object:
        started.add(_find_code_place(code))
        return monitoring.DISABLE

    monitoring.use_tool_id(monitoring.PROFILER_ID, "started code")
    monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.PY_START, note)
    monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)
    try:
        yield started
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.NO_EVENTS)
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.PY_START, None)
        monitoring.free_tool_id(monitoring.PROFILER_ID)


class Functions:
    """The functions of the source that this process has, by the place of their code."""

    def __init__(self, folder: Path, started: Collection[CodePlace] = ()) -> None:
        gc.unfreeze()  # what is frozen is not found
        prefix = str(folder) + os.sep
        self._started = started
        self._known: dict[CodePlace, list[FunctionType]] = {}
        self.has_changed_started_code = False
        """True if a changed function is one of those that ran before."""
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(prefix):
                self._known.setdefault(_find_code_place(each.__code__), []).append(each)

    def change(self, path: Path, before: str) -> bool:
        """Give each function of a file the code that the file has now; return False if that is not all that changed."""
        old = compile(before, str(path), "exec", dont_inherit=True)
        pairs = list_changed_code(old, compile(path.read_text("utf-8"), str(path), "exec", dont_inherit=True))
        if pairs is None:
            return False
        is_changed = False
        for was, becomes in pairs:
            for function in self._known.get(_find_code_place(was), []):
                if function.__code__.co_freevars != becomes.co_freevars:
                    return False
                is_changed = is_changed or not _is_same_code(was, becomes)
                function.__code__ = becomes
            if not _is_same_code(was, becomes) and _find_code_place(was) in self._started:
                self.has_changed_started_code = True
        return is_changed


# -- running tests -----------------------------------------------------------------------------------------------------


class Progress:
    """A plugin of pytest that reports each test that begins, and the first that fails."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._report("begun", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._report("failed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report("failed", report.nodeid)


def list_options(test_seconds: float) -> list[str]:
    """Return the options of pytest for every run: nothing is captured or remembered, and the first failure ends it."""
    quiet = ["-q", "-x", "-s", "-p", "no:cacheprovider", "--tb=no", "-m", MARKS, *LOADED_EARLY]
    return [*quiet, f"--timeout={test_seconds:.0f}", "--timeout-method=thread"]


class CollectedTests:
    """All tests, collected once; forks run some of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        left_out = [f"--ignore=tests/{folder}" for folder in LEFT_OUT]
        options = [*list_options(45), "--maxfail=0", "--continue-on-collection-errors", *left_out, "tests"]
        with note_started_code() as started:
            self._config = importlib.import_module("_pytest.config")._prepareconfig(options)  # noqa: SLF001
            self._session: Any = pytest.Session.from_config(self._config)
            self._config._do_configure()  # noqa: SLF001
            self._config.hook.pytest_sessionstart(session=self._session)
            self._config.hook.pytest_collection(session=self._session)
        self._items: dict[str, list[pytest.Item]] = {}
        for item in self._session.items:
            for name in (item.nodeid, item.nodeid.partition("::")[0]):
                self._items.setdefault(name, []).append(item)
        self._functions = Functions(root / "src", started)
        gc.freeze()

    def run(self, request: Request, report: Callable[[str, str], None]) -> None:
        """Change functions as the request says, and run its tests until one fails."""
        if request.path and not self._functions.change(self._root / request.path, request.before):
            report("failed", CANNOT)
            return
        if self._functions.has_changed_started_code:
            report("ran earlier", "")
        self._config.pluginmanager.register(Progress(report))
        self._config._env_timeout = request.test_seconds  # noqa: SLF001 - pytest-timeout reads it for every test
        chosen = dict.fromkeys(item for test in request.tests for item in self._items.get(test, []))
        self._session.items = [item for item in chosen if item.nodeid not in request.without]
        self._session.testsfailed, self._config.option.maxfail = 0, 1
        with contextlib.suppress(pytest.Session.Failed):
            self._config.hook.pytest_runtestloop(session=self._session)
        self._config.hook.pytest_sessionfinish(session=self._session, exitstatus=0)


def run_started(request: Request, report: Callable[[str, str], None]) -> None:
    """Import and run the tests of a request, whatever was changed."""
    left_out = [f"--deselect={test}" for test in request.without]
    arguments = [*list_options(request.test_seconds), *left_out, *request.tests]
    code = pytest.main(arguments, plugins=[Progress(report)])
    if code not in {0, 1, 5}:  # 5: all tests are left to `make test`
        report("failed", f"pytest ended with {int(code)}")


def answer_in_fork(request: Request, run: Callable[[Request, Callable[[str, str], None]], None]) -> Answer:
    """Run the tests of a request in a fork, which is killed with all that it started when it has answered."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        _run_child(request, run, writing)
    os.close(writing)
    try:
        return _read_answer(reading, child, request.seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _run_child(request: Request, run: Callable[[Request, Callable[[str, str], None]], None], writing: int) -> None:
    def report(what: str, name: str) -> None:
        os.write(writing, json.dumps([what, name]).encode() + b"\n")

    try:
        run(request, report)
        report("ended", "")
    except BaseException as error:  # noqa: BLE001 - whatever a changed program does is an answer
        report("failed", f"the tests ended with {type(error).__name__}")
    finally:
        os._exit(0)


def _read_answer(reading: int, child: int, seconds: float) -> Answer:
    """Read what a fork reports until a test has failed or all have passed; one that ends in between has failed."""
    until, current, count, ran_earlier = time.monotonic() + seconds, "no test", 0, False
    for what, name in _read_reports(reading, child, until):
        if what == "begun":
            current, count = name, count + 1
        elif what == "ran earlier":
            ran_earlier = True
        elif what == "failed":
            return Answer(name, begun=count)
        else:
            return Answer(None, begun=count, ran_earlier=ran_earlier)
    if time.monotonic() >= until:
        return Answer(None, timed_out=True, begun=count, ran_earlier=ran_earlier)
    return Answer(current, begun=count)


def _read_reports(reading: int, child: int, until: float) -> Iterator[tuple[str, str]]:
    """Yield reports until the fork ends, which its own children may outlive with the pipe open."""
    rest, has_ended = b"", False
    while (left := until - time.monotonic()) > 0:
        if not select.select([reading], [], [], 0.0 if has_ended else min(left, LOOK_SECONDS))[0]:
            if has_ended:
                return
            with contextlib.suppress(ChildProcessError):
                has_ended = os.waitpid(child, os.WNOHANG)[0] == child
            continue
        data = os.read(reading, 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            what, name = json.loads(line)
            yield what, name


def main(kind: Literal["collected", "started"] | str) -> int:  # noqa: PYI051 - it comes from the command line
    """Answer requests from the standard input until it ends."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    run = CollectedTests(Path.cwd()).run if kind == "collected" else run_started
    print("ready", file=answers, flush=True)
    for line in requests:
        fields: Mapping[str, Any] = json.loads(line)
        print(json.dumps(answer_in_fork(Request(**fields), run)._asdict()), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
