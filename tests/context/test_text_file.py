"""One text file, read within bounds."""

import pytest

from perdure.context.text_file import Beginning, Unreadable, lenient_text, lies_below, read_beginning, read_whole


def test_no_more_is_read_than_is_wanted(tmp_path):
    (tmp_path / "file").write_bytes(b"abcdef")
    found = read_beginning(str(tmp_path / "file"), 4)
    assert found == Beginning(b"abcd", 6)
    assert found.cut


def test_what_grows_while_it_is_read_is_no_shorter_than_what_was_read(tmp_path):
    assert not read_beginning("/proc/self/status", 1_000_000).cut


def test_a_path_that_no_file_system_takes_is_unreadable():
    for path in ("a\0b", "x" * 5000, "missing"):
        with pytest.raises(Unreadable, match="cannot be read"):
            read_whole(path, 10)


def test_half_a_character_at_the_cut_is_left_out():
    assert lenient_text(Beginning("aä".encode()[:2], 3)) == ("a", False)
    assert lenient_text(Beginning("aä".encode()[:2], 2)) == ("a\ufffd", True)


def test_the_replacement_character_itself_is_text():
    assert lenient_text(Beginning("\ufffd".encode(), 3)) == ("\ufffd", False)


def test_a_folder_of_a_similar_name_is_another_folder():
    assert lies_below("/a/b/c", "/a/b")
    assert not lies_below("/a/bc", "/a/b")
    assert not lies_below("relative", "/a")
