"""A model that plays planner, maker and checker of a goal by a script, and an agent with a ledger of its effects."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from perdure import Agent, tool
from perdure._work.goals.roles import CHECKER_INSTRUCTIONS, PLANNER_INSTRUCTIONS
from perdure.engines import react
from perdure.models import Request
from perdure.testing import Reply, ScriptedModel

PLAN = json.dumps({"items": ["The hull is tight.", "The sail is up."]})


def role_of(request: Request) -> str:
    """The role that a request is for."""
    first = {PLANNER_INSTRUCTIONS[:30]: "planner", CHECKER_INSTRUCTIONS[:30]: "checker"}
    return first.get(request.instructions[:30], "maker")


def verdict(*done: str, ids: Sequence[str] = ("1", "2"), all_done: bool | None = None, **more: Any) -> str:
    """The reply of a checker that has found these ids done."""
    items = [
        {"id": each, "done": each in done, "evidence": f"saw {each}", "progress": more.get("progress", 0)}
        for each in ids
    ]
    is_done = len(done) == len(ids) if all_done is None else all_done
    return json.dumps({"done": is_done, "items": items, "summary": more.get("summary", f"{len(done)} done")})


class ScriptedRoles:
    """Replies for each role, in order; the last one of a role is repeated. A reply may be a function of the request."""

    def __init__(self, *, planner: Any = (PLAN,), maker: Any = ("Worked.",), checker: Any = ()) -> None:
        self._replies = {"planner": [*planner], "maker": [*maker], "checker": [*checker]}
        self.requests: dict[str, list[Request]] = {"planner": [], "maker": [], "checker": []}

    def __call__(self, request: Request) -> Any:
        role = role_of(request)
        self.requests[role].append(request)
        replies = self._replies[role]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return reply(request) if callable(reply) and not isinstance(reply, Reply) else reply

    def build_model(self, **options: Any) -> ScriptedModel:
        return ScriptedModel(self, repeat_last=True, **options)


def build_maker(roles: ScriptedRoles, *, effects: list[str] | None = None, **options: Any) -> Agent[Any]:
    """An agent for the roles, with a tool that reads and one that writes."""
    written: list[str] = [] if effects is None else effects

    @tool(effect="read")
    def look() -> str:
        """Look at the boat."""
        return f"{len(written)} repairs"

    @tool
    def repair(part: str) -> str:
        """Repair a part."""
        written.append(part)
        return f"{part} is repaired"

    model = roles.build_model(**options.pop("model_options", {}))
    return Agent(model, name="boatman", tools=[look, repair], **{"engine": react, **options})


Repair = Callable[[Request], Any]
