"""A tool call as it is shown to the person who decides about it."""

import pytest

from perdure._cli.terminal.approval import add_call_rows
from perdure._cli.terminal.frame import UntrustedTextFrame


def show(call, path="", width=100) -> list[str]:
    frame = UntrustedTextFrame(width)
    add_call_rows(frame, call, path)
    return frame.rows


def test_everything_about_a_call_is_shown():
    rows = show(
        {
            "tool": "edit",
            "action": "write",
            "target": "/tmp/a",
            "arguments": {
                "path": "a",
                "count": 3,
                "flag": None,
                "edits": [{"old": "x", "new": "one\ntwo\n"}, {"old": "3", "new": 3}],
                "empty": {},
                "two words\n": [],
            },
        },
        "agent/child",
    )
    assert rows == [
        '| agent: "agent/child"',
        '| tool: "edit"',
        '| action: "write"',
        '| target: "/tmp/a"',
        '| argument path: "a"',
        '| argument count (JSON): "3"',
        '| argument flag (JSON): "null"',
        '| argument edits[1].old: "x"',
        "| argument edits[1].new: 2 lines, 8 characters",
        ": 1 one",
        ": 2 two",
        '| argument edits[2].old: "3"',
        '| argument edits[2].new (JSON): "3"',
        '| argument empty (JSON): "{}"',
        '| argument "two words\\n" (JSON): "[]"',
    ]


def test_a_call_without_arguments_says_so():
    assert show({"tool": "x", "arguments": {}})[-1] == "| arguments: none"
    assert show({"tool": "x"})[-1] == "| arguments: none"


def test_what_is_nested_too_deeply_is_one_value():
    value: object = "bottom"
    for _ in range(30):
        value = {"a": value}
    rows = show({"tool": "x", "arguments": value}, width=1000)
    assert rows[-1].startswith("| argument a.a.a.a.a.a.a.a (JSON): ")
    assert "bottom" in rows[-1]


def test_arguments_of_a_call_that_was_cut_off_are_text_in_the_log():
    assert show({"tool": "x", "arguments": '{"a":"b"}'})[-1] == '| argument a: "b"'
    assert show({"tool": "x", "arguments": '{"a":'})[-1] == '| arguments: "{\\"a\\":"'


def test_a_target_that_is_shown_as_an_argument_is_not_shown_twice():
    assert "| target: the arguments" in show({"tool": "x", "target": '{"a":"b"}', "arguments": {"a": "b"}})
    long = "x" * 300
    assert "| target: the argument a" in show({"tool": "x", "target": long, "arguments": {"a": long}})
    assert '| target: "short"' in show({"tool": "x", "target": "short", "arguments": {"a": "short"}})


def test_what_a_person_should_know_about_a_command_is_a_row():
    rows = show({"tool": "bash", "typed_target": {"note": "There is no sandbox."}, "arguments": {"command": "ls"}})
    assert '| note: "There is no sandbox."' in rows
    assert not [row for row in show({"tool": "x", "typed_target": None, "arguments": {}}) if "note" in row]


@pytest.mark.parametrize(("length", "is_shown"), [(199, True), (200, True), (201, False)])
def test_a_target_of_up_to_200_characters_is_shown_beside_the_argument_that_it_is(length, is_shown):
    target = "x" * length
    rows = show({"tool": "x", "target": target, "arguments": {"a": target}}, width=1000)
    assert ("| target: the argument a" not in rows) == is_shown


def test_where_labelled_text_came_from_is_shown_before_the_note_and_the_target():
    call = {
        "tool": "send",
        "action": "post",
        "labels": ["private", "untrusted"],
        "sources": ["inbox", "web"],
        "typed_target": {"note": "It leaves this machine."},
        "target": "x",
        "arguments": {"to": "x"},
    }
    assert show(call) == [
        "| agent: the agent of the session",
        '| tool: "send"',
        '| action: "post"',
        '| it follows text that is labelled: "private, untrusted (inbox, web)"',
        '| note: "It leaves this machine."',
        '| target: "x"',
        '| argument to: "x"',
    ]
    assert show({"labels": ["private"]}) == [
        "| agent: the agent of the session",
        '| tool: ""',
        '| it follows text that is labelled: "private ()"',
        "| arguments: none",
    ]


def test_arguments_that_are_no_object_are_numbered():
    assert show({"tool": "x", "arguments": ["a", ["b"]]})[2:] == ['| arguments[1]: "a"', '| arguments[2][1]: "b"']
    assert show({"tool": "x", "arguments": 3})[2:] == ['| arguments (JSON): "3"']
