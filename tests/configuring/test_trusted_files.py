"""Which files somebody has agreed to."""

import pytest

from perdure import ConfigError
from perdure.context import TrustedFiles


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


def test_no_path_is_refused():
    with pytest.raises(ConfigError, match=r"TrustedFiles\(path=''\)"):
        TrustedFiles("")
