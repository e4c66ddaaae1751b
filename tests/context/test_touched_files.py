"""Which files an agent has touched."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Message, Status, Text, ToolCall, ToolResult, tool_message
from perdure._context.history.summary import MAX_FILES, TouchedFiles, collect_touched_files, get_call_paths
from tests.core.material import messages as any_messages


def called(name: str, arguments: str, status: Status = Status.OK) -> list[Message]:
    call = ToolCall("c", name, arguments)
    return [Message("assistant", (call,)), tool_message([ToolResult("c", name, (Text("x"),), status)])]


@pytest.mark.parametrize("name", ["write_file", "str_replace_edit", "applyPatch", "create", "delete-file", "MOVE"])
def test_tools_that_write_edit_or_move_modify_files(name):
    assert collect_touched_files(called(name, '{"path": "/a"}')) == TouchedFiles(("/a",), ())


@pytest.mark.parametrize("name", ["read_file", "openDocument", "view"])
def test_tools_that_read_open_or_view_read_files(name):
    assert collect_touched_files(called(name, '{"file_path": "/a"}')) == TouchedFiles((), ("/a",))


@pytest.mark.parametrize("name", ["thread", "spreadsheet_sum", "credit", "shell"])
def test_a_name_in_which_such_a_word_only_hides_does_neither(name):
    assert collect_touched_files(called(name, '{"path": "/a"}')) == TouchedFiles()


def test_files_are_named_by_one_argument_or_by_several():
    assert get_call_paths(ToolCall("c", "read", '{"paths": ["/a", 3, "/b"], "mode": "x", "Filename": "/c"}')) == [
        "/a",
        "/b",
        "/c",
    ]


@pytest.mark.parametrize("arguments", ["", "{", "[]", '"x"', '{"path": "a\\nb"}', '{"path": ""}', '{"path": {}}'])
def test_arguments_that_name_no_file_name_none(arguments):
    assert get_call_paths(ToolCall("c", "read", arguments)) == []


def test_a_name_has_from_one_to_300_characters():
    for length, names in ((1, 1), (300, 1), (301, 0)):
        assert len(get_call_paths(ToolCall("c", "write", '{"path": "' + "x" * length + '"}'))) == names


def test_what_is_too_long_for_a_name_is_none():
    assert get_call_paths(ToolCall("c", "write", '{"path": "' + "x" * 5000 + '"}')) == []


@pytest.mark.parametrize("status", [Status.DENIED, Status.ERROR, Status.CANCELLED_BEFORE_START])
def test_a_call_that_did_not_happen_touched_nothing(status):
    assert collect_touched_files(called("write", '{"path": "/a"}', status)) == TouchedFiles()


def test_a_call_that_may_have_happened_counts():
    assert collect_touched_files(called("write", '{"path": "/a"}', Status.UNKNOWN)).modified == ("/a",)


def test_a_file_that_was_read_and_then_changed_is_among_the_changed_ones_alone():
    messages = called("read", '{"path": "/a"}') + called("edit", '{"path": "/a"}') + called("read", '{"path": "/b"}')
    assert collect_touched_files(messages) == TouchedFiles(("/a",), ("/b",))


def test_ledgers_add_up_and_the_last_touch_counts():
    first, second = TouchedFiles(("/a", "/b"), ("/x", "/y")), TouchedFiles(("/a", "/x"), ("/z",))
    assert first.merge_later(second) == TouchedFiles(("/b", "/a", "/x"), ("/y", "/z"))


def test_the_oldest_of_too_many_files_are_forgotten():
    many = TouchedFiles(tuple(f"/{number}" for number in range(MAX_FILES + 5)))
    kept = TouchedFiles().merge_later(many).modified
    assert (len(kept), kept[0], kept[-1]) == (MAX_FILES, "/5", f"/{MAX_FILES + 4}")


@settings(max_examples=30)
@given(st.lists(any_messages, max_size=5))
def test_any_messages_have_a_ledger(messages):
    assert isinstance(collect_touched_files(messages), TouchedFiles)
