"""The tools read, list and write: the same over files in memory and over a folder of this machine."""

from typing import Any

import pytest

from perdure import Agent, ConfigError, Permissions, allow, deny
from perdure._tools.files.tools import MOST_LISTED, format_entries
from perdure.hosts import FolderEntry, LocalFiles
from perdure.permissions import allow_all, path
from perdure.testing import MemoryFiles, ScriptedModel, call
from perdure.tools import edit_tool, list_tool, read_tool, write_tool

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
FILES: dict[str, str | bytes] = {
    "note.txt": "one\ntwo\nthree\n",
    "deep/code.py": "x = 1\r\ny = 2\r\n",
    "deep/empty": "",
    "picture.png": PNG,
    "binary": b"\0\1\2",
    "latin.txt": b"caf\xe9\n",
    "bom.txt": "\ufeffhello",
}


@pytest.fixture(params=["memory", "local"])
def files(request, tmp_path):
    if request.param == "memory":
        return MemoryFiles(FILES)
    for name, data in FILES.items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(data if isinstance(data, bytes) else data.encode())
    return LocalFiles(tmp_path)


def open_session(files, permission=allow_all):
    tools = [read_tool(files), list_tool(files), write_tool(files), edit_tool(files)]
    return Agent(ScriptedModel(), tools=tools, permission=permission).session()


@pytest.fixture
def session(files):
    return open_session(files)


async def content(files, name) -> bytes:
    if isinstance(files, MemoryFiles):
        return files.files[name]
    return files.read_file(files.resolve(name)).data


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "note.txt"}, "one\ntwo\nthree"),
        ({"path": "./deep/../note.txt"}, "one\ntwo\nthree"),
        ({"path": "note.txt", "line_numbers": True}, "1: one\n2: two\n3: three"),
        ({"path": "note.txt", "limit": 2}, "one\ntwo\n[Showing lines 1-2 of 3. Use offset=3 to continue.]"),
        ({"path": "note.txt", "offset": 3}, "three\n[Showing lines 3-3 of 3.]"),
        ({"path": "note.txt", "offset": 3, "line_numbers": True}, "3: three\n[Showing lines 3-3 of 3.]"),
        ({"path": "note.txt", "offset": 9}, "[The file has 3 lines; there is none at offset 9.]"),
        ({"path": "deep/code.py"}, "x = 1\ny = 2"),
        ({"path": "deep/empty"}, "(empty file)"),
        ({"path": "bom.txt"}, "hello"),
        ({"path": "latin.txt"}, "caf\ufffd\n[The file is not UTF-8: \ufffd stands for bytes that are no text.]"),
    ],
)
async def test_a_text_file_is_read_in_pages(session, arguments, expected):
    result = await session.call("read", arguments)
    assert (result.status, result.text) == ("ok", expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "missing"}, "'missing' cannot be read: there is no such file"),
        ({"path": "deep"}, "it is a folder"),
        ({"path": "binary"}, "not a text file"),
        ({"path": "note.txt", "offset": 0}, "lines are counted from 1"),
        ({"path": "note.txt", "limit": 0}, "at least one"),
        ({"path": "../other"}, "outside the working folder"),
        ({"path": "/etc/passwd"}, "outside the working folder"),
        ({"path": ".env"}, "may contain secrets; do not try again"),
        ({"path": ""}, "not a valid path"),
        ({"path": "a\0b"}, "not a valid path"),
        ({"path": 7}, "path"),
    ],
)
async def test_what_cannot_be_read_says_why(session, arguments, words):
    result = await session.call("read", arguments)
    assert result.status != "ok"
    assert words in result.text


async def test_an_image_is_shown_to_the_model(session):
    result = await session.call("read", {"path": "picture.png"})
    text, picture = result.content
    assert (text.text, picture.media_type, picture.data) == ("picture.png (image/png, 28 bytes)", "image/png", PNG)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"GIF87a", "image/gif"),
        (b"RIFF____WEBP", "image/webp"),
    ],
)
async def test_images_are_known_by_their_first_bytes(data, kind):
    result = await open_session(MemoryFiles({"x.txt": data})).call("read", {"path": "x.txt"})
    assert result.content[1].media_type == kind


async def test_a_page_ends_with_a_whole_line_and_a_line_that_is_too_long_is_cut():
    session = open_session(MemoryFiles({"wide": "x" * 50_000 + "\n" + "y" * 50_000 + "\n", "one": "é" * 90_000}))
    first = (await session.call("read", {"path": "wide"})).text
    assert first == "x" * 50_000 + "\n[Showing lines 1-1 of 2. Use offset=2 to continue.]"
    cut = (await session.call("read", {"path": "one"})).text
    assert cut == "é" * 40_960 + "\n[Line 1 is cut off: it has 90,000 characters.]"


async def test_a_folder_is_listed(session, files):
    assert (await session.call("list", {})).text.splitlines() == [
        "binary\t3", "bom.txt\t8", "deep/", "latin.txt\t5", "note.txt\t14", "picture.png\t28",
    ]  # fmt: skip
    assert (await session.call("list", {"path": "deep"})).text == "code.py\t14\nempty\t0"
    for path_, words in (("note.txt", "no such folder"), ("../x", "outside"), (".git", "secrets"), ("none", "no such")):
        assert words in (await session.call("list", {"path": path_})).text


async def test_a_long_folder_is_cut_and_an_empty_one_says_so():
    session = open_session(MemoryFiles({f"file-{number:04}": "" for number in range(600)}))
    lines = (await session.call("list", {})).text.splitlines()
    assert len(lines) == 501
    assert lines[-1] == "[100 more entries: use glob]"
    assert (await open_session(MemoryFiles()).call("list", {})).text == "(empty)"


async def test_a_file_is_created_with_its_folders(session, files):
    result = await session.call("write", {"path": "new/a.txt", "content": "héllo"})
    assert result.text == "created new/a.txt: 6 bytes"
    assert await content(files, "new/a.txt") == "héllo".encode()


async def test_a_file_that_exists_is_replaced_only_when_that_is_asked_for_and_it_was_read(session, files):
    async def write(**more):
        return await session.call("write", {"path": "note.txt", "content": "new", **more})

    assert "use `edit` to change it, or set overwrite" in (await write()).text
    assert "has not been read in this session" in (await write(overwrite=True)).text
    await session.call("read", {"path": "note.txt"})
    assert (await write(overwrite=True)).text == "replaced note.txt: 3 bytes"
    assert (await write()).text == "note.txt has this content: 3 bytes"
    assert await content(files, "note.txt") == b"new"


async def test_what_was_read_is_what_is_replaced(session, files):
    await session.call("read", {"path": "note.txt"})
    target = files.resolve("note.txt")
    changed = files.write_file(target, b"of another")
    if not isinstance(files, LocalFiles):
        await changed
    result = await session.call("write", {"path": "note.txt", "content": "new", "overwrite": True})
    assert "has changed since you read it" in result.text
    assert await content(files, "note.txt") == b"of another"


@pytest.mark.parametrize(
    ("path_", "words"),
    [
        ("deep", "it is a folder"),
        (".", "it is a folder"),
        ("../other", "outside the working folder"),
        ("perdure.toml", "never written"),
        (".perdure/x", "never written"),
        (".git/hooks/pre-commit", "never written"),
        (".env", "may contain secrets"),
    ],
)
async def test_what_cannot_be_written_is_refused_before_anybody_is_asked(files, path_, words):
    asked = []

    async def handler(requests):
        asked.extend(requests)
        raise AssertionError

    session = open_session(files, Permissions(handler=handler) if words != "it is a folder" else allow_all)
    result = await session.call("write", {"path": path_, "content": "x"})
    assert words in result.text
    assert asked == []


async def test_writing_needs_permission_and_reading_does_not(files):
    session = open_session(files, None)
    assert (await session.call("read", {"path": "note.txt"})).status == "ok"
    assert (await session.call("write", {"path": "new.txt", "content": "x"})).status == "denied"
    assert (await session.call("edit", {"path": "note.txt", "old_string": "one", "new_string": "1"})).status == "denied"


async def test_rules_match_the_path_that_is_touched(files):
    session = open_session(
        files, Permissions(allow("write", target=path("drafts/**")), deny("read", target=path("deep")))
    )
    assert (await session.call("write", {"path": "drafts/a", "content": "x"})).status == "ok"
    assert (await session.call("write", {"path": "drafts/../b", "content": "x"})).status == "denied"
    assert (await session.call("read", {"path": "deep/../deep/empty"})).status == "denied"


@pytest.mark.parametrize("make", [read_tool, list_tool, write_tool, edit_tool])
def test_what_is_no_backend_is_an_error_that_says_what_to_give(make):
    for wrong in ("folder", None, MemoryFiles):
        with pytest.raises(ConfigError, match="give a backend with"):
            make(wrong)


async def test_what_a_session_has_read_is_known_after_a_restart(tmp_path):
    from perdure.stores import open_store

    (tmp_path / "a.txt").write_text("one\n")
    for number, old in enumerate(("one", "two")):
        store = open_store(f"sqlite:{tmp_path / 'log.db'}")
        files = LocalFiles(tmp_path)
        script: list[Any] = [call("read", path="a.txt"), "Read."] if not number else []
        agent = Agent(
            ScriptedModel(*script), tools=[read_tool(files), edit_tool(files)], permission=allow_all, store=store
        )
        session = agent.session("s")
        if not number:
            await session.run("Read it.")
        else:
            done = await session.call("edit", {"path": "a.txt", "old_string": "one", "new_string": old})
            assert done.status == "ok", done.text
        await store.aclose()
    assert (tmp_path / "a.txt").read_text() == "two\n"


def test_exactly_so_many_entries_are_listed_and_the_others_counted():
    entries = [FolderEntry(f"f{number}", "file", number) for number in range(MOST_LISTED + 2)]
    assert format_entries(entries[:MOST_LISTED]).splitlines()[-1] == f"f{MOST_LISTED - 1}\t{MOST_LISTED - 1}"
    assert format_entries(entries).splitlines()[MOST_LISTED:] == ["[2 more entries: use glob]"]
    kinds = [FolderEntry("a", "folder"), FolderEntry("b", "link"), FolderEntry("c", "other")]
    assert format_entries(kinds) == "a/\nb@\nc?"
    assert format_entries([]) == "(empty)"
