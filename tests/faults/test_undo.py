"""A process is killed while it changes files, undoes or redoes: the bytes of all files and the history agree.

Nothing is undone that was not asked for, and nothing is lost: the next undo finishes the one that was cut off, a redo
takes it back, and a change that was logged and not made is not listed.
"""

import asyncio
import json
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure._tools.files.records import RESTORE_NAME
from tests.faults.undo_worker import CALLS, create_folder, open_session
from tests.seeds import chance

pytestmark = [pytest.mark.faults, pytest.mark.packages("tree_sitter_bash"), pytest.mark.timeout(3000)]

RUNS = ("one", "two", "three")
POINTS = ("store.append.before_commit", "store.append.after_commit")


def start_worker() -> Any:
    """A process that does jobs, each in one of its own."""
    worker, pipe = [sys.executable, "-m", "tests.faults.undo_worker"], subprocess.PIPE
    return subprocess.Popen(worker, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


class Workers:
    """Starts jobs in processes that can be killed."""

    def __init__(self) -> None:
        self._process: Any = start_worker()

    def do(self, place, work, given=(), **how) -> int:
        """Do a job, and return the exit code of its process."""
        job = {"place": str(place), "do": work, "given": [*given], **how}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=20)


@pytest.fixture(scope="module")
def workers():
    opened = Workers()
    yield opened
    opened.close()


def tree(root: Path) -> dict[str, tuple[str, bytes, int]]:
    """Everything in a folder, but empty folders: a tool that writes a file makes them, and none removes them."""
    found = {}
    for each in sorted(root.rglob("*")):
        name = str(each.relative_to(root))
        if each.name.startswith(".perdure-"):
            continue  # what a killed process has left, until the next one writes in the folder
        if each.is_symlink():
            found[name] = ("link", bytes(each.readlink()), 0)
        elif each.is_file():
            found[name] = ("file", each.read_bytes(), stat.S_IMODE(each.stat().st_mode))
    return found


class Scene:
    """A session with three runs, which is put back to its beginning before each trial."""

    def __init__(self, workers: Workers, place: Path) -> None:
        self.workers, self.place, self.root = workers, place / "scene", place / "scene" / "root"
        self.trials = 0
        self._kept: list[Path] = []
        """Copies of the place, with so many runs undone."""
        self.root.mkdir(parents=True)
        create_folder(self.root)
        self.states = [tree(self.root)]
        """What is in the folder after so many runs."""
        for run in RUNS:
            assert workers.do(self.place, "run", [run]) == 0
            self.states.append(tree(self.root))
        self._keep()

    def begin(self, undone: int) -> None:
        """Put everything back, with so many runs undone."""
        self.trials += 1
        while len(self._kept) <= undone:
            self._restore(len(self._kept) - 1)
            assert self.workers.do(self.place, "undo") == 0
            self._keep()
        self._restore(undone)

    def _keep(self) -> None:
        kept = self.place.parent / f"kept-{len(self._kept)}"
        shutil.copytree(self.place, kept, symlinks=True)
        self._kept.append(kept)

    def _restore(self, undone: int) -> None:
        shutil.rmtree(self.place)
        shutil.copytree(self._kept[undone], self.place, symlinks=True)

    def read(self, ask):
        """Return what a coroutine finds that is given the history and the entries of the log."""

        async def look():
            session, history = open_session(str(self.place))
            try:
                return await ask(history, await session.store.read("s"))
            finally:
                await session.store.aclose()

        return asyncio.run(look())

    def count_restores(self) -> tuple[int, int]:
        """Return how many undos and redos were begun, and how many have ended, by the log."""

        async def ask(_, entries):
            steps = [each.event.value["step"] for each in entries if getattr(each.event, "name", "") == RESTORE_NAME]
            return steps.count("begin"), steps.count("end")

        return self.read(ask)


@pytest.fixture(scope="module")
def scene(workers, tmp_path_factory):
    return Scene(workers, tmp_path_factory.mktemp("undo"))


def check_between(now, one, other):
    """Each path is as it was before, or as it should become."""
    for path in {*now, *one, *other}:
        assert now.get(path) in (one.get(path), other.get(path)), path


def check_history(scene: Scene, now, restored: int) -> None:
    """The changes of the run that was being restored count as undone if their files are as before, and no others."""

    async def ask(history, _):
        return await history.changes()

    found = scene.read(ask)
    runs = list(dict.fromkeys(each.run_id for each in found))
    before, after = scene.states[restored - 1], scene.states[restored]
    for each in found:
        number = runs.index(each.run_id) + 1
        if number != restored:
            assert each.undone == (number > restored)
        elif before.get(each.path) != after.get(each.path):
            assert each.undone == (now.get(each.path) == before.get(each.path)), each.path
    assert all(each.certain for each in found)


def check_all_the_way(scene: Scene, position: int) -> None:
    """From here everything can be undone and redone, one run after another; checked in some of the trials."""
    if scene.trials % 3:
        return
    for target in range(position - 1, -1, -1):
        assert scene.workers.do(scene.place, "undo") == 0
        assert tree(scene.root) == scene.states[target]
    for target in range(1, len(scene.states)):
        assert scene.workers.do(scene.place, "redo") == 0
        assert tree(scene.root) == scene.states[target]


def kill_restore(scene: Scene, way: str, undone: int, then: str, **how) -> str:
    """Kill an undo or redo, check what is there, go on with another, and check that nothing else was touched."""
    scene.begin(undone)
    position = len(RUNS) - undone
    target = position - 1 if way == "undo" else position + 1
    before = scene.count_restores()
    code = scene.workers.do(scene.place, way, **how)
    assert code in {0, -signal.SIGKILL}
    begun, ended = [now - was for now, was in zip(scene.count_restores(), before, strict=True)]
    found = tree(scene.root)
    check_between(found, scene.states[position], scene.states[target])
    check_history(scene, found, max(position, target))
    if ended:
        position = target  # it was complete, and nobody was told
        assert found == scene.states[target]
    elif not begun:
        assert found == scene.states[position]
    if begun and not ended:
        expected = target if then == way else position  # finished, or taken back
    else:
        expected = position + (-1 if then == "undo" else 1)
    if 0 <= expected < len(scene.states):
        assert scene.workers.do(scene.place, then) == 0
        assert tree(scene.root) == scene.states[expected]
        position = expected
    check_all_the_way(scene, position)
    return "done" if code == 0 else "cut off" if begun and not ended else "killed"


@pytest.mark.parametrize("then", ["undo", "redo"])
@pytest.mark.parametrize("way", ["undo", "redo"])
def test_killed_at_every_point_an_undo_is_finished_or_taken_back(scene, way, then, long, report):
    undone, outcomes = 0 if way == "undo" else 1, []
    places = [{"faults": f"{point}=kill@{{}}"} for point in POINTS] + [{"call": name} for name in CALLS if long]
    for place in places:
        for number in range(1, 40) if long else (3,):
            how = {"call": (place["call"], number)} if "call" in place else {"faults": place["faults"].format(number)}
            outcomes.append(kill_restore(scene, way, undone, then, **how))
            if outcomes[-1] == "done":
                break
    assert "cut off" in outcomes
    report.append(f"{way}, then {then}: {len(outcomes)} kills at points, {outcomes.count('cut off')} cut it off")


def test_killed_at_any_time_an_undo_is_finished_or_taken_back(scene, long, report):
    drawn, outcomes = chance("undo"), []
    for _ in range(500 if long else 2):
        way, undone = drawn.choice([("undo", 0), ("undo", 1), ("redo", 1), ("redo", 2)])
        after = drawn.uniform(0.0, 0.12)
        outcomes.append(kill_restore(scene, way, undone, drawn.choice(("undo", "redo")), after=after))
    report.append(f"{len(outcomes)} kills of undo and redo at any time, {outcomes.count('cut off')} cut it off")


def kill_run(scene: Scene, then: str, **how) -> str:
    """Kill a run that changes files: what is listed was made, and undone the folder is as before."""
    scene.begin(0)
    before = tree(scene.root)
    code = scene.workers.do(scene.place, "run", ["four"], **how)
    assert code in {0, -signal.SIGKILL}
    if then == "prompt":
        assert scene.workers.do(scene.place, "run", ["five"]) == 0
    found = tree(scene.root)

    async def ask(history, _):
        return await history.changes(), await history.commands()

    changes, commands = scene.read(ask)
    runs = list(dict.fromkeys(each.run_id for each in changes))
    late = [each for each in changes if each.run_id not in runs[:3]]
    assert {each.path for each in late if each.kind == "file"} == {
        path for path in {*found, *before} if found.get(path) != before.get(path)
    }
    assert commands == []
    later = runs[3:]
    for undone in reversed(later):
        if any(not each.certain for each in changes if each.run_id == undone):
            assert scene.workers.do(scene.place, "undo", ["overwrite"]) == 0
        else:
            assert scene.workers.do(scene.place, "undo") == 0
    assert tree(scene.root) == before
    for _ in later:
        assert scene.workers.do(scene.place, "redo") == 0
    assert tree(scene.root) == found
    for _ in later:
        assert scene.workers.do(scene.place, "undo", ["overwrite"]) == 0
    check_all_the_way(scene, len(RUNS))
    return "done" if code == 0 else "killed"


def test_killed_while_it_changes_files_what_is_listed_was_made(scene, long, report):
    drawn = chance("changes")
    trials: list[dict[str, Any]] = [
        {"faults": f"{point}=kill@{number}"}
        for point in ("loop.effect_done", *POINTS, *(["loop.intent_stored"] if long else []))
        for number in (range(1, 16) if long else drawn.sample(range(1, 5), 1))
    ]
    trials += [{"call": (name, number)} for name in ("rename", "link", "fsync") for number in range(1, 6) if long]
    trials += [{"after": drawn.uniform(0.0, 0.5)} for _ in range(200 if long else 1)]
    outcomes = [kill_run(scene, drawn.choice(("nothing", "prompt")), **how) for how in trials]
    report.append(f"{len(outcomes)} runs that change files, {outcomes.count('killed')} killed")


def test_a_fork_with_files_that_was_cut_off_is_completed_or_removed(scene, long, report):
    drawn, complete = chance("fork"), 0
    trials: list[dict[str, Any]] = [{"faults": f"{point}=kill@{number}"} for point in POINTS for number in (1, 2)]
    trials += [{"after": drawn.uniform(0.0, 0.12)} for _ in range(60 if long else 1)]
    for how in trials:
        scene.begin(0)
        assert scene.workers.do(scene.place, "fork", **how) in {0, -signal.SIGKILL}
        assert scene.workers.do(scene.place, "undo") == 0
        names = {each.name for each in scene.place.iterdir() if "copy" in each.name}
        assert names in ({"copy"}, set())
        if names:
            complete += 1
            assert tree(scene.place / "copy") == scene.states[3]
        assert tree(scene.root) == scene.states[2]
    report.append(f"{len(trials)} forks with files, {complete} complete, the others removed")


def test_two_processes_that_undo_at_once_undo_one_run_each_or_are_refused(scene):
    scene.begin(0)
    both = [start_worker() for _ in range(2)]
    for each in both:
        each.stdin.write(json.dumps({"place": str(scene.place), "do": "undo"}) + "\n")
        each.stdin.flush()
    told = [each.communicate(timeout=50) for each in both]
    codes = sorted(out.strip() for out, _ in told)
    assert codes in (["0", "0"], ["0", "1"])
    assert tree(scene.root) == scene.states[3 - codes.count("0")]
    if "1" in codes:
        assert any("its files cannot be restored now" in error for _, error in told)
    check_all_the_way(scene, 3 - codes.count("0"))
