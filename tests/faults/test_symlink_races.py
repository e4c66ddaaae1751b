"""Links that another process exchanges all the time: nothing outside is read, listed or written.

Short in every run; `make faults` attacks for half a minute each. Reading by the path alone shows that an attack
of this length succeeds.
"""

import os
import subprocess
import sys
import time

import pytest

from perdure._io.files.jail import Jail
from perdure.hosts import FileRefused, GlobQuery, LocalFiles, LocalSearch, SearchQuery

LONG = os.environ.get("PERDURE_SEARCH") == "long"
SECONDS = 30.0 if LONG else 0.4
"""An attack takes at least this long, in both ways of opening together."""
ENOUGH = 25
"""An attack goes on until so many attempts have succeeded, and as many were refused, in each way of opening."""
MOST_SECONDS = 45.0
ATTACKER = """
import ctypes, os, sys
place, leads_to, parent = sys.argv[1], sys.argv[2], os.getppid()
aside = place + ".aside"
os.symlink(leads_to, aside)
exchange = ctypes.CDLL(None, use_errno=True).renameat2
names = os.fsencode(place), os.fsencode(aside)
while os.getppid() == parent:
    assert exchange(-100, names[0], -100, names[1], 2) == 0, os.strerror(ctypes.get_errno())
"""
"""Exchanges a name for a link, and back, in one step each, as quickly as it can."""

pytestmark = [pytest.mark.faults, pytest.mark.timeout(200)]


@pytest.fixture
def scene(tmp_path):
    """A folder, one of the same names outside with other contents, and a way to have a name exchanged for a link."""
    for place, text in (("root", "inside"), ("outside", "SECRET")):
        (tmp_path / place / "deep").mkdir(parents=True)
        for name in ("note.txt", f"only-{place}.txt"):
            (tmp_path / place / "deep" / name).write_text(text)
    started: list[subprocess.Popen] = []

    def attack(path):
        started.append(
            subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    ATTACKER,
                    str(tmp_path / "root" / path),
                    str(tmp_path / "outside" / path),
                ]
            )
        )

    yield tmp_path, attack
    for each in started:
        each.kill()
        each.wait()


def repeat(jail, work):
    """Do something again and again, in both ways of opening, until enough attempts met the link and enough did not."""
    for one_step in (True, False):
        jail._folder.one_step = jail._folder.one_step and one_step
        succeeded = refused = 0
        begun = time.monotonic()
        while time.monotonic() < begun + SECONDS / 2 or min(succeeded, refused) < ENOUGH:
            try:
                work()
                succeeded += 1
            except FileRefused:
                refused += 1
            assert time.monotonic() < begun + MOST_SECONDS, f"{succeeded} succeeded, {refused} were refused"


def test_reading_by_the_path_alone_is_found_to_leak(scene):
    """The test of the test."""
    place, attack = scene
    attack("deep/note.txt")

    def read_by_path():
        assert (place / "root" / "deep" / "note.txt").read_bytes() == b"inside"

    with pytest.raises(AssertionError, match="SECRET"):
        repeat(Jail(place / "root"), read_by_path)


def test_a_folder_that_is_exchanged_for_a_link_leaks_nothing_that_is_read(scene):
    place, attack = scene
    jail = Jail(place / "root")
    attack("deep")

    def work():
        assert jail.read(jail.resolve("deep/note.txt")).data == b"inside"

    repeat(jail, work)


def test_a_file_that_is_exchanged_for_a_link_leaks_nothing_that_is_read(scene):
    place, attack = scene
    jail = Jail(place / "root")
    attack("deep/note.txt")

    def work():
        assert jail.read(jail.resolve("deep/note.txt")).data == b"inside"

    repeat(jail, work)


def test_a_folder_that_is_exchanged_for_a_link_is_neither_listed_nor_searched(scene):
    place, attack = scene
    files = LocalFiles(place / "root")
    jail, search = files.jail, LocalSearch(files)
    attack("deep")
    number = 0

    def work():
        nonlocal number
        number += 1
        assert "only-outside.txt" not in [each.name for each in jail.list_folder(jail.resolve("deep"))]
        if number % 100 == 1:
            found = search.search_lines(jail.resolve("."), SearchQuery("SECRET"))
            assert found.matches == ()
            assert "deep/only-outside.txt" not in search.find_files(jail.resolve("."), GlobQuery("*")).paths

    repeat(jail, work)


def test_nothing_outside_is_written_whatever_is_exchanged_meanwhile(scene):
    place, attack = scene
    jail = Jail(place / "root")
    attack("deep")
    number = 0

    def work():
        nonlocal number
        number += 1
        jail.write(jail.resolve(f"deep/new-{number % 7}.txt"), b"written")

    before = {each.name: each.read_text() for each in (place / "outside" / "deep").iterdir()}
    repeat(jail, work)
    assert {each.name: each.read_text() for each in (place / "outside" / "deep").iterdir()} == before
