"""Keys as a model names them, and the key events of pages."""

import pytest

from perdure import ToolError
from perdure._tools.browser.page import parse_key


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("Enter", {"key": "Enter", "code": "Enter", "keyCode": 13}),
        ("Return", {"key": "Enter", "code": "Enter", "keyCode": 13}),
        ("Esc", {"key": "Escape", "code": "Escape", "keyCode": 27}),
        ("F12", {"key": "F12", "code": "F12", "keyCode": 123}),
        ("a", {"key": "a", "code": "KeyA", "keyCode": 65}),
        ("Shift+a", {"key": "A", "code": "KeyA", "keyCode": 65, "shiftKey": True}),
        ("Control+Alt+Delete", {"key": "Delete", "code": "Delete", "keyCode": 46, "ctrlKey": True, "altKey": True}),
        ("7", {"key": "7", "code": "Digit7", "keyCode": 55}),
        ("Space", {"key": " ", "code": "Space", "keyCode": 32}),
        ("+", {"key": "+", "code": "", "keyCode": 0}),
        ("Control++", {"key": "+", "code": "", "keyCode": 0, "ctrlKey": True}),
        ("ä", {"key": "ä", "code": "", "keyCode": 0}),
    ],
)
def test_a_key_is_parsed_to_the_fields_of_its_event(text, event):
    assert parse_key(text) == event


@pytest.mark.parametrize("text", ["", "Any", "ab", "Hyper+a", "\n", "Control+Shift"])
def test_what_is_no_key_is_refused(text):
    with pytest.raises(ToolError, match=r"is no key|has no such modifier"):
        parse_key(text)
