"""What is kept of the output of a command, whatever the pieces in which it arrives."""

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from perdure.hosts.output_capture import OutputCapture, trim_folder


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
