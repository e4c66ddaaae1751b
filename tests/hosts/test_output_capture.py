"""What is kept of the output of a command, whatever the pieces in which it arrives."""

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from perdure._tools.shell.output import OutputCapture, trim_folder
from perdure.hosts import CapturedStream
from tests.doubles import list_open_below


@given(st.lists(st.text("ab\n", max_size=30).map(str.encode), max_size=12))
def test_beginning_omitted_part_and_end_are_the_whole(pieces):
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder, "spool")
        capture = OutputCapture(20, str(spool), 1_000)
        for each in pieces:
            capture.add(each)
        capture.close()
        whole, output = b"".join(pieces).decode(), capture.build_output()
        if len(whole) <= 20:
            assert str(output) == whole
            assert not spool.exists()
        else:
            assert (output.head, output.tail) == (whole[:10], whole[-10:])
            assert output.omitted_bytes == len(whole) - 20
            assert output.omitted_lines == whole[10:-10].count("\n")
            assert spool.read_text() == whole


@given(st.lists(st.text("ab\n", max_size=9).map(str.encode), max_size=12))
def test_new_output_is_returned_once(pieces):
    capture = OutputCapture(1_000, "/nowhere/spool", 1_000)
    seen = ""
    for each in pieces:
        capture.add(each)
        seen += capture.take_new()
    assert seen == b"".join(pieces).decode()
    assert capture.take_new() == ""


def test_the_file_has_no_more_than_its_limit(tmp_path):
    capture = OutputCapture(4, str(tmp_path / "spool"), 10)
    for _ in range(5):
        capture.add(b"abcd")
    capture.close()
    assert capture.is_full
    assert (tmp_path / "spool").stat().st_size <= 10
    assert capture.build_output().omitted_bytes == 16


def test_the_oldest_files_are_removed_first(tmp_path):
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"x" * 10)
        os.utime(tmp_path / str(number), (number, number))
    trim_folder(str(tmp_path), 25)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["3", "4"]


def capture_of(folder, *pieces: bytes, keep=8, spool=100) -> OutputCapture:
    capture = OutputCapture(keep, str(folder / "spool"), spool)
    for each in pieces:
        capture.add(each)
    return capture


def test_a_long_output_is_its_beginning_and_its_end_with_what_is_between_counted(tmp_path):
    capture = capture_of(tmp_path, b"ab\ncd\n", b"ef\ngh\nij\n")
    capture.close()
    capture.close()
    assert capture.build_output() == CapturedStream("ab\nc", "\nij\n", 7, 2, str(tmp_path / "spool"))
    assert (tmp_path / "spool").read_bytes() == b"ab\ncd\nef\ngh\nij\n"
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o600
    assert (capture.total_bytes, capture.is_full) == (15, False)


def test_an_output_of_exactly_the_size_that_is_kept_is_whole_and_has_no_file(tmp_path):
    assert capture_of(tmp_path, b"abcdefgh").build_output() == CapturedStream("abcdefgh")
    assert capture_of(tmp_path, b"abcd", b"e", b"fgh").build_output() == CapturedStream("abcdefgh")
    assert not (tmp_path / "spool").exists()
    assert capture_of(tmp_path, b"abcdefgh", b"i").build_output() == CapturedStream(
        "abcd", "fghi", 1, 0, str(tmp_path / "spool")
    )


def test_the_file_is_full_after_its_limit_and_not_at_it(tmp_path):
    capture = capture_of(tmp_path, b"x" * 10, keep=4, spool=10)
    assert not capture.is_full
    assert (tmp_path / "spool").read_bytes() == b"x" * 10
    capture.add(b"y")
    assert capture.is_full
    assert (tmp_path / "spool").read_bytes() == b"x" * 10


def test_nothing_stays_open_of_the_file(tmp_path):
    capture = capture_of(tmp_path, b"x" * 10, keep=4)
    assert list_open_below(tmp_path) == [str(tmp_path.resolve() / "spool")]
    capture.close()
    assert list_open_below(tmp_path) == []


def test_new_output_is_whole_where_it_is_kept_and_its_end_otherwise(tmp_path):
    capture = capture_of(tmp_path, b"ab")
    taken = [capture.take_new()]
    for piece in (b"cd", b"e", b"fgh", b"ijk", b"0123456789abcdef", b""):
        capture.add(piece)
        taken.append(capture.take_new())
    spool = str(tmp_path / "spool")
    assert taken == ["ab", "cd", "e", "fgh", "ijk", str(CapturedStream("", "cdef", 12, 0, spool)), ""]
    capture.close()


def test_the_first_output_is_taken_with_its_beginning_and_its_end(tmp_path):
    capture = capture_of(tmp_path, b"0123456789")
    assert capture.take_new() == str(CapturedStream("0123", "6789", 2, 0, str(tmp_path / "spool")))
    capture.close()


def test_a_folder_that_is_small_enough_keeps_its_files(tmp_path):
    for number in range(2):
        (tmp_path / str(number)).write_bytes(b"x" * 10)
    trim_folder(str(tmp_path), 20)
    assert len([*tmp_path.iterdir()]) == 2
    trim_folder(str(tmp_path), 19)
    assert len([*tmp_path.iterdir()]) == 1
