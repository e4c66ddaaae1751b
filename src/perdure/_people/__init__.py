"""Kinds of display slots (places where a tool shows something or asks a question), and permissions kept in a file.

    display_content.py     PlainText, Markdown, Table, Picture, Progress: shown, without an answer
    questions.py    Confirm, Choice, MultiSelect, Form, CustomSlot: asked, and answered by a value of a type
    slot_view.py    SlotView: a slot as any screen displays it, with or without an answer
    grant_file.py   GrantFile: permissions granted for ever, in a file

Your own kind is a class: a `Showable`, or an `Askable` if it is answered.
"""

from .grants import GrantFile
from .kinds import Choice, Confirm, CustomSlot, Form, Markdown, MultiSelect, Option, Picture, PlainText, Progress, Table
from .view import SlotView

__all__ = [
    "Choice",
    "Confirm",
    "CustomSlot",
    "Form",
    "GrantFile",
    "Markdown",
    "MultiSelect",
    "Option",
    "Picture",
    "PlainText",
    "Progress",
    "SlotView",
    "Table",
]
