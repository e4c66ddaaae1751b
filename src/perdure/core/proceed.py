"""Auto-continue: for models that announce an action and stop. Above: callers. Below: `run.py`.

Opt in with `Agent(accept=[auto_continue()])`.
"""

import re

from .error import ConfigError
from .event import AutoContinued
from .message import Message
from .run import Accept, Accepted, Again, Run

_ANNOUNCES = re.compile(
    r"\b(i will|i['’]ll|let me(?! know)|i am going to|i['’]m going to|proceeding to|about to)\b",  # noqa: RUF001 - as people type it
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!]\s|…|\n")


def auto_continue(*, most: int = 2, text: str = "Please continue.") -> Accept:
    """Tell a model to go on when its last sentence announces something it has not done, at most `most` times a run."""
    if not isinstance(most, int) or most < 1 or not isinstance(text, str) or not text.strip():
        message = f"auto_continue(most={most!r}, text={text!r}): give a number of times from 1 on, and words to say"
        raise ConfigError(message)

    def accept(run: Run, reply: Message) -> Accepted | Again:
        if not len(run.toolbox) or not announces(reply.text):
            return Accepted()
        said = [message for message in run.messages[run.state.first :] if message.origin == _ORIGIN]
        return Accepted() if len(said) >= most else Again(text, _ORIGIN, AutoContinued(len(said) + 1))

    return accept


_ORIGIN = "auto_continue"


def announces(text: str) -> bool:
    """Whether the closing sentence promises an action instead of ending or asking."""
    closing = _SENTENCE_END.split(text.strip().rstrip(".!…:"))[-1]
    return "?" not in closing and _ANNOUNCES.search(closing) is not None
