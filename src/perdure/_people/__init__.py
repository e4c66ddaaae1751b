"""Kinds of display slots (places where a tool shows something or asks a question), and permissions kept in a file.

    kinds     text, Markdown, tables, pictures and progress, shown without an answer; questions, answered by a value
    view      a slot as any screen displays it, with or without an answer
    grants    permissions granted for ever, in a file

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
