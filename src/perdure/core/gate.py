"""A gate below another one: what is denied above stays denied. Above: runs of children. Below: `permission.py`.

Whoever gives a task to an agent with a gate of its own leaves its decisions to that gate, except for what it forbids
itself: a no of a rule, a no that was given for longer than one call, or the no of a function of somebody's own. What
the gate above would only ask about is for the gate below to decide.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from .permission import Explanation, Gate, PermissionRequest, Permissions, Verdict, allow_all, one_each

V = TypeVar("V", Verdict, Verdict | None)


def held_below(own: Gate | None, above: Gate | None, session_id: str = "") -> Gate | None:
    """The gate of a child: its own, held by its parent's; its parent's when it has none.

    `session_id` is the session of the gate above, when it is another one.
    """
    if own is None or above is None:
        return above if own is None else own
    if own is above or above is allow_all:
        return own
    if isinstance(own, Permissions):
        return Held(own, above, session_id)

    async def held(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        refused = await refusals(above, _seen_from(session_id, requests))
        return await _together(refused, requests, lambda left: _asked(own, left))

    return held


class Held(Permissions):
    """Rules, and somebody to ask, below another gate."""

    def __init__(self, own: Permissions, above: Gate, session_id: str = "") -> None:
        super().__init__(*own.rules, handler=own.handler, grants=own.grants, expires_seconds=own.expires_seconds)
        self._own = own
        self._above = above
        self._session_id = session_id

    async def __call__(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        return await _together(await self._refused_above(requests), requests, self._own)

    async def verdicts(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """What is settled without asking anybody, above or here; `None` means: ask."""
        return await _together(await self._refused_above(requests), requests, self._own.verdicts)

    async def refusals(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        """What is denied without asking anybody, above or here."""
        return await _together(await self._refused_above(requests), requests, self._own.refusals)

    async def _refused_above(self, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
        return await refusals(self._above, _seen_from(self._session_id, requests))

    def forbidden(self, request: PermissionRequest) -> Explanation | None:
        """What rules and earlier decisions deny, above or here. What a function says is known when it is asked."""
        (seen,) = _seen_from(self._session_id, [request])
        held = self._above.forbidden(seen) if isinstance(self._above, Permissions) else None
        return held or self._own.forbidden(request)

    def explain(self, request: PermissionRequest) -> Explanation:
        """What becomes of a call, and why, as far as rules say."""
        return self.forbidden(request) or self._own.explain(request)


async def refusals(gate: Gate, requests: Sequence[PermissionRequest]) -> Sequence[Verdict | None]:
    """What a gate denies without asking anybody; `None` for each of the other calls. A function is simply asked."""
    if isinstance(gate, Permissions):
        return await gate.refusals(requests)
    return [None if verdict.allow else verdict for verdict in await _asked(gate, requests)]


async def _asked(gate: Gate, requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    answered = gate(requests)
    return one_each(requests, list(await answered if inspect.isawaitable(answered) else answered))


def _seen_from(session_id: str, requests: Sequence[PermissionRequest]) -> Sequence[PermissionRequest]:
    """The requests as another session would make them: what was decided there for its length holds here too."""
    return [replace(each, session_id=session_id) for each in requests] if session_id else requests


async def _together(
    refused: Sequence[Verdict | None],
    requests: Sequence[PermissionRequest],
    rest: Callable[[Sequence[PermissionRequest]], Awaitable[Sequence[V]]],
) -> list[Verdict | V]:
    """What was refused, and for the other requests what the rest says."""
    left = [each for each, verdict in zip(requests, refused, strict=True) if verdict is None]
    answers = iter(await rest(left) if left else ())
    return [next(answers) if verdict is None else verdict for verdict in refused]
