"""The files with what a user has decided: each of them refuses what others may have written, and loses nothing.

Every test here runs with each kind of file, by the class that people use.
"""

import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from perdure import ConfigError, Grant, PerdureError, StoreError
from perdure._io.home import decision_file, paths
from perdure._io.home.decision_file import DecisionFile
from perdure.context import TrustedFiles
from perdure.mcp import LoginFile, McpServer, PinFile, StoredLogin
from perdure.permissions import FileVault, GrantFile
from tests.doubles import list_open_below

ANOTHER = 4711
"""The id of another user."""


class Kind(Struct):
    """One kind of file: how a decision is stored and removed, how all are listed, and what its messages say."""

    store: Callable[[str, str], Any]
    remove: Callable[[str, str], bool]
    names: Callable[[str], list[str]]
    title: str
    repair: str = "correct it, or delete it"
    is_secret: bool = False
    error: type[PerdureError] = ConfigError


def make_grant(name: str) -> Grant:
    return Grant("forever", True, "shell", "run", name)


def make_login(name: str) -> StoredLogin:
    return StoredLogin(
        url=name, resource="", issuer="", token_endpoint="", client_id="", access_token="abcd-1234"
    )  # fmt: skip


def list_trusted(path: str, names: str = "abcdefghijkl") -> list[str]:
    trusted = TrustedFiles(path)
    return [each for each in names if trusted(each)]


KINDS = {
    "grants": Kind(
        lambda path, name: GrantFile(path).remember(make_grant(name)),
        lambda path, name: GrantFile(path).revoke(make_grant(name).grant_id),
        lambda path: sorted(each.target for each in GrantFile(path)),
        "the grant file",
        error=StoreError,
    ),
    "pins": Kind(
        lambda path, name: PinFile(path).find_changes(
            McpServer(name=name, transport="http", url="https://a.example"), []
        ),
        lambda path, name: PinFile(path).forget(name),
        lambda path: sorted(PinFile(path).load_pins()),
        "the pin file of MCP servers",
    ),
    "trust": Kind(
        lambda path, name: TrustedFiles(path).trust(f"/{name}", name),
        lambda path, name: TrustedFiles(path).revoke(f"/{name}"),
        list_trusted,
        "the trust file",
    ),
    "vault": Kind(
        lambda path, name: FileVault(path).set(name, "abcd-1234"),
        lambda path, name: FileVault(path).remove(name),
        lambda path: sorted(FileVault(path).names()),
        "the vault",
        'write credentials alone into it, as UTF-8: lines of NAME=value, or {"name": "value", …}',
        is_secret=True,
    ),
    "logins": Kind(
        lambda path, name: LoginFile(path).store(name, make_login(name)),
        lambda path, name: LoginFile(path).remove(name),
        lambda path: sorted(LoginFile(path).load()),
        "the login file of MCP servers",
        "delete it, and log in again",
        is_secret=True,
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "decisions.json"


def refuse(kind: Kind, path: Path) -> str:
    """Check that a file is neither read nor written, and return why."""
    with pytest.raises(PerdureError) as refused:
        kind.store(str(path), "b")
    with pytest.raises(PerdureError) as raised:
        kind.names(str(path))
    assert (type(raised.value), str(raised.value)) == (type(refused.value), str(refused.value))
    assert type(raised.value) is kind.error
    assert list_open_below(path.parent) == []
    return str(raised.value).removeprefix(f"{kind.title} {str(path)!r} ")


def test_decisions_are_kept_by_name_and_removed_once(kind: Kind, path: Path) -> None:
    assert (kind.names(str(path)), kind.remove(str(path), "a")) == ([], False)
    for name in "abb":
        kind.store(str(path), name)
    assert kind.names(str(path)) == ["a", "b"]
    assert [kind.remove(str(path), "a") for _ in range(2)] == [True, False]
    assert kind.names(str(path)) == ["b"]


def test_what_is_only_read_makes_no_file(kind: Kind, path: Path) -> None:
    assert kind.names(str(path)) == []
    assert not path.exists()


def test_a_file_and_its_folder_are_its_owners_alone_with_nothing_beside_it(kind: Kind, path: Path) -> None:
    kind.store(str(path), "a")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_to_is_not_used(kind: Kind, path: Path, mode: int) -> None:
    kind.store(str(path), "a")
    path.chmod(mode)
    problem, repair = ("used", "renew what is in it") if kind.is_secret else ("changed", "check its content")
    assert refuse(kind, path) == (
        f"can be {problem} by others (mode {mode:04o}), so it is not used: chmod 600 it, and {repair}"
    )


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o601, 0o610])
def test_a_file_that_others_can_read_is_used_unless_it_has_secrets(kind: Kind, path: Path, mode: int) -> None:
    kind.store(str(path), "a")
    path.chmod(mode)
    if kind.is_secret:
        assert refuse(kind, path).startswith(f"can be used by others (mode {mode:04o})")
    else:
        assert kind.names(str(path)) == ["a"]


def test_a_link_is_not_followed(kind: Kind, path: Path) -> None:
    kind.store(str(path), "a")
    link = path.with_name("link")
    link.symlink_to(path)
    advice = "is a link, so it is not used: give the path of the file that it leads to, or move it away"
    assert refuse(kind, link) == advice
    link.unlink()
    link.symlink_to("gone")
    assert refuse(kind, link) == advice
    assert kind.names(str(path)) == ["a"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_used(kind: Kind, path: Path, make: Callable[[str, int], None]) -> None:
    path.parent.mkdir(0o700)
    make(str(path), 0o700)
    assert refuse(kind, path) == "is no regular file, so it is not used: move it away"


def test_a_file_of_another_user_is_not_used_and_one_of_root_is(
    kind: Kind, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.store(str(path), "a")
    owner, me = ANOTHER, os.geteuid()
    number = path.stat().st_ino

    def wrap(look: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def look_again(place: Any) -> os.stat_result:
            fields = list(look(place))
            if fields[1] == number:
                fields[4] = owner
            return os.stat_result(fields)

        return look_again

    monkeypatch.setattr(os, "lstat", wrap(os.lstat))
    monkeypatch.setattr(os, "fstat", wrap(os.fstat))
    assert refuse(kind, path) == (
        f"belongs to another user (uid {ANOTHER}), so it is not used: make it yours with chown, and check it"
    )
    for owner in (0, me):  # noqa: B007 - `look` reads it
        assert kind.names(str(path)) == ["a"]


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b'{"a": {"abcd-1234": 1', b"{" * 100_000])
def test_a_damaged_file_is_refused_and_left_as_it_is(kind: Kind, path: Path, damage: bytes) -> None:
    kind.store(str(path), "a")
    path.write_bytes(damage)
    problem = refuse(kind, path)
    assert problem.startswith("cannot be parsed")
    assert problem.endswith(f", so it is not used: {kind.repair}")
    assert (kind.is_secret, "(" in problem) in {(True, False), (False, True)}
    assert path.read_bytes() == damage


def test_an_empty_file_has_nothing_and_is_written_to(kind: Kind, path: Path) -> None:
    """A missing file is covered by an empty one while a command runs."""
    path.parent.mkdir(0o700)
    path.touch(0o600)
    assert kind.names(str(path)) == []
    kind.store(str(path), "a")
    assert kind.names(str(path)) == ["a"]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    kind: Kind, path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    kind.store(str(path), "a")
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(kind.error) as refused:
        kind.store(str(path), "b")
    assert str(refused.value) == (
        f"{kind.title} {str(path)!r} cannot be written: No space left on device; check the disk and the permissions"
    )
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_folder_that_is_a_file_is_a_typed_error(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "decisions")
    for use in (lambda: kind.names(path), lambda: kind.store(path, "a")):
        with pytest.raises(kind.error, match=r"cannot be (read: Not a directory|written: File exists); check the disk"):
            use()


def test_the_folder_is_locked_while_a_file_takes_its_place_and_nothing_stays_open(
    kind: Kind, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.replace
    replaced: list[str] = []

    def watch(old: str, new: str) -> None:
        descriptor = os.open(path.parent, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        replaced.append(new)
        really(old, new)

    monkeypatch.setattr(os, "replace", watch)
    kind.store(str(path), "a")
    kind.remove(str(path), "a")
    assert (replaced, list_open_below(path.parent)) == ([str(path)] * 2, [])


def test_of_many_writers_at_once_none_is_lost(kind: Kind, path: Path) -> None:
    threads = [threading.Thread(target=kind.store, args=(str(path), name)) for name in "abcdefghijkl"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert kind.names(str(path)) == list("abcdefghijkl")


def test_processes_lose_nothing_of_each_other(path: Path) -> None:
    code = (
        "import sys; from perdure.context import TrustedFiles; t = TrustedFiles(sys.argv[1])\n"
        "for name in sys.argv[2]: t.trust('/' + name, name)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), names]) for names in ("abcd", "efgh", "ijkl")]
    assert [each.wait(30) for each in writers] == [0, 0, 0]
    assert list_trusted(str(path)) == list("abcdefghijkl")


def test_a_system_without_locks_of_folders_is_used_without(
    kind: Kind, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (decision_file, paths):
        monkeypatch.setattr(module, "_IS_POSIX", False)
    kind.store(str(path), "a")
    assert kind.names(str(path)) == ["a"]


def test_a_path_without_a_folder_is_in_the_working_folder(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind.store("decisions", "a")
    assert [each.name for each in tmp_path.iterdir()] == ["decisions"]
    assert kind.names(str(tmp_path / "decisions")) == ["a"]


def test_a_path_in_the_home_folder_may_be_written_with_a_tilde(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    kind.store("~/decisions", "a")
    assert kind.names(str(tmp_path / "decisions")) == ["a"]


def test_a_file_that_takes_the_place_of_a_checked_one_is_checked_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KINDS["trust"]
    kind.store(str(path), "a")
    checked = os.lstat(path)
    path.chmod(0o666)

    def look(_: object) -> os.stat_result:
        return checked

    monkeypatch.setattr(os, "lstat", look)
    with pytest.raises(ConfigError, match=r"can be changed by others \(mode 0666\)"):
        list_trusted(str(path))
    path.unlink()
    assert list_trusted(str(path)) == []
    path.symlink_to("elsewhere")
    with pytest.raises(ConfigError, match="cannot be read: Too many levels of symbolic links"):
        list_trusted(str(path))


def test_a_file_of_exactly_the_limit_is_read_and_a_longer_one_is_not(path: Path) -> None:
    path.parent.mkdir(0o700)
    path.write_bytes(b"four")
    assert DecisionFile(str(path), "the file", bytes.decode, max_bytes=4).load() == "four"
    with pytest.raises(ConfigError) as refused:
        DecisionFile(str(path), "the file", bytes.decode, max_bytes=3).load()
    assert str(refused.value) == (
        f"the file {str(path)!r} has more than 3 bytes, so it is not used: correct it, or delete it"
    )


def test_the_message_about_a_damaged_secret_has_no_cause_that_quotes_it(path: Path) -> None:
    KINDS["vault"].store(str(path), "a")
    path.write_text('{"a": "abcd-1234", "b": 4815}')
    with pytest.raises(ConfigError) as refused:
        FileVault(path).names()
    assert refused.value.__suppress_context__
    assert refused.value.__cause__ is None
