"""Which files an agent has touched."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context.file_ledger import MOST_FILES, FileLedger, ledger_of, paths_of
from perdure.core.message import Message, Status, Text, ToolCall, ToolResult, tool_message
from tests.core.material import messages as any_messages


def called(name: str, arguments: str, status: Status = Status.OK) -> list[Message]:
    call = ToolCall("c", name, arguments)
    return [Message("assistant", (call,)), tool_message([ToolResult("c", name, (Text("x"),), status)])]


@pytest.mark.parametrize("name", ["write_file", "str_replace_edit", "applyPatch", "create", "delete-file", "MOVE"])
def test_tools_that_write_edit_or_move_modify_files(name):
    assert ledger_of(called(name, '{"path": "/a"}')) == FileLedger(("/a",), ())


@pytest.mark.parametrize("name", ["read_file", "openDocument", "view"])
def test_tools_that_read_open_or_view_read_files(name):
    assert ledger_of(called(name, '{"file_path": "/a"}')) == FileLedger((), ("/a",))


@pytest.mark.parametrize("name", ["thread", "spreadsheet_sum", "credit", "shell"])
def test_a_name_in_which_such_a_word_only_hides_does_neither(name):
    assert ledger_of(called(name, '{"path": "/a"}')) == FileLedger()


def test_files_are_named_by_one_argument_or_by_several():
    assert paths_of(ToolCall("c", "read", '{"paths": ["/a", 3, "/b"], "mode": "x", "Filename": "/c"}')) == [
        "/a",
        "/b",
        "/c",
    ]


@pytest.mark.parametrize("arguments", ["", "{", "[]", '"x"', '{"path": "a\\nb"}', '{"path": ""}', '{"path": {}}'])
def test_arguments_that_name_no_file_name_none(arguments):
    assert paths_of(ToolCall("c", "read", arguments)) == []


def test_what_is_too_long_for_a_name_is_none():
    assert paths_of(ToolCall("c", "write", '{"path": "' + "x" * 5000 + '"}')) == []


@pytest.mark.parametrize("status", [Status.DENIED, Status.ERROR, Status.CANCELLED_BEFORE_START])
def test_a_call_that_did_not_happen_touched_nothing(status):
    assert ledger_of(called("write", '{"path": "/a"}', status)) == FileLedger()


def test_a_call_that_may_have_happened_counts():
    assert ledger_of(called("write", '{"path": "/a"}', Status.UNKNOWN)).modified == ("/a",)


def test_a_file_that_was_read_and_then_changed_is_among_the_changed_ones_alone():
    messages = called("read", '{"path": "/a"}') + called("edit", '{"path": "/a"}') + called("read", '{"path": "/b"}')
    assert ledger_of(messages) == FileLedger(("/a",), ("/b",))


def test_ledgers_add_up_and_the_last_touch_counts():
    first, second = FileLedger(("/a", "/b"), ("/x", "/y")), FileLedger(("/a", "/x"), ("/z",))
    assert first.followed_by(second) == FileLedger(("/b", "/a", "/x"), ("/y", "/z"))


def test_the_oldest_of_too_many_files_are_forgotten():
    many = FileLedger(tuple(f"/{number}" for number in range(MOST_FILES + 5)))
    kept = FileLedger().followed_by(many).modified
    assert (len(kept), kept[0], kept[-1]) == (MOST_FILES, "/5", f"/{MOST_FILES + 4}")


@settings(max_examples=30)
@given(st.lists(any_messages, max_size=5))
def test_any_messages_have_a_ledger(messages):
    assert isinstance(ledger_of(messages), FileLedger)
