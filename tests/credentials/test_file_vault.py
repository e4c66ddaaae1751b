"""Credentials in a file that nobody else can read."""

import os
import stat

import pytest

from perdure import ConfigError
from perdure.permissions import FileVault

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


@pytest.mark.parametrize("content", [b'{"token": 4815}', b'{"token"', b"T=\xff\xfe"])
def test_a_file_that_cannot_be_parsed_is_refused_with_what_to_write_and_without_what_is_in_it(tmp_path, content):
    path = tmp_path / "keys"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        FileVault(path).resolve("token")
    assert str(caught.value) == (
        f"the vault {str(path)!r} cannot be parsed, so it is not used: write credentials alone into it, as UTF-8: "
        'lines of NAME=value, or {"name": "value", …}'
    )


@pytest.mark.parametrize("path", ["", None, 7])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ConfigError, match="the path of a file"):
        FileVault(path)


def test_a_file_of_exactly_the_limit_is_read_and_a_longer_one_is_not(tmp_path):
    path = tmp_path / "keys"
    assert private(path, "A=abcd-1234\n".ljust(2**20, "#")).names() == ["A"]
    with pytest.raises(ConfigError, match="has more than 1048576 bytes, so it is not used: write credentials alone"):
        private(path, "A=abcd-1234\n".ljust(2**20 + 1, "#")).names()


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
