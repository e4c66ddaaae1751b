"""Execution of one tool call, from validated arguments to a result.

Everything that a tool can do (return any value, raise any error, hang, be cancelled from elsewhere) becomes a
`ToolResult`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from perdure._core.log.store import wait_despite_cancel
from perdure._core.run.timer import PausableTimer
from perdure._core.schema.parsing import FrozenArguments, arguments_hash, encode_canonical_arguments
from perdure._core.schema.problems import Invalid
from perdure._core.tools.arguments import build_checked_arguments, describe_adjusted_arguments, has_containers
from perdure._core.tools.context import ToolContext
from perdure._core.tools.results import (
    CONTAINED_ERRORS,
    RunSuspended,
    build_error_result,
    build_uncertain_result,
    describe_error,
)
from perdure._core.tools.tool import REPEATABLE_EFFECTS, Arguments, Tool, ToolOutput, sanitize_labels
from perdure._core.values import checks
from perdure._core.values.error import EffectNotStarted, EffectUnknown, ToolError
from perdure._core.values.event import ToolStarted
from perdure._core.values.jsonable import replace_surrogates, to_jsonable, to_text
from perdure._core.values.message import (
    RESULT_TYPES,
    ResultPart,
    Status,
    Text,
    ToolCall,
    ToolResult,
    merge_labels,
    sanitize_part,
)
from perdure._core.values.provenance import has_private_and_untrusted_labels

if TYPE_CHECKING:
    from perdure._core.permission.targets.patterns import Target
    from perdure._core.run.run import Run
    from perdure._core.tools.slots import Askable

GRACE_SECONDS = 2.0
"""Seconds that a cancelled tool has to end; then it is abandoned."""
_OK = Status.OK
RETRY_SECONDS = 0.1
"""Delay before a tool is retried; doubles each time."""


class PreparedCall(Struct, eq=False):
    """A tool call that is ready to run: its tool was found, and its arguments were parsed and validated."""

    call: ToolCall
    tool: Tool[..., Any]
    arguments: Arguments
    """Arguments of the call, as JSON values."""
    parsed_arguments: Arguments
    """The arguments validated and converted: what the function gets."""
    attempts: int = 0
    """Number of intents that were stored for this call before."""
    is_interrupted: bool = False
    """True if the run was cancelled while this ran."""
    is_suspended: bool = False
    """True if the call waits for an answer that cannot be had here; it starts again when there is one."""
    arguments_hash: str = ""
    """Hash of the arguments that a verdict is bound to; empty when no permission is needed."""
    frozen: FrozenArguments | None = None
    """The arguments that a verdict is bound to, as bytes; `None` when no permission is needed."""
    checked_arguments: Arguments | None = None
    """The arguments that a verdict is about, defaults included; `None` when no permission is needed."""
    target: "Target | None" = None
    """The target of the call, once it was computed."""
    labels: tuple[str, ...] = ()
    """Labels of the result, beside those of the tool and those that its value has."""
    program: ToolContext[Any] | None = None
    """The context of the call whose program makes this one; `None` for any other call."""

    def needs_permission(self, labels: "Collection[str]" = ()) -> bool:
        """Return True if the tool requires permission for this call, or it can send out what has these labels."""
        permission = self.tool.permission
        if self.tool.sends and has_private_and_untrusted_labels(labels):
            return True
        if isinstance(permission, bool):
            return permission
        try:
            needed = permission(self.tool.parameters.add_defaults(self.parsed_arguments))
            checks.require_plain_return_type("permission", permission, needed, bool, "True or False")
        except Exception:  # noqa: BLE001 - when the tool cannot decide, a person has to be asked
            return True
        return needed

    def freeze(self) -> None:
        """Fix the arguments, so that those a person approves are those that run. Raises `Invalid` if encoding breaks
        them.
        """
        before = self.parsed_arguments
        self.frozen = encode_canonical_arguments(self.arguments)
        self.arguments = self.frozen.thaw()
        self.parsed_arguments = self.tool.parameters.parse(self.frozen.thaw())
        checked = build_checked_arguments(self.tool, self.arguments, self.parsed_arguments)
        self.arguments_hash = arguments_hash(checked)
        if has_containers(checked):
            first = build_checked_arguments(self.tool, self.arguments, before)
            if checked != first:  # some default is made anew each time, such as a time
                checked = self._fix_generated_values(first, checked)
        self.checked_arguments = checked

    def _fix_generated_values(self, first: Arguments, second: Arguments) -> Arguments:
        """Make the function get the values that a default factory has made for the check; return these arguments.

        What an approval is bound to does not have them: they are others in the process that goes on.
        """
        written = {
            name: value if first.get(name) == second[name] else second[name] for name, value in self.arguments.items()
        }
        fixed = encode_canonical_arguments(written)
        try:
            parsed = self.tool.parameters.parse(fixed.thaw())
            if build_checked_arguments(self.tool, self.arguments, parsed) == second:
                self.frozen = fixed
        except Invalid:
            pass  # a type whose JSON is not what it is read from: its factory is called once more
        stable = {
            name: value if first.get(name) == value else self.arguments.get(name) for name, value in second.items()
        }
        self.arguments_hash = arguments_hash(stable)
        return second

    def take_arguments(self) -> Arguments:
        """Return the arguments for the function; after an approval, decoded from the approved bytes."""
        return self.parsed_arguments if self.frozen is None else self.tool.parameters.parse(self.frozen.thaw())

    def get_target(self) -> "Target | None":
        """Return the target of the call, computed once; `None` if the tool declares none."""
        if self.target is None and self.tool.target is not None:
            from perdure._core.permission.targets.patterns import (
                to_target,  # at first use: most tools declare no target
            )

            arguments = self.tool.parameters.add_defaults(self.take_arguments())
            self.target = to_target(self.tool.target(arguments), self.tool.target)
        return self.target

    async def ask_people(self, context: ToolContext[Any], asked: "Askable[Any]", timeout_seconds: float | None) -> Any:
        """Ask people a question of the call in a display slot, and return the answer."""
        from .questions import ask_slot_question  # at first use: few programs ask

        return await ask_slot_question(context, asked, timeout_seconds)

    def build_intent(self, run: "Run") -> ToolStarted:
        """Build the intent of the call: the `ToolStarted` event, stored before the call can have an effect."""
        return ToolStarted(
            self.call.call_id,
            self.tool.name,
            self.tool.effect,
            run.idempotency_key(self.call.call_id),
            self.arguments_hash,
            self.attempts + 1,
            "" if self.call.call_id in run.state.open_calls else self.call.arguments,
            self._describe_adjusted_arguments(),
            run_id=run.run_id,
            path=run.path,
        )

    def _describe_adjusted_arguments(self) -> str:
        """Return the arguments that are not as the model wrote them, as JSON; empty if there are none, or if the call
        only reads and needed no permission.
        """
        checked = self.checked_arguments
        if checked is None:
            if self.tool.effect == "read" or not self.tool.parameters.json_schema.get("properties"):
                return ""
            checked = build_checked_arguments(self.tool, self.arguments, self.parsed_arguments)
        if checked == self.arguments:
            return ""
        return describe_adjusted_arguments(self.arguments, checked)


async def run_call_with_deferred_intent(run: "Run", prepared: PreparedCall) -> ToolResult:
    """Run a call of a tool with `asks_first`: its intent is stored only when the tool calls `context.begin()`."""
    run.calls_without_intent.add(prepared.call.call_id)
    try:
        return await run_call(run, prepared)
    finally:
        run.calls_without_intent.discard(prepared.call.call_id)


async def run_call(run: "Run", prepared: PreparedCall) -> ToolResult:
    """Run a tool call, with retries if its tool allows them, and return its result; an error becomes a result too."""
    tries, call_id, tool = 0, prepared.call.call_id, prepared.tool
    has_effect = tool.effect != "read" and not tool.asks_first
    seconds = tool.timeout_seconds or run.options.limits.tool_timeout_seconds
    while True:
        tries += 1
        begin = _intent_storer(run, prepared) if tool.asks_first else None
        context: ToolContext[Any] = ToolContext(run, call_id, tool.name, begin, prepared)
        if has_effect and not run.log.is_lease_confirmed:
            await run.log.confirm_lease()
        run.entered_calls.add(call_id)
        try:
            if seconds is None and tool.abortable:
                arguments = prepared.parsed_arguments if prepared.frozen is None else prepared.take_arguments()
                return to_tool_result(prepared, await tool.call(arguments, context))
            return to_tool_result(prepared, await call_in_task(run, prepared, context, seconds))
        except RunSuspended:
            raise
        except _CallTimedOut as late:
            return build_uncertain_result(prepared.call, Status.TIMED_OUT, str(late), tool.effect)
        except asyncio.CancelledError as stop:
            if _is_run_cancelled(run, prepared):
                prepared.is_interrupted = True
                return build_uncertain_result(
                    prepared.call, Status.CANCELLED, _describe_cancel(run, "while this ran"), tool.effect
                )
            error: BaseException = stop
        except GeneratorExit as closing:
            if _current_task() is None:
                raise  # not caused by the tool: the whole run is being discarded
            error = closing
        except BaseException as raised:  # noqa: BLE001 - SystemExit, KeyboardInterrupt, groups: none may end the run
            error = raised
        finally:
            context.cancelled = True
            context.flush_progress()
        if tries > tool.retries or not _can_retry(tool, error) or not await _wait_to_retry(run, prepared, tries):
            return _build_failure(run, prepared, error)


async def _wait_to_retry(run: "Run", prepared: PreparedCall, tries: int) -> bool:
    """Wait before the next attempt at a tool call; return False if the run was cancelled meanwhile."""
    try:
        await run.clock.sleep(RETRY_SECONDS * 2 ** (tries - 1))
    except asyncio.CancelledError:
        prepared.is_interrupted = True
        return False
    return True


def _intent_storer(run: "Run", prepared: PreparedCall) -> Callable[[], Awaitable[None]]:
    """Return a function that stores the intent of a call when its effect begins, for a tool with `asks_first`."""

    async def begin() -> None:
        if prepared.call.call_id not in run.state.started_calls:
            await run.emit(prepared.build_intent(run), sync=prepared.tool.effect != "read")
        if prepared.tool.effect != "read":
            await run.log.confirm_lease()  # by the intent, unless the process was stopped, or this is another attempt

    return begin


async def call_in_task(run: "Run", prepared: PreparedCall, context: ToolContext[Any], seconds: float | None) -> Any:
    """Call a tool in a separate asyncio task, which can be cancelled; on timeout, stop waiting even if it goes on."""
    task = asyncio.ensure_future(_call_tool(prepared, context))
    await _wait_for_task(run, prepared, task, seconds)
    told_to_stop = not task.done()
    if told_to_stop:
        context.cancelled = True
        await _cancel_task(run, prepared, task)
    if task.done() and not task.cancelled():
        value, error = task.result()
        if error is None:
            return value
        if not told_to_stop or not isinstance(error, asyncio.CancelledError):
            raise error
    if not told_to_stop or (prepared.is_interrupted and prepared.tool.abortable):
        raise asyncio.CancelledError
    raise _CallTimedOut(f"Timed out after {seconds:g} seconds; it may still be running.")


async def _wait_for_task(
    run: "Run", prepared: PreparedCall, task: "asyncio.Future[Any]", seconds: float | None
) -> None:
    """Wait until the tool's task is done, its time is up, or the run is cancelled and the tool may be aborted."""
    expired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if seconds is not None:
        timer = PausableTimer(run.clock, seconds, lambda: expired.done() or expired.cancel())
        run.timers[prepared.call.call_id] = timer
    try:
        while not task.done() and not expired.done():
            try:
                await asyncio.wait((task, expired), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                prepared.is_interrupted = True
                if prepared.tool.abortable:
                    return
    finally:
        expired.cancel()
        if seconds is not None:
            run.timers.pop(prepared.call.call_id).cancel()


async def _cancel_task(run: "Run", prepared: PreparedCall, task: "asyncio.Future[Any]") -> None:
    """Cancel a task and wait for `GRACE_SECONDS`. A task that does not end is abandoned; its result is ignored."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task.add_done_callback(lambda _: ended.cancel())
    timer = run.clock.call_later(GRACE_SECONDS, ended.cancel)
    task.cancel()
    if await wait_despite_cancel((ended,)):
        prepared.is_interrupted = True
    timer.cancel()


async def _call_tool(prepared: PreparedCall, context: ToolContext[Any]) -> tuple[Any, BaseException | None]:
    """Call the tool, and return its value or its error. A task cancelled before it starts does not begin the call.

    Errors are returned, since asyncio would let some errors raised in a task end the event loop.
    """
    try:
        return await prepared.tool.call(prepared.take_arguments(), context), None
    except BaseException as error:  # noqa: BLE001 - see above
        return None, error


class _CallTimedOut(Exception):
    """Raised when the time limit of a call is over."""


def _is_run_cancelled(run: "Run", prepared: PreparedCall) -> bool:
    """Return True if a `CancelledError` was caused by the run, not by something inside the tool.

    The end of a program that makes the call, as by its time limit, counts as well.
    """
    if prepared.program is not None and prepared.program.cancelled:
        return True
    return prepared.is_interrupted or run.is_interrupted


def _describe_cancel(run: "Run", when: str) -> str:
    """Return why a tool call was cut off: the run was cancelled, or its process had to end and leaves it to another."""
    return f"{'The process had to end' if run.leaving_reason else 'The run was cancelled'} {when}."


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _can_retry(tool: Tool[..., Any], error: BaseException) -> bool:
    return isinstance(error, EffectNotStarted) or (tool.effect in REPEATABLE_EFFECTS and isinstance(error, Exception))


async def run_finish_hooks(run: "Run", prepared: PreparedCall, result: ToolResult) -> ToolResult:
    """Run the tool's `finish` hooks on a result, and add the tool's summary if it makes one."""
    tool = prepared.tool
    try:
        for hook in tool.finish:
            changed = hook(prepared.call, result)
            if inspect.isawaitable(changed):
                changed = await changed
            if changed is not None:
                checks.require_return_type("after", hook, changed, ToolResult, "a ToolResult, or nothing")
                labels = result.labels  # which no hook takes away
                result = sanitize_result(prepared.call, changed)
                result = msgspec.structs.replace(result, labels=merge_labels(labels, result.labels))
    except CONTAINED_ERRORS as error:  # a hook may hide something: when it fails, nothing is shown
        if isinstance(error, asyncio.CancelledError) and _is_run_cancelled(run, prepared):
            prepared.is_interrupted = True
            return build_uncertain_result(
                prepared.call, Status.CANCELLED, _describe_cancel(run, "when this had just finished"), tool.effect
            )
        run.report_error(error, f"a finish hook of {tool.name!r}")
        failed = build_error_result(
            prepared.call, f"the tool ran, but its result could not be processed: {describe_error(error)}"
        )
        return msgspec.structs.replace(failed, labels=result.labels)
    needs_summary = tool.summary is not None and not result.summary and not result.is_error
    return await add_result_summary(run, prepared, result) if needs_summary else result


async def add_result_summary(run: "Run", prepared: PreparedCall, result: ToolResult) -> ToolResult:
    """Add the summary that the tool makes of its result; if making it fails or is cancelled, add none."""
    try:
        made: Any = None if prepared.tool.summary is None else prepared.tool.summary(result)
        if inspect.isawaitable(made):
            made = await made
    except CONTAINED_ERRORS as error:  # it adds to the result: when it fails, the result is still whole
        if isinstance(error, asyncio.CancelledError) and _is_run_cancelled(run, prepared):
            prepared.is_interrupted = True
        else:
            run.report_error(error, f"the summary of {prepared.tool.name!r}")
        return result
    if made is None:
        return result
    return msgspec.structs.replace(result, summary=to_text(made))


# -- results -----------------------------------------------------------------------------------------------------------


def to_tool_result(prepared: PreparedCall, value: Any) -> ToolResult:
    """Convert the return value of a tool's function to a `ToolResult`."""
    call = prepared.call
    if type(value) is str:
        content = (Text(value if value.isascii() else replace_surrogates(value)),)
        return ToolResult(call.call_id, call.name, content, _OK, None, "", prepared.tool.terminate)
    if isinstance(value, ToolResult):
        return sanitize_result(call, value)
    if not isinstance(value, ToolOutput):
        return ToolResult(call.call_id, call.name, to_result_parts(value), terminate=prepared.tool.terminate)
    return ToolResult(
        call.call_id,
        call.name,
        to_result_parts(value.content),
        Status.ERROR if value.is_error else Status.OK,
        to_jsonable(value.render),
        to_text(value.summary),
        value.terminate is True or prepared.tool.terminate,
        labels=sanitize_labels(value.labels),
    )


def sanitize_result(call: ToolCall, result: ToolResult) -> ToolResult:
    """Convert a `ToolResult` that a tool or hook returned to one that can be stored."""
    content = to_result_parts(result.content) if result.content else ()
    try:
        status = Status(result.status)
    except ValueError:
        status = Status.ERROR
    render, summary, preview = to_jsonable(result.render), to_text(result.summary), to_text(result.preview)
    labels = sanitize_labels(result.labels)
    ended = result.terminate is True
    return ToolResult(call.call_id, call.name, content, status, render, summary, ended, preview, labels)


def add_tool_labels(prepared: PreparedCall, result: ToolResult) -> ToolResult:
    """Add the labels that a tool gives its results to a result, even if it is an error or partial."""
    return msgspec.structs.replace(result, labels=merge_labels(prepared.tool.labels, prepared.labels, result.labels))


def to_result_parts(value: Any) -> tuple[ResultPart, ...]:
    """Convert a tool's return value to message parts: parts are kept, any other value becomes text."""
    values = cast("Sequence[Any]", value if type(value) is list or type(value) is tuple else (value,))
    if values and all(isinstance(each, RESULT_TYPES) for each in values):
        parts = [sanitize_part(each) for each in values]
        if None not in parts:
            return tuple(cast("list[ResultPart]", parts))
    return (Text(to_text(value)),)


def _build_failure(run: "Run", prepared: PreparedCall, error: BaseException) -> ToolResult:
    if not isinstance(error, ToolError):
        run.report_error(error, f"tool {prepared.tool.name!r}")
    if isinstance(error, EffectUnknown):
        text = f"{describe_error(error).rstrip('.')}."
        return build_uncertain_result(prepared.call, Status.UNKNOWN, text, prepared.tool.effect)
    return build_error_result(prepared.call, describe_error(error))
