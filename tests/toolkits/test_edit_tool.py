"""The tool edit: all or nothing, only on what was read, and once, also when the process dies in the middle."""

import pytest

from perdure import Agent
from perdure._tools.files.records import FileAccessRecord
from perdure._tools.files.tools import _show_lines
from perdure.hosts import FileChanged
from perdure.permissions import allow_all
from perdure.testing import MemoryFiles, ScriptedModel
from perdure.tools import EditResult, edit_tool, read_tool, write_tool

TEXT = "def a():\n    return 1\n\n\ndef b():\n    return 2\n"


@pytest.fixture
def files():
    return MemoryFiles({"code.py": TEXT, "latin.txt": b"caf\xe9", "binary": b"a\0b"})


@pytest.fixture
def session(files):
    tools = [read_tool(files), write_tool(files), edit_tool(files)]
    return Agent(ScriptedModel(), tools=tools, permission=allow_all).session()


async def edit(session, **arguments):
    await session.call("read", {"path": arguments.get("path", "code.py")})
    return await session.call("edit", {"path": "code.py", **arguments})


async def test_text_is_replaced_and_the_lines_around_it_are_shown(session, files):
    result = await edit(session, old_string="    return 1", new_string="    x = 1\n    return x")
    assert result.text == ("edited code.py: 1 place, 56 bytes\n1: def a():\n2:     x = 1\n3:     return x\n4: \n5: ")
    assert files.files["code.py"].decode() == TEXT.replace("    return 1", "    x = 1\n    return x")


async def test_how_a_text_was_found_is_told_if_it_was_not_exact(session):
    result = await edit(session, old_string="def a():\nreturn 1", new_string="def a():\nreturn 7")
    assert "1 place (found by indentation)" in result.text


async def test_several_edits_are_made_in_order(session, files):
    steps = [
        {"old_string": "return 1", "new_string": "return 3"},
        {"old_string": "return 3", "new_string": "return 4"},
        {"old_string": "def", "new_string": "async def", "replace_all": True},
    ]
    result = await edit(session, edits=steps)
    assert result.text.startswith("edited code.py: 4 places")
    assert files.files["code.py"].decode() == TEXT.replace("return 1", "return 4").replace("def", "async def")


async def test_of_several_edits_all_are_made_or_none(session, files):
    steps = [{"old_string": "return 1", "new_string": "return 3"}, {"old_string": "missing", "new_string": "x"}]
    result = await edit(session, edits=steps)
    assert result.text.startswith("edit 2 of 2: old_string was not found")
    assert result.text.endswith("Nothing was changed.")
    assert files.files["code.py"].decode() == TEXT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"old_string": "return", "new_string": "x"}, "found 2 times"),
        ({"old_string": "a", "new_string": "b", "edits": [{"old_string": "a", "new_string": "b"}]}, "not both"),
        ({}, "old_string is empty"),
        ({"path": "missing", "old_string": "a", "new_string": "b"}, "there is no such file"),
        ({"path": "latin.txt", "old_string": "caf", "new_string": "b"}, "not UTF-8 text (byte 3)"),
        ({"path": "binary", "old_string": "a", "new_string": "b"}, "not been read|not a text file"),
        ({"path": "perdure.toml", "old_string": "a", "new_string": "b"}, "never written"),
        ({"path": "/etc/hosts", "old_string": "a", "new_string": "b"}, "outside"),
    ],
)
async def test_an_edit_that_cannot_be_made_says_why(session, files, arguments, words):
    before = dict(files.files)
    result = await edit(session, **arguments)
    assert result.status != "ok"
    assert any(each in result.text for each in words.split("|"))
    assert files.files == before


async def test_a_file_that_was_not_read_or_has_changed_since_is_not_edited(session, files):
    arguments = {"path": "code.py", "old_string": "return 1", "new_string": "return 3"}
    assert "has not been read" in (await session.call("edit", arguments)).text
    await session.call("read", {"path": "code.py"})
    files.files["code.py"] += b"# more\n"
    assert "has changed since you read it" in (await session.call("edit", arguments)).text
    await session.call("read", {"path": "code.py"})
    assert (await session.call("edit", arguments)).status == "ok"
    again = {"path": "code.py", "old_string": "return 3", "new_string": "return 1"}
    assert (await session.call("edit", again)).status == "ok"  # what it wrote itself, it has seen


async def test_a_file_that_another_process_writes_in_the_last_moment_is_not_lost(session, files, monkeypatch):
    async def refuse(*_arguments, **_options):
        raise FileChanged("its content has changed meanwhile")

    monkeypatch.setattr(files, "write_file", refuse)
    result = await edit(session, old_string="return 1", new_string="return 3")
    assert "was not changed: its content has changed meanwhile; read it again" in result.text


@pytest.mark.parametrize("made", [True, False])
async def test_an_edit_that_a_crash_interrupted_is_made_once(files, made):
    """The log has the intent and the digests; the same call runs again, and finds its change made, or not."""
    from perdure import ToolContext
    from perdure._io.files.jail import compute_digest

    tool = edit_tool(files)
    new = TEXT.replace("return 1", "return 1 + return 1")
    record = FileAccessRecord(
        compute_digest(new.encode()), before=compute_digest(TEXT.encode()), call_id="call-1", root="/work"
    )
    if made:
        files.files["code.py"] = new.encode()

    class Context(ToolContext):
        """A context of a call whose first attempt was cut off."""

        __slots__ = ("values",)

        def __init__(self):
            self.call_id = "call-1"
            self.values = {"file:code.py": record}

        target = property(lambda _: files.resolve("code.py"))
        session_id = property(lambda _: "s")

        def confirm_lease_on_thread(self):
            pass

        def kept(self, name, default=None):
            import msgspec

            return msgspec.to_builtins(self.values[name])

        async def keep(self, name, value):
            self.values[name] = value

    arguments = {
        "path": "code.py", "old_string": "return 1", "new_string": "return 1 + return 1", "replace_all": False,
        "edits": [],
    }  # fmt: skip
    output = await tool.call(arguments, Context())
    assert output.content.startswith("edited code.py")
    assert files.files["code.py"].decode() == new


async def test_an_edit_alone_is_refused_without_a_number(session):
    result = await edit(session, old_string="return", new_string="x")
    assert not result.text.startswith("edit 1 of 1")
    assert "Nothing was changed" not in result.text


def edited_lines(count: int, first: int, last: int, width: int = 1) -> EditResult:
    text = "\n".join([chr(97 + number % 26) * width for number in range(count)])
    return EditResult(text, 1, "exact", first, last)


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [
        (1, 1, (1, 3)),
        (2, 2, (1, 4)),
        (3, 3, (1, 5)),
        (4, 4, (2, 6)),
        (5, 25, (3, 26)),
        (5, 24, (3, 26)),
        (40, 40, (38, 40)),
    ],
)
def test_two_lines_around_a_change_are_shown_and_24_at_most(first, last, shown):
    numbers = [int(line.partition(":")[0]) for line in _show_lines(edited_lines(40, first, last)).split("\n")]
    assert numbers == [*range(shown[0], shown[1] + 1)]


@pytest.mark.parametrize(("width", "is_cut"), [(1_997, False), (1_998, True)])
def test_the_lines_around_a_change_are_cut_at_two_thousand_characters(width, is_cut):
    shown = _show_lines(EditResult("x" * width, 1, "exact", 1, 1))
    assert shown == f"1: {'x' * 1_997}{'…' if is_cut else ''}"


def test_carriage_returns_are_not_shown():
    assert _show_lines(EditResult("a\r\nb\r", 1, "exact", 1, 1)) == "1: a\n2: b"


async def test_the_ways_in_which_texts_were_found_are_told_once(session):
    steps = [
        {"old_string": "def a():\nreturn 1", "new_string": "def a():\nreturn 7"},
        {"old_string": "def b():\nreturn 2", "new_string": "def b():\nreturn 8"},
    ]
    result = await edit(session, edits=steps)
    assert result.text.partition("\n")[0] == "edited code.py: 2 places (found by indentation), 38 bytes"
