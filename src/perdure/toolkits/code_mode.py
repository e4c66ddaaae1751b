"""Code mode: the model writes programs that call tools (`run_program`); the called tools may be hidden from it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from perdure.core import argument_checks
from perdure.core.thread_pool import THREAD_POOL
from perdure.core.tool import Tool
from perdure.core.toolbox import Toolbox

from .program_interpreter import InterpreterPool, ProgramLimits, require_monty
from .program_tool import add_stubs_to_program_tool, build_program_tool, can_be_called

_OWNER = "code_mode"
_LEAST_MEMORY_BYTES = 1_000_000


class CodeMode:
    """Code mode of one or several agents: the tool `run_program`, its interpreter, and the choice of visible tools."""

    def __init__(
        self,
        *,
        exclude: Sequence[str],
        hide_tools: bool,
        max_seconds: float,
        max_memory_bytes: int,
        max_calls: int,
        max_output_characters: int,
    ) -> None:
        if isinstance(exclude, str) or not all(isinstance(each, str) for each in exclude):
            argument_checks.raise_config_error(_OWNER, "exclude", exclude, "give a list of names of tools")
        argument_checks.require_bool(_OWNER, "hide_tools", hide_tools)
        argument_checks.require_number(_OWNER, "max_seconds", max_seconds)
        if not max_seconds:
            argument_checks.raise_config_error(_OWNER, "max_seconds", max_seconds, "give a number above zero")
        argument_checks.require_int(_OWNER, "max_memory_bytes", max_memory_bytes, _LEAST_MEMORY_BYTES)
        argument_checks.require_int(_OWNER, "max_calls", max_calls, 1)
        argument_checks.require_int(_OWNER, "max_output_characters", max_output_characters, 1)
        require_monty(_OWNER)
        self._excluded = frozenset(exclude)
        self._hides_tools = hide_tools
        self._interpreter = InterpreterPool(
            ProgramLimits(max_seconds, max_memory_bytes, max_calls, max_output_characters)
        )
        self._users = 0
        self.tool = build_program_tool(self._interpreter, self._is_callable, max_output_characters)

    def _is_callable(self, each: Tool[..., Any]) -> bool:
        return can_be_called(each, self._excluded)

    def select_tools(self, tools: Toolbox, _loaded: Sequence[str]) -> Toolbox:
        """Return the tools that the model is sent; `run_program` is described with the signatures of the others."""
        described = add_stubs_to_program_tool(tools, self._is_callable, with_prompts=self._hides_tools)
        if not self._hides_tools:
            return described
        return Toolbox([each for each in described if not self._is_callable(each)])

    @asynccontextmanager
    async def keep_open(self, _agent: object) -> AsyncGenerator[None]:
        """Keep the processes of the interpreter until the last agent or run that uses them ends."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                await THREAD_POOL.run(self._interpreter.close, (), {})
