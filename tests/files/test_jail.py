"""The jail: what tools can read, list and write below a folder, and what leads nowhere."""

# ruff: noqa: E501, PTH101, PTH102, PTH103, PTH104, PTH109, PTH114, PTH116, PTH123, PTH208, PTH211 - a case is a line, and links and descriptors are the point

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from perdure import ConfigError
from perdure._io.files import folder_handle, linux_calls
from perdure._io.files.jail import MOST_WRITTEN_BYTES, Jail, compute_digest, describe_os_error
from perdure.hosts import FileChanged, FileRefused
from tests.doubles import list_open_below


@pytest.fixture(params=["one step", "step by step"])
def jail(tmp_path, request):
    """A folder with a secret beside it, opened in either way."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "note.txt").write_text("hello")
    jail = Jail(root)
    if request.param == "one step" and not jail._folder.one_step:
        pytest.skip("this kernel has no openat2")
    jail._folder.one_step = request.param == "one step"
    yield jail
    jail.close()


def read(jail, path) -> bytes:
    return jail.read(jail.resolve(path)).data


def write(jail, path, data=b"new", **options):
    return jail.write(jail.resolve(path), data, **options)


def refusal(work, *arguments, **options) -> str:
    with pytest.raises(FileRefused) as raised:
        work(*arguments, **options)
    return str(raised.value)


@pytest.mark.parametrize("path", ["deep/note.txt", "./deep/note.txt", "deep/../deep//note.txt"])
def test_a_file_is_read_by_any_of_its_paths(jail, path):
    assert read(jail, path) == read(jail, f"{jail.root}/{path}") == b"hello"
    assert jail.read(jail.resolve(path)).digest == compute_digest(b"hello")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../outside/secret.txt", "outside the working folder"),
        ("deep/../../outside/secret.txt", "outside the working folder"),
        ("/etc/passwd", "outside the working folder"),
        ("..", "outside the working folder"),
        ("../root2/x", "outside the working folder"),
        (".", "a folder"),
        ("deep", "a folder"),
        ("missing", "no such file"),
        ("deep/note.txt/x", "no such file"),
        ("a\0b", "not a valid path"),
        ("", "not a valid path"),
        ("  ", "not a valid path"),
        ("\ud800", "not a valid path"),
        ("a\udcffb", "not a valid path"),
        ("x" * 5000, "cannot be read"),
        ("pipe", "no regular file"),
        ("socket", "no regular file"),
        ("~/.ssh/id_rsa", "may contain secrets"),
        (".env", "may contain secrets"),
        ("deep/.ENV.local", "may contain secrets"),
        (".git/config", "may contain secrets"),
        ("server.pem", "may contain secrets"),
        ("/proc/self/environ", "outside the working folder"),
        ("/dev/stdin", "outside the working folder"),
    ],
)
def test_what_is_no_file_inside_is_not_read(jail, path, reason):
    os.mkfifo(f"{jail.root}/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(jail.root)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        assert reason in refusal(read, jail, path)


@pytest.mark.parametrize(
    ("link", "leads_to", "path"),
    [
        ("a", "../outside/secret.txt", "a"),
        ("a", "../outside", "a/secret.txt"),
        ("a", "/etc", "a/passwd"),
        ("a", "/proc/self/root", "a/etc/passwd"),
        ("deep/a", "../../outside/secret.txt", "deep/a"),
    ],
)
def test_a_link_that_leads_out_is_neither_read_nor_written(jail, link, leads_to, path):
    os.symlink(leads_to, f"{jail.root}/{link}")
    assert "outside" in refusal(read, jail, path)
    assert "outside" in refusal(write, jail, path)


def test_a_link_that_stays_inside_is_followed_once_and_its_own_name_is_not_opened(jail):
    os.symlink("deep", f"{jail.root}/link")
    target = jail.resolve("link/note.txt")
    assert target.path == f"{jail.root}/deep/note.txt"
    assert jail.read(target).data == b"hello"
    write(jail, "link/note.txt", b"changed")
    assert os.path.islink(f"{jail.root}/link")
    assert read(jail, "deep/note.txt") == b"changed"


def test_a_link_that_appears_after_the_path_was_resolved_leads_nowhere(jail):
    target = jail.resolve("deep/note.txt")
    os.rename(f"{jail.root}/deep", f"{jail.root}/gone")
    os.symlink("../outside", f"{jail.root}/deep")
    os.rename(f"{jail.root}/../outside/secret.txt", f"{jail.root}/../outside/note.txt")
    for work in (jail.read, lambda each: jail.write(each, b"x"), lambda each: jail.delete(each, expected="")):
        assert "link" in refusal(work, target) or "no folder" in refusal(work, target)
    assert Path(f"{jail.root}/../outside/note.txt").read_text() == "secret"


def test_the_folder_itself_may_be_replaced_by_a_link_and_its_files_stay_the_same(jail):
    target = jail.resolve("deep/note.txt")
    os.rename(jail.root, f"{jail.root}-moved")
    os.symlink("outside", jail.root)
    os.makedirs(f"{jail.root}/deep")
    Path(f"{jail.root}/deep/note.txt").write_text("of the attacker")
    assert jail.read(target).data == b"hello"
    jail.write(target, b"mine")
    assert Path(f"{jail.root}-moved/deep/note.txt").read_text() == "mine"
    assert Path(f"{jail.root}/deep/note.txt").read_text() == "of the attacker"


def test_a_file_that_is_too_large_is_refused(jail):
    with open(f"{jail.root}/sparse", "wb") as file:
        file.truncate(1 << 40)
    assert "limit" in refusal(read, jail, "sparse")
    assert "5 bytes, and the limit is 4" in refusal(jail.read, jail.resolve("deep/note.txt"), 4)
    assert "limit" in refusal(write, jail, "large", b"x" * (MOST_WRITTEN_BYTES + 1))


def test_a_folder_lists_its_entries_without_those_that_mean_secrets(jail):
    for name in (".env", "id_rsa", "credentials.json", "b.txt"):
        Path(f"{jail.root}/deep/{name}").touch()
    for name in (".git", ".ssh", "credentials", "sub"):
        os.mkdir(f"{jail.root}/deep/{name}")
    os.symlink("/etc", f"{jail.root}/deep/link")
    os.mkfifo(f"{jail.root}/deep/pipe")
    entries = jail.list_folder(jail.resolve("deep"))
    assert [(each.name, each.kind, each.size) for each in entries] == [
        ("b.txt", "file", 0),
        ("credentials", "folder", 0),
        ("link", "link", 0),
        ("note.txt", "file", 5),
        ("pipe", "other", 0),
        ("sub", "folder", 0),
    ]
    assert "secrets" in refusal(jail.list_folder, jail.resolve("deep/.git"))
    assert "outside" in refusal(jail.list_folder, jail.resolve("deep/link"))
    assert "no such folder" in refusal(jail.list_folder, jail.resolve("missing"))
    assert "folder" in refusal(jail.list_folder, jail.resolve("deep/note.txt"))


def test_names_that_are_no_text_are_listed(jail):
    os.close(os.open(os.fsencode(f"{jail.root}/deep/") + b"new\nline\xff", os.O_CREAT | os.O_WRONLY))
    assert "new\nline\udcff" in [each.name for each in jail.list_folder(jail.resolve("deep"))]


def test_a_file_is_created_with_the_folders_above_it(jail):
    done = write(jail, "a/b/c.txt", b"new", expected="")
    assert done.digest == compute_digest(b"new")
    assert read(jail, "a/b/c.txt") == b"new"
    assert os.listdir(f"{jail.root}/a/b") == ["c.txt"]


def test_a_file_that_is_replaced_keeps_its_permissions_and_other_names_keep_the_old_content(jail):
    os.chmod(f"{jail.root}/deep/note.txt", 0o750)
    os.link(f"{jail.root}/deep/note.txt", f"{jail.root}/../outside/hard")
    write(jail, "deep/note.txt", expected=compute_digest(b"hello"))
    assert stat.S_IMODE(os.stat(f"{jail.root}/deep/note.txt").st_mode) == 0o750
    assert Path(f"{jail.root}/../outside/hard").read_text() == "hello"
    assert read(jail, "deep/note.txt") == b"new"


@pytest.mark.parametrize(
    ("expected", "reason"),
    [("", "exists already"), (compute_digest(b"other"), "changed meanwhile")],
)
def test_a_file_that_is_not_as_expected_stays(jail, expected, reason):
    with pytest.raises(FileChanged, match=reason):
        write(jail, "deep/note.txt", expected=expected)
    with pytest.raises(FileChanged, match="deleted"):
        write(jail, "missing", expected=compute_digest(b"hello"))
    assert read(jail, "deep/note.txt") == b"hello"
    assert os.listdir(f"{jail.root}/deep") == ["note.txt"]


def test_a_file_that_is_created_or_changed_while_it_is_written_is_not_lost(jail, monkeypatch):
    """Between the first look and the last step, another process writes."""
    really_sync = os.fsync

    def sync_and_write(path):
        def sync(descriptor):
            really_sync(descriptor)
            Path(f"{jail.root}/{path}").write_text("of another")

        return sync

    for path, expected in (("new.txt", ""), ("deep/note.txt", compute_digest(b"hello"))):
        monkeypatch.setattr(os, "fsync", sync_and_write(path))
        with pytest.raises(FileChanged):
            write(jail, path, expected=expected)
        monkeypatch.setattr(os, "fsync", really_sync)
        assert read(jail, path) == b"of another"
    assert sorted(os.listdir(jail.root)) == ["deep", "new.txt"]


@pytest.mark.parametrize("path", ["deep", ".", "pipe", "deep/note.txt/below"])
def test_only_regular_files_are_replaced(jail, path):
    os.mkfifo(f"{jail.root}/pipe")
    refusal(write, jail, path)
    assert sorted(os.listdir(jail.root)) == ["deep", "pipe"]


@pytest.mark.parametrize(
    "path",
    [
        "perdure.toml", "PERDURE.TOML", "sub/perdure.toml", "perdure.toml.", "perd\u00adure.toml", ".perdure", ".perdure/x",
        ".Perdure/skills/a/SKILL.md", "sub/.perdure/trusted.json", ".mcp.json", "sub/.mcp.json", ".git", ".git/hooks/pre-commit",
        ".GIT/config", "sub/.git/config", ".git./config", ".hg/hgrc", ".jj/repo/config.toml", ".svn/wc.db", "x/../perdure.toml",
    ],
)  # fmt: skip
def test_the_runtimes_own_configuration_is_never_written_also_when_it_does_not_exist(jail, path):
    assert "never written" in refusal(write, jail, path)
    assert sorted(os.listdir(jail.root)) == ["deep"]


def test_a_link_to_configuration_that_does_not_exist_is_not_written_either(jail):
    os.symlink("perdure.toml", f"{jail.root}/notes.txt")
    os.symlink(".perdure", f"{jail.root}/folder")
    for path in ("notes.txt", "folder/trusted.json"):
        assert "never written" in refusal(write, jail, path)


def test_the_runtimes_own_configuration_is_never_deleted(jail):
    Path(f"{jail.root}/perdure.toml").write_text("x")
    assert refusal(jail.delete, jail.resolve("perdure.toml"), expected=compute_digest(b"x")) == (
        "files like 'perdure.toml' are never written by tools; do not try again"
    )
    assert sorted(os.listdir(jail.root)) == ["deep", "perdure.toml"]


def test_a_folder_that_cannot_be_opened_is_refused_with_the_reason(jail):
    for path, reason in (
        ("missing", "there is no such folder"),
        (".git", "files like '.git/' may contain secrets; do not try again"),
    ):
        with pytest.raises(FileRefused) as raised, jail.open_folder(jail.resolve(path)):
            pass
        assert str(raised.value) == reason


def test_more_names_can_be_blocked_and_protected_and_none_unblocked(tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "plan.txt").write_text("plan")
    (tmp_path / "fixed.txt").write_text("fixed")
    jail = Jail(tmp_path, blocked=["private/"], protected=["fixed.txt"])
    assert "secrets" in refusal(read, jail, "private/plan.txt")
    assert [each.name for each in jail.list_folder(jail.resolve("."))] == ["fixed.txt"]
    assert read(jail, "fixed.txt") == b"fixed"
    assert "never written" in refusal(write, jail, "fixed.txt")
    assert "secrets" in refusal(read, jail, ".env")


@pytest.mark.parametrize(
    "options", [{"blocked": "*.key"}, {"blocked": [3]}, {"protected": [""]}, {"blocked": ["/"]}, {"path": "missing"}]
)
def test_what_is_no_jail_is_an_error_that_says_what_to_give(tmp_path, options):
    with pytest.raises(ConfigError):
        Jail(tmp_path / options.pop("path", ""), **options)


def test_a_file_is_deleted_if_it_is_as_expected(jail):
    target = jail.resolve("deep/note.txt")
    with pytest.raises(FileChanged):
        jail.delete(target, expected=compute_digest(b"other"))
    jail.delete(target, expected=compute_digest(b"hello"))
    assert "no such file" in refusal(jail.read, target)
    assert "a folder" in refusal(jail.delete, jail.resolve("."), expected="")


def test_a_closed_jail_reads_nothing(jail):
    jail.close()
    jail.close()
    assert "closed" in refusal(read, jail, "deep/note.txt")


def test_a_target_that_was_not_resolved_leads_nowhere(jail):
    """Names that `resolve` never returns, as from a damaged log."""
    for path in (f"{jail.root}/deep/../../outside/secret.txt", f"{jail.root}/../outside/secret.txt"):
        target = type(jail.resolve("x"))(path, jail.root)
        refusal(jail.read, target)
        refusal(jail.write, target, b"x")


def test_without_openat2_names_are_opened_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(linux_calls, "_libc", None)
    assert not linux_calls.is_available()
    assert not folder_handle.FolderHandle(str(tmp_path)).one_step
    with pytest.raises(OSError, match="implemented"):
        linux_calls.open_in_one_step(0, "x", 0)


def test_a_system_without_descriptors_of_folders_reads_and_does_not_write(tmp_path, monkeypatch):
    from perdure._core.permission.targets import path as open_without_links

    monkeypatch.setattr(folder_handle, "STEP_BY_STEP", False)
    monkeypatch.setattr(open_without_links, "STEP_BY_STEP", False)
    (tmp_path / "a.txt").write_text("hello")
    jail = Jail(tmp_path)
    assert read(jail, "a.txt") == b"hello"
    assert "cannot be written" in refusal(write, jail, "b.txt")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOENT, "there is no such folder"),
        (errno.ELOOP, "a name on its way has become a link since it was checked"),
        (errno.EMLINK, "a name on its way has become a link since it was checked"),
        (errno.EXDEV, "a name on its way has become a link since it was checked"),
        (errno.ENOTDIR, "there is no such folder: a name on its way is no folder"),
        (errno.EISDIR, "it is a folder"),
        (errno.ENXIO, "it is no regular file"),
        (errno.EACCES, "it cannot be deleted (Permission denied)"),
    ],
)
def test_why_something_cannot_be_done_with_a_path_is_told_in_words(code, reason):
    assert describe_os_error(OSError(code, os.strerror(code)), verb="deleted", kind="folder") == reason


def test_an_error_without_words_of_the_system_is_told_as_it_is():
    assert describe_os_error(OSError("gone")) == "it cannot be read (gone)"


def test_nothing_stays_open_whether_a_step_works_or_not(jail):
    os.mkfifo(f"{jail.root}/pipe")
    os.symlink("../outside", f"{jail.root}/late")
    Path(f"{jail.root}/.env").touch()
    note, late = jail.resolve("deep/note.txt"), type(jail.resolve("x"))(f"{jail.root}/late/secret.txt", jail.root)
    before = len(list_open_below(jail.root))
    jail.read(note)
    jail.list_folder(jail.resolve("deep"))
    assert [jail.is_regular(each) for each in (("deep", "note.txt"), ("deep",), ("missing",), (), (".env",))] == [
        True, False, False, False, False,
    ]  # fmt: skip
    with jail.open_folder(jail.resolve("deep")) as folder:
        assert os.listdir(folder) == ["note.txt"]
    jail.write(note, b"new")
    jail.write(jail.resolve("a/b/c"), b"new")
    jail.delete(note, expected=compute_digest(b"new"))
    for work in (
        lambda: jail.read(jail.resolve("pipe")),
        lambda: jail.read(jail.resolve("deep")),
        lambda: jail.read(late),
        lambda: jail.list_folder(jail.resolve("pipe")),
        lambda: jail.write(jail.resolve("deep"), b"x"),
        lambda: jail.write(jail.resolve("a/b/c"), b"x", expected=compute_digest(b"old")),
        lambda: jail.write(jail.resolve("a/b/c/d"), b"x"),
        lambda: jail.write(late, b"x"),
        lambda: jail.delete(jail.resolve("missing"), expected=compute_digest(b"old")),
    ):
        refusal(work)
    assert len(list_open_below(jail.root)) == before


def test_a_closed_jail_has_given_its_descriptor_back(tmp_path):
    jail = Jail(tmp_path)
    assert list_open_below(tmp_path) == [jail.root]
    jail.close()
    jail.close()
    assert list_open_below(tmp_path) == []


def test_a_path_is_shown_from_the_folder_on_and_whole_if_it_is_outside(jail):
    shown = [jail.show(jail.resolve(path)) for path in (".", "deep", "deep/note.txt", "/etc", f"{jail.root}2/x")]
    assert shown == [".", "deep", "deep/note.txt", "/etc", f"{jail.root}2/x"]
    assert jail.show(jail.build_target(("deep", "note.txt"))) == "deep/note.txt"


def test_all_files_are_inside_the_root_of_the_system():
    jail = Jail("/")
    assert jail.check(jail.resolve("/usr/bin/x")) == ("usr", "bin", "x")
    jail.close()


def test_a_file_of_exactly_the_limit_is_read_and_written(jail):
    assert jail.read(jail.resolve("deep/note.txt"), 5).data == b"hello"
    assert len(write(jail, "large", b"x" * MOST_WRITTEN_BYTES).data) == MOST_WRITTEN_BYTES
    assert refusal(write, jail, "larger", b"x" * (MOST_WRITTEN_BYTES + 1)) == (
        f"it would have {MOST_WRITTEN_BYTES + 1:,} bytes, and the limit is {MOST_WRITTEN_BYTES:,}"
    )


def test_a_file_of_exactly_the_limit_of_reading_is_replaced_and_a_larger_one_is_not(jail, monkeypatch):
    monkeypatch.setattr("perdure._io.files.jail.MOST_READ_BYTES", 5)
    assert write(jail, "deep/note.txt", b"six by").digest == compute_digest(b"six by")
    assert refusal(write, jail, "deep/note.txt", b"new") == "it has 6 bytes, and the limit is 5"


def test_what_was_read_and_written_is_returned_with_its_permissions(jail):
    os.chmod(f"{jail.root}/deep/note.txt", 0o640)
    found = jail.read(jail.resolve("deep/note.txt"))
    assert (found.data, found.digest, found.mode) == (b"hello", compute_digest(b"hello"), 0o640)
    done = write(jail, "deep/note.txt", b"new")
    assert (done.data, done.digest, done.mode) == (b"new", compute_digest(b"new"), 0o640)
    done = write(jail, "deep/note.txt", b"newer", mode=0o600)
    assert (done.data, done.mode, stat.S_IMODE(os.stat(f"{jail.root}/deep/note.txt").st_mode)) == (
        b"newer", 0o600, 0o600,
    )  # fmt: skip
