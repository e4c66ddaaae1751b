"""`ToolContext`: the services that a tool can use during a call, such as asking people, progress and stored values."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from perdure._core.log.redaction import StreamRedactor
from perdure._core.values import checks
from perdure._core.values.clock import new_id
from perdure._core.values.event import RESERVED_PREFIX, InboxAdded, ValueKept
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import to_jsonable, to_text
from perdure._core.values.message import ToolResult, merge_labels

from .slots import Answer, Askable, ToolDisplaySlots

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from perdure._core.permission.targets.path import PathTarget
    from perdure._core.permission.targets.url import UrlTarget

    from .run_of_call import CallInProgress, RunOfCall
    from .tool import Tool

    D = TypeVarWithDefault("D", default=Any)
else:
    D = TypeVar("D")

_progress_lock = threading.Lock()
"""Keeps the pieces of progress of several threads in order."""


class ToolContext(Generic[D]):
    """The services for one tool call: progress, questions, stored values. Passed to a parameter of this type."""

    __slots__ = (
        "_begin",
        "_call",
        "_progress",
        "_run",
        "call_id",
        "cancelled",
        "name",
        "question_count",
        "redact_secrets",
        "slot_count",
    )

    def __init__(
        self,
        run: "RunOfCall",
        call_id: str,
        name: str,
        begin: Callable[[], Awaitable[None]] | None = None,
        call: "CallInProgress | None" = None,
    ) -> None:
        self._run = run
        self._call = call
        self._begin = begin
        self._progress: StreamRedactor | None = None
        self.question_count = 0
        """The number of questions that this call has asked."""
        self.slot_count = 0
        """The number of slots that this call has opened."""
        self.redact_secrets: Callable[[Any], Any] | None = None
        """Redacts the secrets given to the tool from a value that it shows or stores; `None` when it was given none."""
        self.call_id = call_id
        """The id of the call that is being carried out."""
        self.name = name
        """The name of the tool that was called."""
        self.cancelled = False
        """Becomes true when the result is not needed any more. A plain function should check it now and then."""

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt at this call, by which a service can ignore repeats.

        Attempts after a crash have it too, also in another process that opens the session through another part of the
        store.
        """
        return self._run.idempotency_key(self.call_id)

    @property
    def has_effect(self) -> bool:
        """True if the call may have an effect from its first line on: its tool does not only read, nor ask first."""
        return self._call is not None and self._call.tool.effect != "read" and not self._call.tool.asks_first

    @property
    def fence(self) -> int:
        """The fence of this process: a number that grows whenever another process takes the session over.

        A service that keeps the highest fence it has seen for a session, and refuses calls with a lower one, is safe
        from a process that was stopped and replaced in the very moment before its call.
        """
        return self._run.log.lease.fence

    @property
    def target(self) -> Any:
        """The target of this call: the object that permission rules have matched, such as a `PathTarget`.

        Use it instead of the argument: what was checked is then what is used. `None` if the tool declares no target.
        Raises the error of the tool's `target` function.
        """
        return None if self._call is None else self._call.get_target()

    def may_show(self, path: "PathTarget | UrlTarget") -> bool:
        """Return False if a permission rule denies this path or URL to the tool, or asks about it: then it is left out.

        For tools that find files by themselves, such as a search in a folder, or that are redirected: rules have
        matched the folder, or the first URL, alone. What a rule asks about may be shown if that rule has asked about
        the call itself.
        """
        run, call, gate = self._run, self._call, self._run.gate
        if call is None or gate is None or not self.hides_paths:
            return True
        from perdure._core.permission.inherited import can_call_see_path
        from perdure._core.permission.request import PermissionRequest

        from .binding import build_call_binding  # at first use: few tools find files by themselves

        target = call.get_target()
        request = PermissionRequest(
            self.call_id,
            call.tool.name,
            call.tool.action or call.tool.name,
            to_text(call.checked_arguments) if target is None else str(target),
            {},
            "",
            required=False,
            session_id=run.session_id,
            run_id=run.run_id,
            typed_target=target,
            binding=build_call_binding(run, call.tool),
            labels=tuple(run.state.labels),
        )
        return can_call_see_path(gate, request, path)

    @property
    def hides_paths(self) -> bool:
        """False if no permission rule can hide a path from this tool: then `may_show` need not be called."""
        if self._run.gate is None:
            return False
        from perdure._core.permission.inherited import has_path_restrictions

        return has_path_restrictions(self._run.gate)

    def label_result(self, labels: Sequence[str]) -> None:
        """Add labels to the result of this call, whatever it becomes: also the text of an error has them."""
        if self._call is not None:
            self._call.labels = merge_labels(self._call.labels, labels)

    @property
    def is_approved(self) -> bool:
        """True if a permission gate has allowed exactly the arguments of this call."""
        return self._call is not None and self._call.frozen is not None

    @property
    def deps(self) -> D:
        """The dependencies given to the agent as `deps`."""
        return cast("D", self._run.deps)

    @property
    def session_id(self) -> str:
        """The id of the session of this call, in the store through which it is being run.

        Through `namespaced(store, "ann")` it is `k`, and through the whole store `ann/k`: see `full_session_id`.
        """
        return self._run.session_id

    @property
    def full_session_id(self) -> str:
        """The id of the session in the whole store, with the prefixes of `namespaced`: the same in every process.

        Use it where a tool stores things by session: two tenants may have sessions with the same `session_id`.
        """
        return self._run.full_session_id

    @property
    def run_id(self) -> str:
        """The id of the run of this call."""
        return self._run.run_id

    @property
    def turn(self) -> int:
        """The number of the current turn, from 1."""
        return self._run.state.turns

    @property
    def state(self) -> dict[str, Any]:
        """A dict shared by the tools of this run. It is not stored in the log."""
        return self._run.scratch

    @property
    def run(self) -> "RunOfCall":
        """The current `Run`, as far as tools may use it: its `state`, `messages`, `model`, `usage`, `cancel`, …"""
        return self._run

    def emit(self, data: Any) -> None:
        """Publish progress of this call to watchers. May be called from a thread.

        Text is treated as a piece of a longer one: where there are secrets to redact, a piece that may be the beginning
        of one is delayed until it is certain.
        """
        data, redactor = self.redact(data), self._run.redaction.redactor
        if type(data) is not str or redactor is None:
            self._run.publish_progress(self.call_id, self.name, data)
            return
        with _progress_lock:
            self._progress = self._progress or redactor.stream()
            if (clear := self._progress.feed(data)) or not data:
                self._run.publish_progress(self.call_id, self.name, clear)

    def flush_progress(self) -> None:
        """Emit progress text that was delayed. Called after the tool has returned."""
        if self._progress is not None:
            with _progress_lock:
                if rest := self._progress.end():
                    self._run.publish_progress(self.call_id, self.name, rest)

    def redact(self, data: Any) -> Any:
        """Return the data with the secrets that this tool was given replaced."""
        return data if self.redact_secrets is None else self.redact_secrets(data)

    async def record(self, event: Event) -> None:
        """Append an event of this run to the log. For your own kinds of events there is `Custom`."""
        if not isinstance(event, Event):
            checks.raise_config_error("record", "event", event, "give an event, such as Custom(…)")
        await self._run.emit(self._run.stamp_event(event))

    async def keep(self, name: str, value: Any) -> None:
        """Store a value in the log under a name, for later calls, runs and user interfaces, replacing an older one."""
        check_value_name("keep", name)
        await self.record(ValueKept(name, to_jsonable(self.redact(value))))

    def kept(self, name: str, default: Any = None) -> Any:
        """Return the value that was last stored under a name with `keep`."""
        values = self._run.state.kept_values
        return values[name] if name in values else values.get(self._run.redaction.redact_value(name), default)

    def result_of(self, call_id: str) -> ToolResult | None:
        """Return the full result of an earlier tool call in this conversation by its id, or `None`."""
        for message in reversed(self._run.state.messages):
            for result in message.tool_results:
                if result.call_id == call_id:
                    return result
        return None

    @property
    def display(self) -> ToolDisplaySlots:
        """The display slots of this call, through which it shows things to people."""
        return ToolDisplaySlots(self, self._call)

    async def ask(self, question: str | Askable[Answer], *, timeout_seconds: float | None = None) -> Answer:
        """Ask people a question (text, `Confirm(…)`, `Choice(…)`, `Form(…)`), and wait for the answer.

        The answer to a text is a text. Raises `NotAnswered` when no answer is given. See `ToolDisplaySlots.ask`.
        """
        return await self.display.ask(question, timeout_seconds=timeout_seconds)

    @property
    def can_restart(self) -> bool:
        """True if the call had no effect yet, so that it can be made again: the tool has `asks_first`, and `begin` was
        not called.
        """
        return self._begin is not None and self.call_id not in self._run.state.started_calls

    async def begin(self) -> None:
        """Declare that the call may have an effect from here on, in a tool marked `asks_first`; else does nothing."""
        if self._begin is not None:
            await self._begin()

    def confirm_lease_on_thread(self) -> None:
        """Raise `Fenced` if the session was taken over while a plain function waited for its thread.

        Called on that thread, right before the function. Asked again if the process was stopped before the thread went
        on with the answer.
        """
        while self.has_effect and not self._run.log.is_lease_confirmed:
            self._run.call_on_loop(self._run.log.confirm_lease)

    async def compact(self) -> bool:
        """Shorten the conversation by a summary for the model; `False` when the agent has no compaction."""
        return await self._run.compact("agent")

    async def add_to_inbox(self, tag: str, request: str, *, blocking: bool = False, wake: bool = False) -> str:
        """Add an inbox item: a result from outside that the agent waits for. Return the id by which it is resolved.

        The model receives the answer when it arrives, in this run or a later one. With `blocking`, the model is
        reminded that it cannot go on without it. With `wake`, the answer starts a run when none is active.
        """
        checks.require_text("add_to_inbox", "tag", tag, non_empty=True)
        checks.require_text("add_to_inbox", "request", request)
        item_id = new_id()
        await self._run.emit(InboxAdded(item_id, tag, request, blocking, wake, run_id=self.run_id, path=self._run.path))
        return item_id

    def add_tools(self, *tools: "Tool[..., Any] | str", scope: Literal["process", "run", "session"] = "run") -> None:
        """Offer the model more tools from the next turn on: until the run ends, or in later runs of the session too.

        They are there again after a question, a resume or a restart: each has to be one of the agent's `spare_tools`,
        whose name alone is enough, or a variable at the top level of a module. Any other raises `ConfigError`, unless
        the scope is `process`: then it is offered until the run ends or is resumed.
        """
        checks.require_one_of("add_tools", "scope", scope, ("process", "run", "session"))
        self._run.add_tools(tools, scope)


def check_value_name(call: str, name: str) -> None:
    """Raise `ConfigError` if the name of a stored value is empty, or has a prefix reserved for the runtime."""
    checks.require_text(call, "name", name, non_empty=True)
    if name.startswith(RESERVED_PREFIX):
        advice = f"names that begin with {RESERVED_PREFIX!r} are the runtime's: choose another"
        checks.raise_config_error(call, "name", name, advice)
