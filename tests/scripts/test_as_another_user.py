"""scripts/as_another_user.py: tests that root starts are run by somebody else, who needs nothing of root's."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from scripts import as_another_user, test_here
from tests import seeds

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
SEEN = """
import os, sys, tempfile

def test_who_is_seen():
    import perdure
    assert os.getuid() == os.geteuid() != 0
    assert os.getgroups() == []
    assert tempfile.gettempdir() == os.environ["TMPDIR"] != "/tmp"
    assert os.path.expanduser("~").endswith("/home")
    for path in (perdure.__file__, sys.executable, sys.base_prefix):
        assert os.access(path, os.R_OK)
    assert not os.access(perdure.__file__, os.W_OK)
    assert os.environ["PERDURE_SECOND_RUN"] == "1"

def test_nothing_is_compiled_once_more():
    import perdure._core.run.loop
    assert os.access(perdure._core.run.loop.__cached__, os.R_OK)
"""


@pytest.fixture
def open_folder():
    """A folder that everyone can enter, which pytest's own are not: whoever starts it meanwhile closes them again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@only_root
def test_tests_are_run_as_another_user_with_a_home_of_their_own(open_folder):
    (open_folder / "test_seen.py").write_text(SEEN)
    words = [sys.executable, "-m", "scripts.as_another_user", "-p", "no:randomly", "--rootdir", ".", "--noconftest"]
    done = subprocess.run(
        [*words, str(open_folder / "test_seen.py")],
        cwd=as_another_user.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@only_root
def test_a_file_that_others_cannot_read_is_copied_and_stays_as_it_is(tmp_path):
    for name, mode in (("open", 0o644), ("closed", 0o600), ("program", 0o700)):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
        as_another_user.link_or_copy(str(tmp_path / name), str(tmp_path / f"{name}-copy"))
    modes = [(tmp_path / f"{name}-copy").stat().st_mode & 0o777 for name in ("open", "closed", "program")]
    assert modes == [0o644, 0o644, 0o755]
    assert (tmp_path / "closed").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "open").stat().st_ino == (tmp_path / "open-copy").stat().st_ino


def test_an_interpreter_that_names_the_folder_of_its_library_looks_beside_itself(tmp_path):
    program = tmp_path / "python"
    program.write_bytes(b"\0/a/folder/of/python/lib\0rest")
    as_another_user.find_library_beside(program, Path("/a/folder/of/python"))
    assert program.read_bytes() == b"\0$ORIGIN/../lib\0".ljust(25, b"\0") + b"rest"
    as_another_user.find_library_beside(program, Path("/short"))
    assert program.read_bytes().endswith(b"rest")


def test_another_user_runs_the_attacks_only_when_root_runs_the_tests(monkeypatch):
    for user, is_run in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert ("another-user" in test_here.jobs()) == is_run
    assert [path for path in test_here.ATTACKS if not (test_here.ROOT / path).exists()] == []


def test_nothing_that_the_attacks_need_is_left_out_of_the_copy():
    paths = [as_another_user.ROOT / path for path in test_here.ATTACKS]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    marks = [mark for file in files for mark in re.findall(r"mark\.packages\(([^)]*)\)", file.read_text("utf-8"))]
    packages = {package for mark in marks for package in re.findall(r"\"(\w+)", mark)}
    assert "playwright" in packages
    assert packages.isdisjoint(as_another_user.UNUSED)


def test_the_other_user_tries_some_of_each_kind_and_in_time_all(monkeypatch):
    names = ["hook-a", "hook-b", "hook-c", "hook-d", "link-a", "link-b", "alone"]
    monkeypatch.setattr(seeds, "IS_SECOND_RUN", False)
    assert sorted(seeds.some_of_each_kind(names, 3)) == sorted(names)
    monkeypatch.setattr(seeds, "IS_SECOND_RUN", True)
    tried, parts = set(), set()
    for seed in range(6):
        monkeypatch.setattr(seeds, "SEED", seed)
        chosen = seeds.some_of_each_kind(names, 3)
        assert {each.partition("-")[0] for each in chosen} == {"hook", "link", "alone"}
        assert len(chosen) <= 4
        tried |= {*chosen}
        parts |= {*seeds.one_part(names, 3)}
    assert tried == parts == {*names}


def test_who_is_not_root_is_told_to_run_the_tests_as_they_are(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert as_another_user.main(["tests"]) == 2
    assert "run the tests as they are" in capsys.readouterr().err
