"""What people are shown and asked: the kinds of slots that we have. Above: tools, sessions, screens. Below: `core`.

    shown.py        Words, Markdown, Table, Picture, Progress: shown, and waited for by nobody
    asked.py        Confirm, Choice, Choices, Form, Custom: asked, and answered by a value of a type
    view.py         SlotView: a slot as any screen sees it, whether or not it waits
    grant_file.py   GrantFile: what people have allowed for ever, in a file

A kind of your own is a class: a `Showable`, or an `Askable` if it is answered.
"""

from .asked import Choice, Choices, Confirm, Custom, Form, Option
from .grant_file import GrantFile
from .shown import Markdown, Picture, Progress, Table, Words
from .view import SlotView

__all__ = [
    "Choice",
    "Choices",
    "Confirm",
    "Custom",
    "Form",
    "GrantFile",
    "Markdown",
    "Option",
    "Picture",
    "Progress",
    "SlotView",
    "Table",
    "Words",
]
