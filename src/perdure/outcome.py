"""The outcome of a run that was over long ago, told again from the log. Above: `driver.py`. Below: `core`."""

from collections.abc import Sequence
from typing import Any, cast

from .core.error import PerdureError
from .core.event import RunEnded
from .core.fold import Past
from .core.message import Message
from .core.outcome import Outcome, OutcomeStatus


def retold(session_id: str, messages: Sequence[Message], past: Past, ended: RunEnded) -> Outcome[Any]:
    """What was returned to whoever asked first, as far as the log knows it: a validated output is not in there."""
    new = messages[past.first : past.last]
    last = next((each for each in reversed(new) if each.role == "assistant"), None)
    return Outcome(
        status=cast("OutcomeStatus", ended.status),
        reason=ended.reason,
        text=last.text if last else "",
        message=last,
        new_messages=new,
        messages=messages[: past.last],
        usage=ended.usage,
        cost_usd=ended.cost_usd,
        steps=ended.turns,
        run_id=past.run_id,
        session_id=session_id,
        error=PerdureError(ended.error) if ended.status == "failed" else None,
    )
