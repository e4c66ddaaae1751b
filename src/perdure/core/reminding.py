"""What is said at the very end of one request, and never kept. Above: `run.py`. Below: `seam.py`.

Reminders are functions of others: one that fails is told, and left out, for the model can do without it.
"""

import inspect
from typing import TYPE_CHECKING

from . import check
from .message import Message, user
from .plain import clean

if TYPE_CHECKING:
    from .run import Run
    from .seam import Reminder


def reminded(run: "Run") -> list[Message]:
    """The words of all reminders of a run, as one message; none when they have nothing to say."""
    said = [text for each in run.reminders if (text := _said(run, each))]
    return [user(clean("\n\n".join(said)), origin="reminder")] if said else []


def _said(run: "Run", reminder: "Reminder") -> str | None:
    try:
        text = reminder(run)
        if inspect.iscoroutine(text):
            text.close()  # nobody will wait for it
        if text is not None:
            check.returned("reminder", reminder, text, str, "text or None, at once: what has to wait is upkeep")
    except Exception as error:  # noqa: BLE001 - whatever it is
        run.report(error, "a reminder")
        return None
    return text
