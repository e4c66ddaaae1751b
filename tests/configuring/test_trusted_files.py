"""Which files somebody has agreed to."""

from pathlib import Path

import pytest

from perdure.config import TrustedFiles
from perdure.core.error import ConfigError


@pytest.fixture
def files(tmp_path):
    return TrustedFiles(str(tmp_path / "home" / "trusted.json"))


def test_trust_is_bound_to_content(files):
    assert not files("one")
    files.trust("perdure.toml", "one")
    assert files("one")
    assert not files("two")
    assert TrustedFiles(files.path)("one")


def test_new_content_takes_the_place_of_the_old(files):
    files.trust("perdure.toml", "one")
    files.trust("perdure.toml", "two")
    files.trust("other.toml", "three")
    assert [files(each) for each in ("one", "two", "three")] == [False, True, True]


def test_trust_can_be_taken_back(files):
    files.trust("perdure.toml", "one")
    assert files.revoke("perdure.toml")
    assert not files("one")
    assert not files.revoke("perdure.toml")


def test_files_that_have_changed_since_are_named(files):
    assert files.list_changes("perdure.toml", {"a": "1"}) == []
    files.trust("perdure.toml", "one", {"a": "1", "b": "1", "c": "1"})
    assert files.list_changes("perdure.toml", {"a": "1", "b": "2", "d": "1"}) == ["b", "c", "d"]
    assert files.list_changes("elsewhere/perdure.toml", {"a": "2"}) == []


def test_its_owner_alone_can_read_it(files):
    files.trust("perdure.toml", "one")
    path = Path(files.path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda path: path.chmod(0o666), "others can write"),
        (lambda path: path.write_bytes(b"[]"), "cannot be parsed"),
        (lambda path: path.write_bytes(b"\xff"), "cannot be parsed"),
        (lambda path: path.rename(path.parent / "gone") and path.mkdir(), "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_relied_on_trusts_nothing(files, spoil, complaint):
    files.trust("perdure.toml", "one")
    spoil(Path(files.path))
    with pytest.raises(ConfigError, match=complaint):
        files("one")


def test_no_path_is_refused():
    with pytest.raises(ConfigError, match=r"TrustedFiles\(path=''\)"):
        TrustedFiles("")
