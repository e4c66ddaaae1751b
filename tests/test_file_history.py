"""Changes of files in a session: shown, undone, redone, forked with, and never at the cost of later work."""

import gc
import os

import pytest

from perdure import Agent, ConfigError
from perdure._tools.files.records import FileAccessRecord
from perdure.hosts import SnapshotFolder
from perdure.permissions import allow_all
from perdure.testing import ScriptedModel, call
from perdure.tools import FileHistory, coding, orchestrator
from tests.doubles import list_open_below


@pytest.fixture
def place(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "old.py").write_text("one\n")
    (root / "old.py").chmod(0o755)
    return root


def script():
    return [
        call("read", path="old.py"), call("edit", path="old.py", old_string="one", new_string="two"),
        call("write", path="sub/new.txt", content="new\n"),
        call("edit", path="old.py", old_string="two", new_string="three"),
        "First.",
        call("edit", path="old.py", old_string="three", new_string="four"), "Second.",
    ]  # fmt: skip


@pytest.fixture
async def session(place, tmp_path):
    snapshots = SnapshotFolder(tmp_path / "snapshots")
    agent = Agent(ScriptedModel(*script()), extensions=[coding(place, snapshots=snapshots)], permission=allow_all)
    session = agent.session()
    for prompt in ("First run.", "Second run."):
        assert (await session.run(prompt)).status == "done"
    return session


@pytest.fixture
def history(session, tmp_path):
    return FileHistory(session, SnapshotFolder(tmp_path / "snapshots"))


def files_in(root) -> dict[str, str]:
    return {str(each.relative_to(root)): each.read_text() for each in root.rglob("*") if each.is_file()}


async def test_changes_are_shown_in_order_with_their_runs(history, place):
    changes = await history.changes()
    assert [(each.path, bool(each.before), each.undone) for each in changes] == [
        ("old.py", True, False), ("sub/new.txt", False, False), ("old.py", True, False), ("old.py", True, False),
    ]  # fmt: skip
    assert changes[0].root == str(place)
    assert len({each.run_id for each in changes}) == 2
    assert await history.changes(changes[-1].run_id) == changes[-1:]
    assert await history.load(changes[0].before) == b"one\n"
    assert await history.load("") == b""


async def test_runs_are_undone_one_after_another_and_redone_in_reverse(history, place):
    assert [(each.path, each.status) for each in await history.undo()] == [("old.py", "restored")]
    assert files_in(place) == {"old.py": "three\n", "sub/new.txt": "new\n"}
    assert sorted((each.path, each.status) for each in await history.undo()) == [
        ("old.py", "restored"), ("sub/new.txt", "restored"),
    ]  # fmt: skip
    assert files_in(place) == {"old.py": "one\n"}
    assert (place / "old.py").stat().st_mode & 0o777 == 0o755
    assert await history.undo() == []
    assert all(each.undone for each in await history.changes())
    await history.redo()
    assert files_in(place) == {"old.py": "three\n", "sub/new.txt": "new\n"}
    await history.redo()
    assert files_in(place) == {"old.py": "four\n", "sub/new.txt": "new\n"}
    assert await history.redo() == []


async def test_commands_that_may_have_changed_files_are_listed_by_run(tmp_path):
    from perdure.testing import ScriptedShell

    model = ScriptedModel(
        call("bash", command="ls && cat x"), call("bash", command="ls && make"), "First.",
        call("bash", command="sed -i s/a/b/ x", background=True), call("write", path="x", content="x"), "Second.",
    )  # fmt: skip
    shell = ScriptedShell({"ls && cat x": "", "ls && make": "", "sed -i s/a/b/ x": ""})
    agent = Agent(model, extensions=[coding(tmp_path, shell=shell)], permission=allow_all)
    session = agent.session()
    first, second = [(await session.run(prompt)).run_id for prompt in ("One.", "Two.")]
    await session.keep("shell:command", "odd")
    history = FileHistory(session, SnapshotFolder(tmp_path / "snapshots"))
    assert [(each.run_id, each.line, each.root) for each in await history.commands()] == [
        (first, "ls && make", shell.root), (second, "sed -i s/a/b/ x", shell.root),
    ]  # fmt: skip
    assert [each.line for each in await history.commands(first)] == ["ls && make"]
    assert [(each.path, each.run_id) for each in await history.undo(dry_run=True)] == [("x", second)]


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(history, place):
    before = files_in(place)
    assert [(each.path, each.status) for each in await history.undo(dry_run=True)] == [("old.py", "restored")]
    assert files_in(place) == before
    assert not any(each.undone for each in await history.changes())


async def test_what_others_have_changed_since_stays_unless_it_is_to_be_overwritten(history, place):
    (place / "old.py").write_text("by hand\n")
    (result,) = await history.undo()
    assert (result.status, result.reason) == ("conflict", "it has been changed since by others")
    assert files_in(place)["old.py"] == "by hand\n"
    assert not any(each.undone for each in await history.changes())
    await history.undo(overwrite=True)
    assert files_in(place)["old.py"] == "three\n"


async def test_a_file_that_is_so_already_counts_as_undone(history, place):
    (place / "old.py").write_text("three\n")
    (result,) = await history.undo()
    assert result.status == "unchanged"
    assert (await history.changes())[-1].undone


async def test_a_run_that_leaves_files_as_they_were_is_passed_over_by_the_next_undo(place, tmp_path):
    snapshots = SnapshotFolder(tmp_path / "snapshots")
    there_and_back = [
        call("edit", path="old.py", old_string="two", new_string="three"),
        call("edit", path="old.py", old_string="three", new_string="two"),
    ]
    model = ScriptedModel(
        call("read", path="old.py"), call("edit", path="old.py", old_string="one", new_string="two"), "First.",
        *there_and_back, call("write", path="new.txt", content="new\n"), "Second.",
        *there_and_back, "Third.",
    )  # fmt: skip
    session = Agent(model, extensions=[coding(place, snapshots=snapshots)], permission=allow_all).session()
    first, second, _ = [(await session.run(prompt)).run_id for prompt in ("1", "2", "3")]
    history = FileHistory(session, snapshots)
    assert [(each.path, each.run_id) for each in await history.undo()] == [("new.txt", second)]
    assert [(each.path, each.run_id) for each in await history.undo()] == [("old.py", first)]
    assert files_in(place) == {"old.py": "one\n"}
    assert await history.undo() == []
    for run_id in (first, second):
        assert {each.run_id for each in await history.redo()} == {run_id}
    assert files_in(place) == {"old.py": "two\n", "new.txt": "new\n"}


async def test_one_run_can_be_named(history, place):
    first = (await history.changes())[0].run_id
    assert sorted((each.path, each.status) for each in await history.undo(first)) == [
        ("old.py", "conflict"), ("sub/new.txt", "restored"),
    ]  # fmt: skip
    assert await history.undo("no such run") == []


async def test_a_content_that_is_lost_or_damaged_is_not_restored(history, place, tmp_path):
    for each in (tmp_path / "snapshots").rglob("*"):
        if each.is_file() and each.read_bytes() == b"three\n":
            each.write_bytes(b"damaged")
    (result,) = await history.undo()
    assert result.status == "refused"
    assert "damaged" in result.reason
    assert files_in(place)["old.py"] == "four\n"


async def test_a_link_that_leads_out_is_not_followed(history, place, tmp_path):
    (tmp_path / "outside.py").write_text("four\n")
    (place / "old.py").unlink()
    (place / "old.py").symlink_to(tmp_path / "outside.py")
    assert [each.status for each in await history.undo()] == ["conflict"]
    assert (tmp_path / "outside.py").read_text() == "four\n"
    assert [each.status for each in await history.undo(overwrite=True)] == ["restored"]
    assert ((place / "old.py").read_text(), (place / "old.py").is_symlink()) == ("three\n", False)
    assert (tmp_path / "outside.py").read_text() == "four\n"


async def test_a_session_is_forked_with_its_files_as_they_were(history, session, place, tmp_path):
    changes = await history.changes()
    fork = await history.fork(tmp_path / "copy", at=changes[1].seq - 1)
    assert files_in(tmp_path / "copy") == {"old.py": "two\n"}
    assert files_in(place) == {"old.py": "four\n", "sub/new.txt": "new\n"}
    assert len(await FileHistory(fork, SnapshotFolder(tmp_path / "snapshots")).changes()) == 1
    whole = await history.fork(tmp_path / "whole", session_id="whole")
    assert whole.session_id == "whole"
    assert files_in(tmp_path / "whole") == files_in(place)
    with pytest.raises(ConfigError, match="exists: name a folder that does not"):
        await history.fork(tmp_path / "copy")


async def test_an_undo_is_a_change_that_a_fork_at_an_earlier_entry_does_not_have(history, session, place, tmp_path):
    ends = {"two runs": (await session.store.read(session.session_id))[-1].seq}
    wanted = {"two runs": files_in(place)}
    for name, work in (("undone once", history.undo), ("undone twice", history.undo), ("redone", history.redo)):
        await work()
        ends[name] = (await session.store.read(session.session_id))[-1].seq
        wanted[name] = files_in(place)
    assert wanted["undone twice"] == {"old.py": "one\n"}
    for name, at in ends.items():
        fork = await history.fork(tmp_path / name, at=at)
        assert files_in(tmp_path / name) == wanted[name], name
        undone = FileHistory(fork, SnapshotFolder(tmp_path / "snapshots"))
        while await undone.undo():
            pass
        assert files_in(tmp_path / name) == {"old.py": "one\n"}, name


@pytest.mark.parametrize("place_of_copy", ["root/copy", "root/sub/copy", "root/missing/copy", "link/sub/copy"])
async def test_a_folder_is_not_copied_into_itself(history, session, place, tmp_path, place_of_copy):
    (tmp_path / "link").symlink_to("root")
    before = sorted(place.rglob("*"))
    with pytest.raises(ConfigError, match="name a folder outside of it"):
        await history.fork(tmp_path / place_of_copy, session_id="copy")
    assert sorted(place.rglob("*")) == before
    assert await session.store.info("copy") is None


async def test_the_model_reads_again_what_was_undone(history, session):
    await history.undo()
    result = await session.call("edit", {"path": "old.py", "old_string": "three", "new_string": "five"})
    assert result.status == "ok"  # the log has the digest of what was restored, which the model has seen before


async def test_changes_made_elsewhere_need_the_folder(history, session, place, tmp_path):
    moved = place.rename(tmp_path / "moved")
    with pytest.raises(ConfigError):
        await history.undo()
    there = FileHistory(session, SnapshotFolder(tmp_path / "snapshots"), workdir=moved)
    assert [each.status for each in await there.undo()] == ["restored"]


async def test_background_agents_have_histories_of_their_own(place, tmp_path):
    snapshots = SnapshotFolder(tmp_path / "snapshots")
    coder = Agent(
        ScriptedModel(call("write", path="by-coder.txt", content="x\n"), "Written."),
        name="coder",
        extensions=[coding(place, snapshots=snapshots)],
        permission=allow_all,
    )
    boss = Agent(
        ScriptedModel(
            call("read", path="old.py"),
            call("edit", path="old.py", old_string="one", new_string="1"),
            call("delegate", agent="coder", task="Write.", background=True),
            call("wait_for_agents"),
            "Done.",
        ),
        extensions=[coding(place, snapshots=snapshots)],
        permission=allow_all,
    )
    session = orchestrator(boss, [coder]).session("ship")
    assert (await session.run("Go.")).status == "done"
    history = FileHistory(session, snapshots)
    assert [each.path for each in await history.changes()] == ["old.py"]
    (below,) = await history.list_background_histories()
    assert below.session_id.startswith("ship/coder-")
    assert [each.path for each in await below.changes()] == ["by-coder.txt"]
    assert [each.status for each in await below.undo()] == ["restored"]
    assert files_in(place) == {"old.py": "1\n"}
    fork = await session.fork("other")
    assert await FileHistory(fork, snapshots).list_background_histories() == []


async def test_a_subagent_s_changes_are_those_of_the_session_and_a_run_of_their_own(place, tmp_path):
    snapshots = SnapshotFolder(tmp_path / "snapshots")
    model = ScriptedModel(call("write", path="new.txt", content="x\n"), "Written.")
    coder = Agent(model, name="coder", extensions=[coding(place, snapshots=snapshots)], permission=allow_all)
    boss = Agent(ScriptedModel(call("coder", task="Write."), "Done."), tools=[coder.as_tool()], permission=allow_all)
    session = boss.session()
    outcome = await session.run("Go.")
    history = FileHistory(session, snapshots)
    (change,) = await history.changes()
    assert (change.path, change.run_id.startswith(f"{outcome.run_id}/")) == ("new.txt", True)
    assert await history.list_background_histories() == []
    assert [each.status for each in await history.undo()] == ["restored"]
    assert files_in(place) == {"old.py": "one\n"}


async def test_a_session_without_changes_has_no_history(tmp_path):
    session = Agent(ScriptedModel("Hi.")).session()
    await session.run("Hello.")
    await session.keep("file:odd", 5)
    await session.keep("file:read", {"digest": "x"})
    history = FileHistory(session, SnapshotFolder(tmp_path))
    assert (await history.changes(), await history.undo(), await history.redo()) == ([], [], [])
    with pytest.raises(ConfigError, match="workdir"):
        await history.fork(tmp_path / "copy")


def test_what_is_no_session_or_no_snapshots_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="give a session"):
        FileHistory("id", SnapshotFolder(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="SnapshotFolder"):
        FileHistory(Agent(ScriptedModel()).session(), None)  # type: ignore[arg-type]


async def test_snapshots_are_private_stored_once_and_can_be_pruned(tmp_path):
    snapshots = SnapshotFolder(tmp_path / "deep" / "snapshots")
    digest = snapshots.save(b"content")
    assert snapshots.save(b"content") == digest
    stored = [each for each in (tmp_path / "deep" / "snapshots").rglob("*") if each.is_file()]
    assert [each.stat().st_mode & 0o777 for each in stored] == [0o600]
    assert (tmp_path / "deep" / "snapshots").stat().st_mode & 0o777 == 0o700
    for wrong in ("../../etc/passwd", "", "A" * 64):
        with pytest.raises(ConfigError, match="no digest"):
            snapshots.load(wrong)
    assert snapshots.prune(60, now=stored[0].stat().st_mtime) == 0
    assert snapshots.prune(60, now=stored[0].stat().st_mtime + 61) == 1
    with pytest.raises(ConfigError):
        snapshots.load(digest)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be stored"):
        SnapshotFolder(tmp_path / "file").save(b"x")


async def test_a_file_that_was_deleted_since_comes_back_with_its_mode_and_no_folder_stays_open(history, place):
    (place / "old.py").unlink()
    gc.collect()  # a folder of an agent that is not used any more is closed now, and not in between
    opened = list_open_below(place.parent)
    (result,) = await history.undo(overwrite=True)
    assert list_open_below(place.parent) == opened
    assert (result.status, result.path, result.reason) == ("restored", "old.py", "")
    assert ((place / "old.py").read_text(), (place / "old.py").stat().st_mode & 0o777) == ("three\n", 0o755)
    await history.fork(place.parent / "copy", at=(await history.changes())[0].seq)
    assert list_open_below(place.parent) == opened


async def test_a_change_that_was_stored_again_after_a_crash_counts_once(history, session):
    changes = await history.changes()
    record = FileAccessRecord("d1", "d0", "call-9", changes[0].root)
    for path in ("file:a.py", "file:b.py", "file:a.py"):
        await session.keep(path, record)
    later = (await history.changes())[len(changes) :]
    assert [(each.path, each.call_id, each.before, each.after) for each in later] == [
        ("b.py", "call-9", "d0", "d1"),
        ("a.py", "call-9", "d0", "d1"),
    ]
    assert later[0].seq < later[1].seq


async def test_a_folder_that_cannot_be_copied_leaves_no_part_of_a_copy_and_no_fork(history, session, place, tmp_path):
    os.mkfifo(place / "pipe")
    with pytest.raises(ConfigError) as raised:
        await history.fork(tmp_path / "copy", session_id="fork")
    assert str(raised.value).startswith(f"{str(place)!r} cannot be copied to {str(tmp_path / 'copy')!r}: ")
    assert not (tmp_path / "copy").exists()
    assert await session.store.info("fork") is None
