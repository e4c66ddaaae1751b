"""The agents that `perdure eval` runs, and what Ctrl-C, SIGTERM and SIGHUP do to them."""

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import click

from perdure._cli.terminal.output import TerminalOutput, to_one_line
from perdure._runtime.shutdown import SIGNALS, Shutdown, SignalHandlers

if TYPE_CHECKING:
    from perdure._runtime.agent.agent import Agent


def build_agents(
    places: Sequence[str], models: Sequence[str], options: dict[str, Any], *, yes: bool, screen: TerminalOutput
) -> "dict[str, Agent[Any]]":
    """Build the agents to evaluate, by their names in the report. Raises `ConfigError` for one that cannot be used.

    Agents are those at `places`, or else that of `perdure run`, assembled with `options`; with models, each of them
    with each model.
    """
    from perdure._work.judging.evals.evaluation import name_agents
    from perdure._work.judging.evals.imports import import_agent

    if not places:
        return _build_own_agents(models, options, yes=yes, screen=screen)
    named = name_agents([import_agent(each) for each in places])
    if not models:
        return named
    return {f"{name} ({model})": agent.replace(model=model) for name, agent in named.items() for model in models}


def _build_own_agents(
    models: Sequence[str], options: dict[str, Any], *, yes: bool, screen: TerminalOutput
) -> "dict[str, Agent[Any]]":
    """Return the agent of `perdure run` with each model; calls that would be asked about are denied."""
    from perdure._cli.run.assembly import collect_agent_parts
    from perdure._cli.run.options import AgentOptions

    agents: dict[str, Agent[Any]] = {}
    for model in models or (None,):
        parts = collect_agent_parts(AgentOptions(model=model, **options))
        choice = parts.choice
        for note in (*parts.notes, *([f"model {choice.model}: {choice.reason}"] if choice.reason else [])):
            screen.note(to_one_line(note))
        gate = parts.build_gate(None, yes=yes)
        agents[choice.model] = parts.build_agent(permission=gate, answer_timeout_seconds=0.0)
    return agents


def list_given_options(context: click.Context, *, without: Sequence[str]) -> list[str]:
    """Return the options that the user gave, as arguments for a printed command that resumes the evaluation."""
    source = click.core.ParameterSource.COMMANDLINE
    given = [each for each in context.command.params if isinstance(each, click.Option) and each.name not in without]
    return [
        word
        for each in given
        if context.get_parameter_source(str(each.name)) is source
        for word in _list_words(each, context.params[str(each.name)])
    ]


def _list_words(option: click.Option, value: Any) -> Iterator[str]:
    """Yield the arguments of an option with its value, or with each of its values."""
    name = max(option.opts, key=len)
    if option.is_flag:
        yield name if value or not option.secondary_opts else option.secondary_opts[0]
        return
    for each in value if option.multiple else (value,):
        yield from (name, str(each))


class EvaluationSignals:
    """Stops the runs of an evaluation on a signal, so that it can be resumed. A context manager."""

    def __init__(self, print_note: Callable[[str], None]) -> None:
        self._print_note = print_note
        self._shutdown = Shutdown(signals=())
        self._handlers = SignalHandlers((signal.SIGINT, *SIGNALS), self._begin)

    @property
    def exit_code(self) -> int:
        """Exit code after a signal: 128 plus its number, as in shells."""
        return 128 + self._handlers.number

    def wrap_agent(self, agent: "Agent[Any]") -> "Agent[Any]":
        """Return a copy of the agent whose runs stop on a signal."""
        return self._shutdown.wrap_agent(agent)

    def __enter__(self) -> Self:
        self._handlers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._handlers.__exit__()

    def _begin(self, _: int) -> None:
        self._shutdown.begin()
        self._print_note("stopping: what is finished is kept; a second signal quits at once")
