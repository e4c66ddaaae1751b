"""The names of files for sessions of any name."""

import hypothesis
import pytest
from hypothesis import strategies as st

from perdure._stores.file.layout import decode_file_name, encode_file_name
from tests.stores.material import entries

PATHS = (
    "../x",
    "..",
    ".",
    "/",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "C:",
    "\\\\?\\x",
    "~",
    "~root",
    "-rf",
    "*",
    "a b",
    " ",
    "x.",
)
DEVICES = ("CON", "con", "Con", "nul", "com1", "lpt9", "aux.txt")
ALIKE = ("a", "A", "%41", "%", "=", "x=y", "\n", "\x1b[31m", "\x7f", "é", "e\u0301", "\U0001f600", "\u202e", "ß", "SS")
LONG = ("x" * 100, "x" * 101, "x" * 10_000, "X" * 10_000, "é" * 10_000)
OURS = ("s.session", "s.lock", "s.quarantine", "s")
HOSTILE = (*PATHS, *DEVICES, *ALIKE, *LONG, *OURS)
UNICODE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def test_a_name_is_safe_everywhere_and_no_two_ids_share_one():
    names = [encode_file_name(session_id) for session_id in HOSTILE]
    assert len({name.casefold() for name in names}) == len(HOSTILE)
    for name in names:
        assert len(name) <= 100
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-%=")
        assert name not in {"con", "nul", "com1", "lpt9"}


@hypothesis.given(UNICODE, UNICODE)
def test_an_id_is_found_in_its_name_unless_that_is_a_hash(one, two):
    name = encode_file_name(one)
    assert decode_file_name(name) == (None if "=" in name else one)
    assert (name == encode_file_name(two)) == (one == two)


@pytest.mark.parametrize("name", ["A", "%4", "%ff", "%2F", "%61", "a.b", "é", "con", "x" * 101])
def test_a_name_that_is_not_ours_spells_no_id(name):
    assert decode_file_name(name) is None


async def test_sessions_of_any_name_are_kept_apart_inside_the_folder(folder, files):
    for number, session_id in enumerate(HOSTILE, 1):
        lease = await files.acquire(session_id)
        await files.append(lease, entries(1, number), sync=False)
        await files.release(lease)
    assert [path.name for path in folder.parent.iterdir()] == ["sessions"]
    assert all(path.is_file() for path in folder.iterdir())
    listed = {info.session_id: info.entries for info in await files.list(limit=1000)}
    assert listed == {session_id: number for number, session_id in enumerate(HOSTILE, 1)}
    assert {info.session_id for info in await files.list(prefix="x" * 99)} == {"x" * 100, "x" * 101, "x" * 10_000}
    for number, session_id in enumerate(HOSTILE, 1):
        assert len(await files.read(session_id)) == number
        await files.delete(session_id)
    assert list(folder.iterdir()) == []
