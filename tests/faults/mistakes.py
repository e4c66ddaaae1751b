"""Mistakes that Perdure could have, to see that the searches for faults find them. Above: `children.py`."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure._core.run.tool_calls import batch
from perdure._core.run.tool_calls import preparation as preparing


def rerun_unknown_calls() -> None:
    """Forget that a call had begun before the crash."""
    prepared = preparing.prepare_call

    async def forgetful(run: Any, call: Any) -> Any:
        run.state.started_calls.pop(call.call_id, None)
        return await prepared(run, call)

    preparing.prepare_call = forgetful


def store_no_intents() -> None:
    """Begin effects without saying so."""

    async def nothing(run: Any, wave: Any) -> None:
        pass

    batch.store_call_intents = nothing


MISTAKES: Mapping[str, Callable[[], None]] = {
    "rerun unknown calls": rerun_unknown_calls,
    "store no intents": store_no_intents,
}
