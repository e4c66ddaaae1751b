"""The files of a directory that nobody has vouched for."""

import os

import pytest

from perdure import ConfigError
from perdure._context.skills.files import (
    MAX_DEPTH,
    MAX_FILES,
    combine_hashes,
    hash_files,
    is_inside_directory,
    iterate_files,
    read_file_inside,
)


def write(directory, **files):
    for name, text in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return os.fspath(directory)


def test_files_come_in_a_fixed_order_with_their_folders(tmp_path):
    directory = write(tmp_path, z="", b__y="", b__a__x="", a="", c__d="")
    assert list(iterate_files(directory)) == ["a", "z", "b/y", "b/a/x", "c/d"]


def test_links_are_files_and_not_followed(tmp_path):
    directory = write(tmp_path / "skill", a="")
    write(tmp_path / "outside", secret="x")
    (tmp_path / "skill/link").symlink_to(tmp_path / "outside")
    assert list(iterate_files(directory)) == ["a", "link"]


def test_too_many_files_are_counted_no_further(tmp_path):
    for number in range(MAX_FILES + 50):
        (tmp_path / f"f{number}").touch()
    with pytest.raises(ConfigError, match=f"more than {MAX_FILES} files"):
        list(iterate_files(os.fspath(tmp_path)))


def test_as_many_files_as_may_be_nested_as_deep_as_they_may_be_are_all_found(tmp_path, monkeypatch):
    deepest = ["d"] * MAX_DEPTH
    directory = write(tmp_path, **{"__".join(deepest): ""})
    assert list(iterate_files(directory)) == ["/".join(deepest)]
    monkeypatch.setattr("perdure._context.skills.files.MAX_FILES", MAX_DEPTH)  # folders count too
    assert list(iterate_files(directory)) == ["/".join(deepest)]
    monkeypatch.setattr("perdure._context.skills.files.MAX_FILES", MAX_DEPTH - 1)
    with pytest.raises(ConfigError, match=f"more than {MAX_DEPTH - 1} files"):
        list(iterate_files(directory))


def test_folders_that_are_nested_too_deep_are_not_entered(tmp_path):
    directory = write(tmp_path, **{"__".join(["d"] * (MAX_DEPTH + 1)): ""})
    with pytest.raises(ConfigError, match="nested deeper"):
        list(iterate_files(directory))


def test_what_lies_outside_is_not_read(tmp_path):
    directory = write(tmp_path / "skill", a="inside")
    write(tmp_path, secret="outside")
    write(tmp_path / "skill-too", secret="beside")
    (tmp_path / "skill/link").symlink_to("../secret")
    assert read_file_inside(directory, "a") == b"inside"
    for name in ("../secret", "link", os.fspath(tmp_path / "secret"), "../skill-too/secret"):
        assert not is_inside_directory(directory, os.fspath(tmp_path / "skill" / name))
        with pytest.raises(ConfigError, match="is outside of"):
            read_file_inside(directory, name)


@pytest.mark.parametrize("name", ["nothing", ".", "pipe"])
def test_what_is_no_file_is_not_read(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError):
        read_file_inside(os.fspath(tmp_path), name)


def test_what_is_larger_than_the_limit_is_not_read(tmp_path):
    directory = write(tmp_path, a="12345")
    assert read_file_inside(directory, "a", 5) == b"12345"
    with pytest.raises(ConfigError, match="'a' has 5 bytes, and the limit is 4"):
        read_file_inside(directory, "a", 4)


def test_a_digest_covers_the_content_of_files_and_the_aim_of_links(tmp_path):
    directory = write(tmp_path, a="x", b="x", c="y")
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    one = hash_files(directory)
    assert one["a"] == one["b"] != one["c"]
    assert one["pipe"] == "is no file"
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("b")
    two = hash_files(directory)
    assert combine_hashes(one) != combine_hashes(two)
    assert {**one, "link": ""} == {**two, "link": ""}


def test_a_hash_depends_on_names_and_contents_and_not_on_their_order():
    assert combine_hashes({"a": "1", "b": "2"}) == combine_hashes({"b": "2", "a": "1"})
    different = [{"a": "1", "b": "2"}, {"a": "2", "b": "1"}, {"a": "1"}, {"a1": ""}, {"": "a1"}, {}]
    assert len({combine_hashes(each) for each in different}) == len(different)
