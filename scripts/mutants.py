"""Change the source in one small way at a time, and see whether the tests notice.

    python -m scripts.mutants                         40 mutants of all modules, with a new seed
    python -m scripts.mutants --count 200 --seed 7    so many, and the same ones again
    python -m scripts.mutants stores _core/run/loop.py     only of these packages and modules of `src/perdure`
    python -m scripts.mutants --list                  only say which ones there would be

    python -m scripts.mutants --quick                 only with the tests that reach the changed line

`make mutants` calls it. A mutant is the source with one change: a comparison turned around, a condition negated, a
statement left out, a number one higher. Each is tried in a copy of the project against the tests that a developer would
run: those that bear the name of the module, then those of its folder and of its package's neighbours, and last those
elsewhere that import the module. Where `python -m scripts.reached_lines` has noted which tests reach the line, these
are run first, for half a minute at most; they run in a fork of a process that has all tests collected
(`scripts.warm_tests`), so that most mutants take a second. The first failure kills it. A test that fails without the
mutant too says nothing and is left out. Survivors are listed with the changed line: a test is missing, or the change
makes no difference, and only a reader can tell which.
"""

import argparse
import ast
import bisect
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple, TextIO, TypeAlias, cast

from scripts.check import find_tests
from scripts.reached_lines import Reached
from scripts.warm_tests import CANNOT, Answer, Request

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/perdure")
COPIED = (
    "src",
    "tests",
    "docs",
    "examples",
    "bench",
    "scripts",
    "pyproject.toml",
    "constraints.txt",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Makefile",
)
NEIGHBOURS: Mapping[str, Sequence[str]] = {
    "core": ["runtime", "logs"],
    "runtime": ["core", "toolkits"],
    "config": ["configuring", "test_config.py", "cli"],
    "credentials": ["security"],
    "io": ["files", "net", "context", "security", "models"],
    "mcp": ["mcp_server"],
    "people": ["interaction", "runtime"],
    "models": ["wire"],
    "stores": ["logs"],
    "tools": ["toolkits", "hosts", "security"],
    "work": ["replaying", "evaluating", "goals", "grading", "memory", "reviewing", "scheduling", "test_replay.py"],
}
"""The folders and files of tests that are run as well, by the package or module that is changed."""
MOST_IMPORTING = 30
"""A module that more test files import is a means of theirs, and not what they test."""
PINNED = ("tests/test_value_defaults.py", "tests/docs/test_reference.py::test_the_reference_is_current")
"""Tests that look at the defaults and numbers of all modules, and reach no line of them."""
MOST_LEFT_OUT = 5
"""When more tests than this fail without a mutant too, it is not counted."""
FEW_TESTS = 10
"""A line that fewer tests reach is tried with all tests that bear the name of its module as well."""
SECONDS = 300.0
"""After this a mutant that no test has noticed counts as a survivor."""
LAST_SECONDS = 90.0
"""A mutant that survives `--quick` is tried with so many seconds of the tests that reach its line in all."""
TEST_SECONDS = 45
"""A test that takes longer has noticed the mutant, by hanging."""

Kind: TypeAlias = Literal["collected", "started"]
"""Which tests a process has imported before it is asked to run some: all, or none."""

Verdict: TypeAlias = Literal["killed", "survived", "not counted"]

COMPARISONS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
"""Each comparison, as it is written, and what it becomes."""


class Mutant(NamedTuple):
    """One change of one file: the characters from `start` to `end` are replaced."""

    path: Path
    """Path of the file below the root of the project."""
    line: int
    start: int
    end: int
    replacement: str
    what: str
    """The change in a few words."""

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        return source[: self.start] + self.replacement + source[self.end :]


class Trial(NamedTuple):
    """The result of running the tests against one mutant."""

    mutant: Mutant
    verdict: Verdict
    reason: str
    """The test that noticed it, or why it is not counted."""


# -- finding mutants ---------------------------------------------------------------------------------------------------


class Finder(ast.NodeVisitor):
    """Finds every mutant of one source file."""

    def __init__(self, path: Path, source: str) -> None:
        self.path = path
        self.source = source
        self.mutants: list[Mutant] = []
        self._lines = source.splitlines(keepends=True)
        self._line_starts = list(itertools.accumulate(map(len, self._lines), initial=0))

    def find_all(self) -> list[Mutant]:
        """Return the mutants of the file, in the order of the source."""
        self.visit(ast.parse(self.source))
        return sorted(self.mutants, key=lambda mutant: (mutant.start, mutant.end, mutant.what))

    # What has no behaviour that a test could see

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name == "__repr__":
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._visit_body(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any("Protocol" in ast.unparse(base) for base in node.bases):
            self._visit_body(node.body)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id in {"Literal", "Annotated"}):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave the text of messages alone."""

    # What can be changed

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._negate(node.test, "the condition is negated")
        self.visit(node.test)
        self._visit_body(node.body)
        self._visit_body(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test, "the condition is negated")
            self.visit(node.test)
        self._visit_body(node.body)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test, "the condition is negated")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test, "the filter is negated")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
            old, new = COMPARISONS[type(operator)]
            words = r"\s+".join(old.split())
            pattern = rf"\b{words}\b" if old[0].isalpha() else re.escape(old)
            self._replace_between(left, right, pattern, new, f"{old} becomes {new}")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._replace_between(left, right, rf"\b{old}\b", new, f"{old} becomes {new}")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        number = any(
            isinstance(side, ast.Constant) and isinstance(side.value, (int, float)) for side in (node.left, node.right)
        )
        if number and isinstance(node.op, (ast.Add, ast.Sub)):
            old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
            self._replace_between(node.left, node.right, re.escape(old), new, f"{old} becomes {new}")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, f"bool({self._text(node.operand)})", "the `not` is left out")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value), f"{node.value} becomes {not node.value}")
        elif isinstance(node.value, (int, float)):
            self._replace(node, str(node.value + 1), f"{node.value} becomes {node.value + 1}")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}:
            new = "max" if node.func.id == "min" else "min"
            self._replace(node.func, new, f"{node.func.id} becomes {new}")
        if isinstance(node.func, ast.Name) and node.func.id == "zip":  # `strict` is a check of the program itself
            for each in node.args:
                self.visit(each)
            return
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            return
        # True and False become each other, and None for False is no difference but to a type checker.
        if not (isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool))):
            self._replace(value, "None", "nothing is returned")
        self.visit(value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass", "the error is not raised")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_for_people(node.value):
            return
        if not isinstance(node.value, (ast.Yield, ast.YieldFrom)):
            self._replace(node, "pass", "the statement is left out")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self._replace(node, "pass", "the assignment is left out")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass", "the assignment is left out")
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace(node, "pass", "nothing is deleted")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break", "continue becomes break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue", "break becomes continue")

    # How a change is noted down

    def _visit_body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def _offset(self, line: int, column: int) -> int:
        """Return the number of characters before a place that ast gives in bytes."""
        return self._line_starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _range(self, node: ast.AST) -> tuple[int, int]:
        placed: ast.expr = node  # type: ignore[assignment]
        start = self._offset(placed.lineno, placed.col_offset)
        return start, self._offset(placed.end_lineno or placed.lineno, placed.end_col_offset or 0)

    def _text(self, node: ast.AST) -> str:
        start, end = self._range(node)
        return self.source[start:end]

    def _replace(self, node: ast.AST, replacement: str, what: str) -> None:
        start, end = self._range(node)
        self._add(start, end, replacement, what)

    def _negate(self, test: ast.expr, what: str) -> None:
        self._replace(test, f"(not ({self._text(test)}))", what)

    def _replace_between(self, left: ast.expr, right: ast.expr, pattern: str, new: str, what: str) -> None:
        """Replace an operator that stands between two operands."""
        start, end = self._range(left)[1], self._range(right)[0]
        found = re.search(pattern, self.source[start:end])
        if found is not None:
            self._add(start + found.start(), start + found.end(), new, what)

    def _add(self, start: int, end: int, replacement: str, what: str) -> None:
        line = bisect.bisect(self._line_starts, start)
        self.mutants.append(Mutant(self.path, line, start, end, replacement, what))


def _is_for_people(call: ast.expr) -> bool:
    """Return True for a call whose absence no program can see: a log line, or a place where tests kill the process."""
    return isinstance(call, ast.Call) and ast.unparse(call.func).startswith(("logger.", "faults.fault_point"))


def find_mutants(root: Path, names: Sequence[str]) -> list[Mutant]:
    """Return all mutants of the named packages and modules of `src/perdure`; of all, if none is named."""
    return [
        mutant for path in _find_sources(root, names) for mutant in Finder(path, (root / path).read_text()).find_all()
    ]


def draw_sample(root: Path, names: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return so many mutants at random; always the same ones for a seed, as long as the source is the same."""
    everything = find_mutants(root, names)
    random.Random(seed).shuffle(everything)  # noqa: S311 - a sample
    valid = (mutant for mutant in everything if _is_python(mutant.apply((root / mutant.path).read_text())))
    return list(itertools.islice(valid, count))


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _find_sources(root: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names or ["."]:
        place = root / PACKAGE / name
        place = place if place.exists() else place.with_suffix(".py")
        if not place.exists():
            message = (
                f"mutants: there is no {place.relative_to(root)}: name packages or modules of {PACKAGE}, as core/loop"
            )
            raise SystemExit(message)
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            yield path.relative_to(root)


# -- trying them -------------------------------------------------------------------------------------------------------


def list_tests(path: Path, root: Path = ROOT) -> list[str]:
    """Return the test files that a developer would run after a change of this file, the nearest first."""
    package = path.relative_to(PACKAGE)
    own = _find_test_folder(path, root)
    places = [own, *[Path("tests", name) for name in NEIGHBOURS.get(package.parts[0].lstrip("_"), ())]]
    nearby = [
        str(test.relative_to(root))
        for place in places
        if place != Path("tests")
        for test in ([root / place] if place.suffix else sorted((root / place).rglob("test_*.py")))
    ]
    return list(dict.fromkeys([*find_tests(str(path), root), *nearby, *_find_importing_tests(path, root)]))


def _find_test_folder(path: Path, root: Path) -> Path:
    """Return the folder with the tests of a source file; those of a package may lie in the folder above."""
    own = Path("tests", *[part.lstrip("_") for part in path.relative_to(PACKAGE).parts[:-1]])
    while not (root / own).is_dir():
        own = own.parent
    return own


def _find_importing_tests(path: Path, root: Path) -> list[str]:
    """Return the test files that import a module; none if it is a package, or a means of very many tests."""
    if path.stem == "__init__":
        return []
    package, module = ".".join(path.parts[1:-1]), path.stem
    imports = re.compile(rf"^(?:from|import) {package}(?:\.{module}\b| import (?:\w+, )*{module}\b)", re.MULTILINE)
    tests = sorted((root / "tests").rglob("test_*.py"))
    importing = [str(test.relative_to(root)) for test in tests if imports.search(test.read_text("utf-8"))]
    return importing if len(importing) <= MOST_IMPORTING else []


def copy_project(root: Path, place: Path) -> Path:
    """Copy what the tests need to a folder, and return it."""
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, place / name)  # with the bytecode, which would take long to make again
        elif (root / name).exists():
            shutil.copy2(root / name, place / name)
    return place


class WarmCopy:
    """A copy of the project, and the processes that run tests in it: one with all tests collected, and one without."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._fails_anyway: dict[tuple[Kind, str], bool] = {}

    def run(self, kind: Kind, request: Request) -> Answer:
        """Run tests until one fails, in a fork of the process of this kind."""
        self.start(kind)
        process = self._processes[kind]
        requests, answers = cast("TextIO", process.stdin), cast("TextIO", process.stdout)
        print(json.dumps(request._asdict()), file=requests, flush=True)
        answer = answers.readline()
        if not answer:
            raise SystemExit(f"mutants: the process that runs tests ended with {process.wait()}; do the tests pass?")
        return Answer(**json.loads(answer))

    def fails_anyway(self, kind: Kind, test: str) -> bool:
        """Return True for a test that fails in this copy, and in a process of this kind, without any change."""
        if (kind, test) not in self._fails_anyway:
            answer = self.run(kind, Request([test], seconds=SECONDS, test_seconds=TEST_SECONDS))
            self._fails_anyway[kind, test] = answer.failed is not None
        return self._fails_anyway[kind, test]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            process.communicate()

    def start(self, kind: Kind) -> None:
        """Start the process of this kind, unless it runs, and wait until it has imported what it needs."""
        if kind in self._processes:
            return
        wire = os.environ.get("PERDURE_WIRE", str(ROOT.parent / "shared" / "wire"))
        path = os.pathsep.join([str(self.project / "src"), str(ROOT)])
        self._processes[kind] = subprocess.Popen(
            [sys.executable, "-m", "scripts.warm_tests", kind],
            cwd=self.project,
            env={**os.environ, "PYTHONPATH": path, "PERDURE_WIRE": wire},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        cast("TextIO", self._processes[kind].stdout).readline()


def try_mutant(mutant: Mutant, copy: WarmCopy, reached: Reached, *, quick: bool = False) -> Trial:
    """Run the tests against one mutant in a copy of the project, which is as before afterwards."""
    nearby = list_tests(mutant.path, copy.project)
    noted = reached.find_tests(mutant.path, mutant.line, nearby)
    named = find_tests(str(mutant.path), copy.project)
    if len(noted) < FEW_TESTS:  # what is done once in a process is noted of one test
        tests = [*noted, *named]
    else:
        tests = [*[test for test in named if mutant.path.stem in test], *noted]
    if not nearby and not tests:
        return Trial(mutant, "survived", "no tests belong to this module")
    source = (copy.project / mutant.path).read_text()
    count = 0
    more = reached.find_tests(mutant.path, mutant.line, nearby, seconds=LAST_SECONDS) if quick else []
    rest = [test for test in more if test not in noted] if quick else nearby
    if quick and len(noted) < FEW_TESTS:  # a process with an environment of its own is not seen, as in a terminal
        rest += [test for test in nearby if Path(test).parent == _find_test_folder(mutant.path, copy.project)]
    for group in filter(None, [tests, rest] if reached else [nearby]):
        without: list[str] = []
        while True:
            kind, answer = _run_changed(mutant, copy, group, source, is_noted=bool(reached), without=without)
            count += answer.begun
            if answer.failed is None or "::" not in answer.failed or not copy.fails_anyway(kind, answer.failed):
                break
            if len(without) == MOST_LEFT_OUT:
                return Trial(mutant, "not counted", f"{answer.failed} fails without it too")
            without.append(answer.failed)  # which says nothing
        if answer.failed is not None:
            return Trial(mutant, "killed", answer.failed)
    return Trial(mutant, "survived", f"{count} tests passed")


def _run_changed(
    mutant: Mutant, copy: WarmCopy, tests: Sequence[str], source: str, *, is_noted: bool, without: Sequence[str]
) -> tuple[Kind, Answer]:
    """Run tests against a mutant: where all are collected, if the change can be made there; else import them anew.

    Collecting all tests is worth its time only where tests are noted, and there are many mutants.
    """
    request = Request(tests, str(mutant.path), source, SECONDS, TEST_SECONDS, without)
    changed = copy.project / mutant.path
    if is_noted:
        copy.start("collected")  # which must not import the changed file
    try:
        _write_source(changed, mutant.apply(source))
        answer = copy.run("collected", request) if is_noted else Answer(CANNOT)
        if answer.failed != CANNOT and not answer.ran_earlier:
            return "collected", answer
        pinned = [test for test in PINNED if (copy.project / test.partition("::")[0]).exists()] if is_noted else []
        return "started", copy.run("started", request._replace(tests=[*tests, *pinned]))
    finally:
        _write_source(changed, source)


def _write_source(path: Path, source: str) -> None:
    """Write a module, and remove its bytecode: Python would take that for current within the same second."""
    path.write_text(source)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def try_mutants(mutants: Sequence[Mutant], jobs: int, root: Path = ROOT, *, quick: bool = False) -> Iterator[Trial]:
    """Try each mutant, several side by side, each in its own copy of the project; yield the results in order."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [WarmCopy(copy_project(root, Path(folder, str(number)))) for number in range(jobs)]
        free: SimpleQueue[WarmCopy] = SimpleQueue()
        for copy in copies:
            free.put(copy)
        reached = Reached.read(root)

        def attempt(mutant: Mutant) -> Trial:
            copy = free.get()
            try:
                return try_mutant(mutant, copy, reached, quick=quick)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(attempt, mutants)
        for copy in copies:
            copy.close()


def format_trial(trial: Trial, source: str) -> str:
    """Return the line that tells what became of a mutant; for a survivor, with the source before and after."""
    mutant = trial.mutant
    told = f"{trial.verdict:11} {mutant.path}:{mutant.line} {mutant.what} ({trial.reason})"
    if trial.verdict != "survived":
        return told
    first = source.rfind("\n", 0, mutant.start) + 1
    last = source.find("\n", mutant.end)
    after = mutant.apply(source)[first : last + len(mutant.replacement) - (mutant.end - mutant.start)]
    return "\n".join(
        [
            told,
            *[f"    - {line}" for line in source[first:last].splitlines()],
            *[f"    + {line}" for line in after.splitlines()],
        ]
    )


def main(*arguments: str) -> int:
    """Try a sample of mutants and print what became of them; the exit code is 1 when too few were killed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="packages and modules of src/perdure; all of them when none is given")
    parser.add_argument("--count", type=int, default=40, help="how many mutants; 40 by default")
    parser.add_argument("--seed", type=int, default=None, help="the seed of an earlier sample; a new one by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many side by side")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="fail when fewer are killed")
    parser.add_argument("--quick", action="store_true", help="run only the tests that are noted to reach the line")
    parser.add_argument("--list", action="store_true", help="list the sample without trying it")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    sample = draw_sample(ROOT, options.names, options.count, seed)
    print(f"mutants: {len(sample)}, --seed {seed}", flush=True)
    if options.list:
        for mutant in sample:
            print(f"{mutant.path}:{mutant.line} {mutant.what}")
        return 0
    counts: dict[Verdict, int] = {"killed": 0, "survived": 0, "not counted": 0}
    sources = {mutant.path: (ROOT / mutant.path).read_text() for mutant in sample}  # which may be changed meanwhile
    for trial in try_mutants(sample, options.jobs, quick=options.quick):
        counts[trial.verdict] += 1
        print(format_trial(trial, sources[trial.mutant.path]), flush=True)
    counted = counts["killed"] + counts["survived"]
    percent = 100 * counts["killed"] / counted if counted else 100.0
    print(
        f"mutants: {counts['killed']} of {counted} killed ({percent:.0f} %), "
        f"{counts['not counted']} not counted, --seed {seed}"
    )
    return 0 if percent >= options.at_least else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
