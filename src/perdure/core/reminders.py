"""Reminders: text that is added to the end of one request to the model, and never stored.

Reminders are functions supplied by users and extensions. One that fails is reported and left out: the request does not
depend on it.
"""

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from . import argument_checks
from .calling_run import find_other_labels
from .jsonable import replace_surrogates
from .message import Message, user

if TYPE_CHECKING:
    from .run import Run
    from .run_function_types import Reminder

PROJECT_SOURCE: Final = "program:project"
"""Source of the files of a project, such as AGENTS.md."""
_LABELS_KEY: Final = "perdure.request_labels"


def build_reminder_messages(run: "Run") -> list[Message]:
    """Build one message from the text of all reminders of a run; return an empty list if there is none."""
    texts = [text for each in run.spec.reminders if (text := _call_reminder(run, each))]
    return [user(replace_surrogates("\n\n".join(texts)), origin="reminder")] if texts else []


def label_requests(run: "Run", labels: Iterable[str], source: str) -> None:
    """Give labels to all further requests of a run, for text in them that is not in the log, such as a reminder."""
    run.scratch.setdefault(_LABELS_KEY, {}).update(dict.fromkeys(labels, source))


def find_unlogged_labels(run: "Run") -> dict[str, str]:
    """Return the labels of text that is sent with a request and is not in the log, each with its source.

    Those that the session has already are left out.
    """
    told = {**dict.fromkeys(run.spec.project_labels, PROJECT_SOURCE), **run.scratch.get(_LABELS_KEY, {})}
    missing = {label: source for label, source in told.items() if label not in run.state.labels}
    return {**missing, **find_other_labels(run)}


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
