"""Credentials in a file that nobody else can read."""

import fcntl
import json
import os
import stat
import threading

import pytest

from perdure import ConfigError
from perdure.credentials import FileVault
from tests.doubles import list_open_below

ODD = 'with "quotes", a \\ and\na line = # more'


def private(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return FileVault(path)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_json_and_lines_are_read(tmp_path):
    assert private(tmp_path / "a", '{"token": "abcd-1234"}').resolve("token") == "abcd-1234"
    lines = '# keys\nexport TOKEN=abcd=1234 \nQUOTED=\'a b\'\nESCAPED="a\\nb"\n\nnot a line\nBROKEN="a\\q"\n'
    vault = private(tmp_path / "b", lines)
    assert vault.names() == ["TOKEN", "QUOTED", "ESCAPED", "BROKEN"]
    assert [vault.resolve(name) for name in vault.names()] == ["abcd=1234", "a b", "a\nb", "a\\q"]


def test_a_file_that_is_not_there_holds_nothing(tmp_path):
    vault = FileVault(tmp_path / "none")
    assert (vault.resolve("token"), vault.names(), vault.remove("token")) == (None, [], False)


@pytest.mark.parametrize("name", ["keys.json", "keys.env"])
def test_what_is_written_is_private_and_comes_back(tmp_path, name):
    path = tmp_path / name
    vault = FileVault(path)
    os.umask(os.umask(0))  # whatever it is
    vault.set("token", "abcd-1234")
    vault.set("odd", ODD)
    vault.set("token", "efgh-5678")
    assert mode_of(path) == 0o600
    assert {each: FileVault(path).resolve(each) for each in vault.names()} == {"token": "efgh-5678", "odd": ODD}
    assert (vault.remove("odd"), vault.remove("odd"), vault.names()) == (True, False, ["token"])
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert path.read_text().lstrip().startswith("{") is (name == "keys.json")


def test_comments_stay_when_a_line_changes(tmp_path):
    path = tmp_path / "keys"
    private(path, "# mine\nTOKEN=abcd-1234\n# yours\n").set("OTHER", "efgh-5678")
    assert path.read_text() == "# mine\nTOKEN=abcd-1234\n# yours\nOTHER=efgh-5678\n"


def test_a_file_that_has_changed_is_read_again(tmp_path):
    path = tmp_path / "keys"
    vault = private(path, "TOKEN=abcd-1234\n")
    assert vault.resolve("TOKEN") == "abcd-1234"
    FileVault(path).set("TOKEN", "efgh-5678")
    assert vault.resolve("TOKEN") == "efgh-5678"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_can_use_is_refused_with_what_to_do(tmp_path, mode):
    path = tmp_path / "keys"
    vault = private(path, "TOKEN=abcd-1234\n")
    path.chmod(mode)
    for use in (vault.names, lambda: vault.resolve("TOKEN"), lambda: vault.set("OTHER", "efgh-5678")):
        with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600"):
            use()


def test_a_link_a_folder_and_a_pipe_are_refused(tmp_path):
    private(tmp_path / "keys", "TOKEN=abcd-1234\n")
    (tmp_path / "link").symlink_to(tmp_path / "keys")
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, problem in (("link", "is a link"), ("folder", "no ordinary file"), ("pipe", "no ordinary file")):
        with pytest.raises(ConfigError, match=problem):
            FileVault(tmp_path / name).resolve("TOKEN")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"token": 4815}', "no JSON object"),
        (b'{"token"', "no JSON object"),
        (b"T=\xff\xfe", "UTF-8"),
        (b"#" * 2**21, "bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_without_what_is_in_it(tmp_path, content, problem):
    path = tmp_path / "keys"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=problem) as caught:
        FileVault(path).resolve("token")
    assert "4815" not in str(caught.value)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "keys.json"
    vault = FileVault(path)
    vault.set("token", "abcd-1234")

    def full(_file):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        vault.set("token", "efgh-5678")
    assert json.loads(path.read_text()) == {"token": "abcd-1234"}
    assert [each.name for each in tmp_path.iterdir()] == ["keys.json"]


def test_of_many_writers_none_is_lost(tmp_path):
    names = [f"token{number}" for number in range(8)]
    path = tmp_path / "keys.json"
    threads = [threading.Thread(target=lambda name=name: FileVault(path).set(name, "abcd-1234")) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(FileVault(path).names()) == names


@pytest.mark.parametrize("path", ["", None, 7])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ConfigError, match="the path of a file"):
        FileVault(path)


def error_of(work) -> str:
    with pytest.raises(ConfigError) as caught:
        work()
    return str(caught.value)


def test_each_refusal_says_what_is_wrong_and_what_to_do(tmp_path):
    path = tmp_path / "keys"
    vault = private(path, "TOKEN=abcd-1234\n")
    path.chmod(0o644)
    assert error_of(vault.names) == (
        f"the vault {str(path)!r} can be used by others (mode 0644); run: chmod 600 {path}"
    )
    path.chmod(0o600)
    os.mkfifo(tmp_path / "pipe", 0o600)
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    link.symlink_to(path)
    assert error_of(FileVault(pipe).names) == f"the vault {str(pipe)!r} is no ordinary file; give the path of a file"
    assert error_of(FileVault(link).names) == (
        f"the vault {str(link)!r} is a link; give the path of the file that it leads to"
    )


def test_a_file_that_cannot_be_opened_says_why(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    vault = private(path, "TOKEN=abcd-1234\n")

    def fail(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", fail)
    assert error_of(vault.names) == (
        f"the vault {str(path)!r} cannot be opened (Permission denied); make it a file of yours that you can read"
    )


def test_a_file_of_another_user_is_refused_and_one_of_root_is_not(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    vault = private(path, "TOKEN=abcd-1234\n")
    really, uid = os.fstat, 4711

    def owned(descriptor: int) -> os.stat_result:
        fields = list(really(descriptor))
        fields[4] = uid
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", owned)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert error_of(vault.names) == (
        f"the vault {str(path)!r} belongs to another user (uid 4711); make it yours with chown"
    )
    uid = 0
    assert vault.names() == ["TOKEN"]
    uid = 1234
    assert vault.names() == ["TOKEN"]


def test_the_folder_is_locked_while_a_file_takes_its_place_and_nothing_stays_open(tmp_path, monkeypatch):
    really = os.replace
    replaced = []

    def watch(old: str, new: str) -> None:
        descriptor = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        replaced.append(new)
        really(old, new)

    monkeypatch.setattr(os, "replace", watch)
    vault = FileVault(tmp_path / "keys.json")
    vault.set("token", "abcd-1234")
    vault.remove("token")
    assert (vault.names(), len(replaced), list_open_below(tmp_path)) == ([], 2, [])


def test_a_file_of_exactly_the_limit_is_read_and_a_longer_one_is_not(tmp_path):
    path = tmp_path / "keys"
    assert private(path, "A=abcd-1234\n".ljust(2**20, "#")).names() == ["A"]
    assert error_of(private(path, "A=abcd-1234\n".ljust(2**20 + 1, "#")).names) == (
        f"the vault {str(path)!r} has more than 1048576 bytes; keep credentials in it, and nothing else"
    )


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('A="x', '"x'),
        ("A='x'", "x"),
        ("A='x\"", "'x\""),
        ('A="', '"'),
        ('A=""', ""),
        ("A=''", ""),
        ('A="a\\tb"', "a\tb"),
        ("  # A=x\nA=y", "y"),
        ("A=x\nA=y", "y"),
    ],
)
def test_a_line_has_a_value_in_quotes_or_without(tmp_path, line, value):
    assert private(tmp_path / "keys", f"{line}\n").resolve("A") == value
