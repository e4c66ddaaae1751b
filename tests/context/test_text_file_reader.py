"""One text file, read within bounds."""

import os

import pytest

from perdure._context.text_files import (
    decode_leniently,
    decode_strictly,
    read_confined_text,
    read_text_file,
    strip_invisible_characters,
)
from perdure._io.files.confined_folder import ConfinedFolder
from perdure._io.files.head import FileHead, UnreadableFile, is_path_below, read_file_head
from tests.doubles import list_open_below


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
    assert is_path_below("/a/b", "/a/b")
    assert not is_path_below("/a", "/a/b")


def error_of(work, *arguments) -> str:
    with pytest.raises(UnreadableFile) as raised:
        work(*arguments)
    return str(raised.value)


def test_a_file_is_read_as_text_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes("\ufeffä\r\nb\rc\n".encode())
    folder = ConfinedFolder(tmp_path)
    assert read_text_file(str(path), 11) == read_confined_text(folder, "file", 11) == "ä\nb\rc\n"
    assert error_of(read_text_file, str(path), 10) == (
        f"{str(path)!r} has 11 bytes, and the limit is 10: make it shorter"
    )
    root = tmp_path.resolve()
    assert error_of(read_confined_text, folder, "file", 10) == (
        f"{str(root / 'file')!r} cannot be read: it has 11 bytes, and the limit is 10: make it shorter"
    )
    assert error_of(read_confined_text, folder, "none", 10) == (
        f"{str(root / 'none')!r} cannot be read: there is no such file"
    )


def test_what_is_no_utf_8_is_named_with_its_line():
    assert decode_strictly("x", b"\xef\xbb\xbfa\r\nb") == "a\nb"
    assert error_of(decode_strictly, "x", b"\n\na\xff\n\xff") == "'x' is not UTF-8 on line 3: save it as UTF-8"
    assert error_of(decode_strictly, "x", b"\xff") == "'x' is not UTF-8 on line 1: save it as UTF-8"


def test_bytes_that_are_no_text_are_replaced_and_told(tmp_path):
    assert decode_leniently(FileHead(b"\xef\xbb\xbfa\r\nb", 7)) == ("a\nb", False)
    assert decode_leniently(FileHead(b"a\xffb", 3)) == ("a\ufffdb", True)
    assert decode_leniently(FileHead(b"a\0b", 3)) == ("a\ufffdb", True)
    assert decode_leniently(FileHead(b"a\xffb\xc3", 9)) == ("a\ufffdb", True)


def test_folders_and_pipes_are_no_files_of_text(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    pipe, folder = str(tmp_path / "pipe"), str(tmp_path)
    assert error_of(read_text_file, pipe, 10) == f"{pipe!r} is no regular file: name a file of text"
    assert error_of(read_text_file, folder, 10) == f"{folder!r} is a folder: name a file of text"
    assert error_of(read_text_file, "missing", 10) == "'missing' cannot be read: No such file or directory"
    assert error_of(read_text_file, "a\0b", 10).startswith("'a\\x00b' cannot be read: ")
    (tmp_path / "file").write_bytes(b"abc")
    assert read_file_head(str(tmp_path / "file"), 0) == FileHead(b"", 3)
    assert not read_file_head(str(tmp_path / "file"), 3).is_truncated
    assert list_open_below(tmp_path) == []


def test_a_file_longer_than_one_read_is_read_whole(tmp_path):
    data = bytes(range(256)) * 4096 + b"end"
    (tmp_path / "file").write_bytes(data)
    assert read_file_head(str(tmp_path / "file"), len(data)) == FileHead(data, len(data))
    assert read_file_head(str(tmp_path / "file"), 2**20 + 1) == FileHead(data[: 2**20 + 1], len(data))


def test_escapes_and_what_nobody_sees_are_taken_out_of_a_text():
    assert strip_invisible_characters("\x1b[31mred\x1b[0m\n\u202eback\x1b]0;title\x07\u200b\tend") == "red\nback\tend"
