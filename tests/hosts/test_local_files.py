"""`LocalFiles`: a folder of this machine as the backend of the file tools."""

import pytest

from perdure.hosts import FileRefused, LocalFiles


def test_a_folder_is_read_listed_and_written(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    files = LocalFiles(tmp_path)
    assert files.root == str(tmp_path.resolve())
    target = files.resolve("a.txt")
    assert (files.show(target), files.check(target), files.read_file(target).data) == ("a.txt", ("a.txt",), b"a")
    new = files.resolve("b.txt")
    assert files.write_file(new, b"b").data == b"b"
    assert [(each.name, each.kind) for each in files.list_folder(files.resolve("."))] == [
        ("a.txt", "file"),
        ("b.txt", "file"),
    ]


def test_further_names_can_be_blocked_or_protected(tmp_path):
    files = LocalFiles(tmp_path, blocked=["*.key2"], protected=["*.lock"])
    for name, is_read, is_written in [("a.key2", False, False), ("a.lock", True, False), ("a.txt", True, True)]:
        for write, is_allowed in [(False, is_read), (True, is_written)]:
            target = files.resolve(name)
            if is_allowed:
                assert files.check(target, write=write) == (name,)
            else:
                with pytest.raises(FileRefused):
                    files.check(target, write=write)


def test_a_folder_that_was_closed_is_not_read_any_more(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    files = LocalFiles(tmp_path)
    files.close()
    files.close()  # has no effect
    with pytest.raises((FileRefused, OSError, ValueError)):
        files.read_file(files.resolve("a.txt"))
