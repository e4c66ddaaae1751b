"""The paths of a session in a folder of files."""

import hashlib
from pathlib import Path

import pytest

from perdure._stores.file.layout import get_deleted_parent_paths


def test_what_is_left_of_a_deleted_session_is_named_by_its_key(tmp_path):
    key = "0123456789abcdef" * 2
    place = get_deleted_parent_paths(str(tmp_path), "s", key)
    assert Path(place.log).name.partition(".")[0] == f"={key}"
    assert place.session_id == "s"


@pytest.mark.parametrize("key", ["../../etc/passwd", "", "a/b", "0" * 31, "0" * 33, "0123456789ABCDEF" * 2, "é"])
def test_a_key_that_a_changed_file_names_does_not_lead_out_of_the_folder(tmp_path, key):
    place = get_deleted_parent_paths(str(tmp_path), "s", key)
    assert Path(place.log).parent == tmp_path
    assert Path(place.log).name.partition(".")[0] == f"={hashlib.sha256(key.encode()).hexdigest()[:32]}"
