"""Who wrote a folder, and the record of what runs wrote there after text of others."""

import os

import pytest

from perdure import ConfigError, ToolError
from perdure._io.files import origin
from perdure._io.files.origin import (
    FolderOrigin,
    forget_recorded,
    is_recorded,
    list_recorded,
    record_copy,
    record_path,
)


@pytest.fixture(autouse=True)
def record(tmp_path, monkeypatch):
    """Path of the record, which is not there yet."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / origin.FILE_NAME


def test_a_folder_in_a_repository_counts_as_that_of_others_unless_it_is_said(tmp_path):
    assert FolderOrigin.of("f", str(tmp_path), trusted=None).labels == ("private",)
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    assert FolderOrigin.of("f", str(tmp_path / "sub"), trusted=None).labels == ("private", "untrusted")
    assert FolderOrigin.of("f", str(tmp_path / "sub"), trusted=True).labels == ("private",)
    with pytest.raises(ConfigError, match=r"f\(trusted='yes'\)"):
        FolderOrigin.of("f", str(tmp_path), trusted="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recorded", "found", "other"),
    [
        ("/w/a.txt", ["/w/a.txt", "/w", "/"], ["/w/a.txt.bak", "/w/b", "/w2"]),
        ("/w/sub", ["/w/sub", "/w/sub/x/y", "/w"], ["/w/subway", "/v"]),
    ],
)
def test_a_path_is_found_by_what_is_below_it_and_above_it(recorded, found, other):
    record_path(recorded, "/w")
    assert [each for each in [*found, *other] if is_recorded(each)] == found


def test_a_path_is_recorded_once_for_its_owner_alone(record):
    for _ in range(3):
        record_path("/w/a", "/w")
    assert record.read_text().split() == ['"/w/a"']
    assert os.name != "posix" or record.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_spoils_no_other(record):
    record_path("/w/a", "/w")
    with record.open("ab") as file:
        file.write(b'\n"/w/half')
    record_path("/w/b", "/w")
    assert list_recorded("/w") == ["/w/a", "/w/b"]


def test_a_record_that_cannot_be_read_makes_everything_untrusted(record):
    record.mkdir(parents=True)
    assert is_recorded("/w/a")
    with pytest.raises(ToolError, match="nothing was written"):
        FolderOrigin("/w", trusted=True).record("/w/a")


def test_what_is_below_a_folder_is_forgotten_with_it():
    for each in ("/w/a", "/w/sub/b", "/v/c"):
        record_path(each, "/w")
    assert forget_recorded("/w") == ["/w/a", "/w/sub/b"]
    assert forget_recorded("/w") == []
    assert [is_recorded(each) for each in ("/w/a", "/v/c")] == [False, True]


def test_a_copy_is_recorded_like_its_source(monkeypatch):
    record_copy("/w", "/copy")
    assert list_recorded("/copy") == []
    record_path("/w/a", "/w")
    record_copy("/w", "/copy")
    assert list_recorded("/copy") == ["/copy/a"]
    record_path("/w", "/w")
    record_copy("/w/sub", "/other")
    assert list_recorded("/other") == ["/other"]
    monkeypatch.setenv("PERDURE_HOME", "relative")
    record_copy("/w", "/copy2")
    assert not is_recorded("/copy2")
