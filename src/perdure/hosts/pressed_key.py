"""Keys as a model names them, such as `Enter` or `Control+A`, and the fields of the key events that pages receive."""

from typing import Any, Final

from perdure.core.error import ToolError

_MODIFIERS: Final = {
    "Control": "ctrlKey",
    "Ctrl": "ctrlKey",
    "ControlOrMeta": "ctrlKey",
    "Shift": "shiftKey",
    "Alt": "altKey",
    "Meta": "metaKey",
}
_CODES: Final = {
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Insert": 45,
    "Delete": 46,
    **{f"F{number}": 111 + number for number in range(1, 13)},
}


def parse_key(text: str) -> dict[str, Any]:
    """Return the fields of the event of a key. Raises `ToolError` if there is no such key."""
    before, _, name = (text[:-1].removesuffix("+"), "", "+") if text.endswith("+") else text.rpartition("+")
    modifiers = before.split("+") if before else []
    if unknown := [each for each in modifiers if each not in _MODIFIERS]:
        raise ToolError(f"{text[:50]!r} has no such modifier as {unknown[0][:50]!r}: use {', '.join(_MODIFIERS)}")
    name = {"Space": " ", "Esc": "Escape", "Return": "Enter"}.get(name, name)
    held = {_MODIFIERS[each]: True for each in modifiers}
    if name in _CODES:
        return {"key": name, "code": name, "keyCode": _CODES[name], **held}
    if len(name) != 1 or not name.isprintable():
        raise ToolError(f"{text[:50]!r} is no key: use a letter, a digit, a sign, or one of {', '.join(_CODES)}, Space")
    if name.isascii() and name.isalpha():
        key = name.upper() if "shiftKey" in held else name
        return {"key": key, "code": f"Key{name.upper()}", "keyCode": ord(name.upper()), **held}
    code = f"Digit{name}" if name.isascii() and name.isdigit() else {" ": "Space"}.get(name, "")
    return {"key": name, "code": code, "keyCode": ord(name) if code else 0, **held}
