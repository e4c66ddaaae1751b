"""What may be done in a session: why, and what was decided before. Above: `session.py`. Below: `build.py`, `core`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .build import toolbox_of
from .core.call import final_arguments
from .core.effect import Job
from .core.error import ConfigError
from .core.fold import State
from .core.mailbox import REVOKE
from .core.message import ToolCall
from .core.permission import (
    NOBODY_TO_ASK,
    Explanation,
    Gate,
    Grant,
    PermissionRequest,
    Permissions,
    allow_all,
    deny_all,
    last_words,
)
from .core.run import Run
from .core.schema import Invalid
from .core.store import Post
from .core.tool import Skip
from .extension import ruled
from .speaking import speaking

if TYPE_CHECKING:
    from .agent import Agent


async def explained(agent: "Agent[Any]", session_id: str, state: State, run: Run | None, call: ToolCall) -> Explanation:
    """What would become of a call in that session; in the run that goes on, if one does."""
    agent = speaking(agent, state)
    toolbox = toolbox_of(agent, {}, agent.all_skills(), state.skills) if run is None else run.toolbox
    tool = toolbox.get(call.name)
    if tool is None:
        raise ConfigError(f"there is no tool {call.name!r}; {toolbox.advice(call.name)}")
    allowed = agent.limits.allowed_tools if run is None else None  # a run has only what it may use
    if allowed is not None and call.name not in allowed:
        return Explanation("deny", f"allowed_tools does not list {call.name!r}: it is not offered, and not called")
    try:
        final = await final_arguments(tool, call)
    except Invalid as problem:
        raise ConfigError(f"invalid arguments for {call.name!r}: {problem}") from None
    if isinstance(final, Skip):
        return Explanation("deny", final.reason)
    request = Job(call, tool, *final).permission_request(session_id, "" if run is None else run.run_id)
    return await _judged(ruled(agent.permission, agent.extensions) if run is None else run.gate, request, state)


async def _judged(gate: Gate | None, request: PermissionRequest, state: State) -> Explanation:
    if isinstance(gate, Permissions):
        gate.grants.follow(state.remembered, request.session_id)
        return gate.explain(request)
    if gate is None:
        if request.required:
            return Explanation("deny", NOBODY_TO_ASK.reason)
        return Explanation("allow", "the tool needs no permission")
    if gate is allow_all or gate is deny_all:  # of these we know that asking them does nothing
        (verdict,) = await (allow_all if gate is allow_all else deny_all)([request])
        return Explanation("allow" if verdict.allow else "deny", verdict.reason)
    return Explanation(
        "ask", f"the gate {getattr(gate, '__name__', type(gate).__name__)!r} decides when the call is made"
    )


def standing(gate: Gate | None, session_id: str, state: State, posts: Iterable[Post]) -> list[Grant]:
    """What was decided for longer than one call, and holds in a session."""
    if isinstance(gate, Permissions):
        gate.grants.follow(state.remembered, session_id)
        holding = [grant for grant in gate.grants if grant.session_id in {"", session_id}]
    else:
        holding = [grant for grant, holds in last_words(state.remembered, session_id).items() if holds]
    revoked = {post.named("grant_id") for post in posts if post.kind == REVOKE}
    return [grant for grant in holding if grant.grant_id not in revoked]
