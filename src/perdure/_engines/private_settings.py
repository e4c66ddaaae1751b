"""Settings of a private run, which an engine makes outside the conversation: its log, tools, limits and messages."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.run.run import Run
from perdure._core.run.spec import HistoryProcessor, PrivateRunTask, RunPlace
from perdure._core.run.stop import KEPT_FOR_ANSWER, Limits
from perdure._core.run.timer import RUN_TIMER
from perdure._core.run.turn import process_history
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values.message import Message, Text, ToolResult


def get_private_path(parent: Run, name: str) -> str:
    """Return the path under which the log stores the events of a private run: that of its parent run, and its name.

    A number is added if another run of the session has that path, such as one whose engine has chosen the same name.
    """
    wanted = path = f"{parent.path}/{name}" if parent.path else name
    count = 1
    while (known := parent.state.children.get(path)) is not None and not _is_path_of(parent, name, known):
        count += 1
        path = f"{wanted}.{count}"
    return path


def _is_path_of(parent: Run, name: str, known: State) -> bool:
    return known.run is None or known.run.run_id == get_private_run_id(parent, name)


def get_private_run_id(parent: Run, name: str) -> str:
    """Return the id of the private run of this name."""
    return f"{parent.run_id}/{name}"


def build_private_place(parent: Run, task: PrivateRunTask) -> RunPlace:
    """Build the `RunPlace` of a private run: it uses the log, watchers and redaction of its parent run."""
    return RunPlace(
        session_id=parent.session_id,
        run_id=get_private_run_id(parent, task.name),
        log=parent.log,
        fanout=parent.fanout,
        mailbox=parent.mailbox.create_child_mailbox(),
        can_wait=parent.can_wait,
        parent=parent,
        is_private=True,
        redaction=parent.redaction,
    )


def exclude_answer_and_handoff_tools(parent: Run, handoffs: Iterable[str]) -> Toolbox:
    """Return the tools of the parent run without its handoffs, and without the tool that gives the final answer."""
    left_out = {parent.spec.answer_tool, *handoffs}
    return Toolbox([each for each in parent.toolbox if each.name not in left_out])


def build_private_limits(parent: Run, task: PrivateRunTask, toolbox: Toolbox) -> Limits:
    """Build the limits of a private run: its turns, tools and time; the budgets of its parent apply too.

    Part of the time is kept for the answer, as are tokens and money: see `KEPT_FOR_ANSWER`.
    """
    limits, allowed = parent.limits, parent.limits.allowed_tools
    if allowed is not None:
        allowed = tuple([each for each in allowed if each in toolbox or each in parent.spec.spare_tools])
    return replace(
        limits,
        max_turns=task.max_turns,
        token_budget=None,
        max_cost_usd=None,
        timeout_seconds=_compute_private_seconds(parent),
        max_tool_calls=None,
        max_parallel_tools=task.max_parallel_tools or limits.max_parallel_tools,
        allowed_tools=allowed,
    )


def _compute_private_seconds(parent: Run) -> float | None:
    """Return the seconds that are left for private runs of a run; `None` if it has no time limit."""
    most, timer = parent.limits.timeout_seconds, parent.timers.get(RUN_TIMER)
    if most is None or timer is None:
        return None
    return max(0.001, timer.seconds_left - most * KEPT_FOR_ANSWER)


class ParentHistoryPrepender:
    """History processor that puts the conversation of the parent run before the messages of a private run.

    For a request without tools it sends tool calls and their results as text.
    """

    def __init__(
        self, conversation: Sequence[Message], processor: HistoryProcessor | None, *, keeps_tools: bool
    ) -> None:
        self._conversation = conversation
        self._processor = processor
        """The history processor of the agent, which is applied to all of them."""
        self._keeps_tools = keeps_tools

    async def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages to send."""
        joined: Sequence[Message] = [*self._conversation, *messages]
        if self._processor is not None:
            joined = await process_history(self._processor, joined)
        return joined if self._keeps_tools else describe_tool_calls(joined)


def describe_tool_calls(messages: Sequence[Message]) -> list[Message]:
    """Replace the tool calls and results in messages by text, for a request without tools.

    Several providers refuse a request that has calls in its messages and offers no tools.
    """
    return [_describe_calls(each) if each.tool_calls or each.role == "tool" else each for each in messages]


def _describe_calls(message: Message) -> Message:
    if message.role == "tool":
        texts = [f"[{each.name} returned ({each.status!s}): {each.text}]" for each in message.tool_results]
        return Message("user", (Text("\n".join(texts)),), origin="reminder", labels=_list_labels(message.tool_results))
    texts = [message.text] if message.text else []
    texts += [f"[called {each.name} with {each.arguments or '{}'}]" for each in message.tool_calls]
    return Message("assistant", (Text("\n".join(texts)),))


def _list_labels(results: Sequence[ToolResult]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([label for each in results for label in each.labels]))
