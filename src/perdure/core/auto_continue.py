"""Auto-continue: ask a model to go on when it announces an action and stops without doing it.

Opt in with `Agent(output_validators=[auto_continue()])`.
"""

import re

from .error import ConfigError
from .event import AutoContinued
from .message import Message
from .run import Accepted, OutputValidator, Retry, Run

_ANNOUNCES = re.compile(
    r"\b(i will|i['’]ll|let me(?! know)|i am going to|i['’]m going to|proceeding to|about to)\b",  # noqa: RUF001 - as people type it
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!]\s|…|\n")


def auto_continue(*, max_times: int = 2, text: str = "Please continue.") -> OutputValidator:
    """Make an output validator that asks the model to go on when its reply only announces an action.

    It asks at most `max_times` times a run.
    """
    if not isinstance(max_times, int) or max_times < 1 or not isinstance(text, str) or not text.strip():
        message = f"auto_continue(max_times={max_times!r}, text={text!r}): give a number from 1 on, and non-empty text"
        raise ConfigError(message)

    def accept(run: Run, reply: Message) -> Accepted | Retry:
        if not len(run.toolbox) or not announces_action(reply.text):
            return Accepted()
        continued = [message for message in run.messages[run.state.first_message_index :] if message.origin == _ORIGIN]
        return Accepted() if len(continued) >= max_times else Retry(text, _ORIGIN, AutoContinued(len(continued) + 1))

    return accept


_ORIGIN = "auto_continue"


def announces_action(text: str) -> bool:
    """Return True if the last sentence of a model's reply announces an action, and is not a question."""
    closing = _SENTENCE_END.split(text.strip().rstrip(".!…:"))[-1]
    return "?" not in closing and _ANNOUNCES.search(closing) is not None
