"""Handle Ctrl-C, SIGTERM and SIGHUP during `perdure eval`: runs are left for `--resume`, and a second signal quits."""

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import click

from perdure.shutdown import SIGNALS, Shutdown, SignalHandlers

if TYPE_CHECKING:
    from perdure.runtime.agent import Agent


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
