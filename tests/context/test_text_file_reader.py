"""One text file, read within bounds."""

import pytest

from perdure.context.text_file_reader import decode_leniently, read_text_file
from perdure.files.file_head import FileHead, UnreadableFile, is_path_below, read_file_head


def test_no_more_is_read_than_is_wanted(tmp_path):
    (tmp_path / "file").write_bytes(b"abcdef")
    found = read_file_head(str(tmp_path / "file"), 4)
    assert found == FileHead(b"abcd", 6)
    assert found.is_truncated


def test_what_grows_while_it_is_read_is_no_shorter_than_what_was_read(tmp_path):
    assert not read_file_head("/proc/self/status", 1_000_000).is_truncated


def test_a_path_that_no_file_system_takes_is_unreadable():
    for path in ("a\0b", "x" * 5000, "missing"):
        with pytest.raises(UnreadableFile, match="cannot be read"):
            read_text_file(path, 10)


def test_half_a_character_at_the_cut_is_left_out():
    assert decode_leniently(FileHead("aä".encode()[:2], 3)) == ("a", False)
    assert decode_leniently(FileHead("aä".encode()[:2], 2)) == ("a\ufffd", True)


def test_the_replacement_character_itself_is_text():
    assert decode_leniently(FileHead("\ufffd".encode(), 3)) == ("\ufffd", False)


def test_a_folder_of_a_similar_name_is_another_folder():
    assert is_path_below("/a/b/c", "/a/b")
    assert not is_path_below("/a/bc", "/a/b")
    assert not is_path_below("relative", "/a")
