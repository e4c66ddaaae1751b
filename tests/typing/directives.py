"""What type checkers make of directives, and of agents that are classes. Checked, strictly, and never run."""

from collections.abc import Sequence
from typing import Any, assert_type

from perdure import Agent, CommandContext, Message, Session, SessionControls, Tool, agent_of, assistant, tool, tools_of
from perdure.context import Command, MentionSettings, Rewrite, ShortCircuit
from perdure.tools import Task, TodoItem, parse_tasks, parse_todos


def shout(context: CommandContext) -> Rewrite:
    assert_type(context.controls, SessionControls)
    return Rewrite(context.text.upper())


async def ping(context: CommandContext) -> ShortCircuit | None:
    assert_type(await context.controls.messages(), Sequence[Message])
    return ShortCircuit(assistant("pong")) if context.arguments else None


async def nothing(context: CommandContext) -> None:
    await context.controls.configure(role=context.arguments)


def hooks_fit_an_agent() -> Agent[Any]:
    hooks = [Command("shout", shout), Command("ping", ping, "Is anybody there?"), Command("nothing", nothing)]
    hooks.append(Command("lambda", lambda context: Rewrite(context.arguments)))
    return Agent("demo", commands=hooks, mentions=MentionSettings(".", blocked=["*.bak"]))


def a_session_is_what_a_hook_controls(session: Session[str]) -> SessionControls:
    return session


class Harbour:
    """You look after a harbour."""

    @tool
    def berths(self) -> list[int]:
        """Which are free."""
        return [4]


async def classes_become_agents(session: Session) -> None:
    assert_type(tools_of(Harbour()), list[Tool[..., Any]])
    assert_type(agent_of(Harbour(), "demo", name="desk"), Agent[Any])
    assert_type(Harbour().berths(), list[int])
    assert_type(parse_tasks(await session.kept("tasks")), list[Task])
    assert_type(parse_todos(await session.kept("todos")), list[TodoItem])
    assert_type(await session.tasks(), list[Task])
