"""Reminders: text that is added to the end of one request to the model, and never stored.

Reminders are functions supplied by users and extensions. One that fails is reported and left out: the request does not
depend on it.
"""

import inspect
from typing import TYPE_CHECKING

from . import argument_checks
from .jsonable import replace_surrogates
from .message import Message, user

if TYPE_CHECKING:
    from .run import Run
    from .run_function_types import Reminder


def build_reminder_messages(run: "Run") -> list[Message]:
    """Build one message from the text of all reminders of a run; return an empty list if there is none."""
    texts = [text for each in run.spec.reminders if (text := _call_reminder(run, each))]
    return [user(replace_surrogates("\n\n".join(texts)), origin="reminder")] if texts else []


def _call_reminder(run: "Run", reminder: "Reminder") -> str | None:
    """Return the text of one reminder; report an error and return `None` if it fails."""
    try:
        text = reminder(run)
        if inspect.iscoroutine(text):
            text.close()  # never awaited
        if text is not None:
            argument_checks.require_return_type(
                "reminder", reminder, text, str, "text or None, without await: async work belongs between turns"
            )
    except Exception as error:  # noqa: BLE001 - any error of a reminder
        run.report_error(error, "a reminder")
        return None
    return text
