"""Auto-continue: for models that announce an action and stop. Above: callers. Below: `run.py`.

Opt in with `Agent(accept=[auto_continue()])`.
"""

import re

from .event import AutoContinued
from .message import Message
from .run import Accept, Accepted, Again, Run

_ANNOUNCES = re.compile(
    r"\b(i will|i'll|let me|i am going to|i'm going to|next,? i|now i|proceeding to|about to)\b", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!]\s|…|\n")


def auto_continue(*, most: int = 2, text: str = "Please continue.") -> Accept:
    """Tell a model to go on when its last sentence announces something it has not done, at most `most` times a run."""

    def accept(run: Run, reply: Message) -> Accepted | Again:
        count = run.scratch.get(_COUNT, 0) + 1
        if count > most or not len(run.toolbox) or not announces(reply.text):
            return Accepted()
        run.scratch[_COUNT] = count
        return Again(text, "auto_continue", AutoContinued(count))

    return accept


_COUNT = "windlass.auto_continue"


def announces(text: str) -> bool:
    """Whether the closing sentence promises an action instead of ending or asking."""
    closing = _SENTENCE_END.split(text.strip().rstrip(".!…:"))[-1]
    return "?" not in closing and _ANNOUNCES.search(closing) is not None
