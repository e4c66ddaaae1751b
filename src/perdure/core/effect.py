"""One call, from validated arguments to a result. Above: `loop.py`. Below: `tool.py`.

Whatever a tool does (return anything, raise anything, hang, be cancelled by somebody else) becomes a `ToolResult`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from . import check
from .arguments import arguments_hash
from .error import NotStarted, ToolError
from .event import ToolStarted
from .message import RESULT_TYPES, ResultPart, Status, StopReason, Text, ToolCall, ToolResult, storable
from .permission import PermissionRequest
from .plain import clean, to_jsonable, to_text, words_of
from .repair import INTERRUPTED, NOT_STARTED
from .store import wait_through
from .tool import Arguments, Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from .run import Run

GRACE_SECONDS = 2.0
"""How long a tool may take to end once it was told to; then it is left behind."""
RETRY_SECONDS = 0.1
"""The wait before a tool is tried again; it doubles each time."""

FAILURES = (Exception, asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""What a hook or a gate may raise without ending the run. Not `GeneratorExit`: that throws the whole run away."""

MAY_HAVE_HAPPENED = "It may or may not have taken effect: check before repeating."


class Suspended(BaseException):
    """The run cannot go on before somebody answers, and nobody is here who could. No tool should catch it."""


class Job(Struct, eq=False):
    """A call on its way to its result."""

    call: ToolCall
    tool: Tool[..., Any]
    arguments: Arguments
    """As they will run, as JSON values."""
    given: Arguments
    """The same, validated and converted: what the function gets."""
    attempts: int = 0
    """Intents that were stored for this call before."""
    interrupted: bool = False
    """The run was cancelled while this ran."""
    suspended: bool = False
    """It waits for an answer that nobody here can give, and begins again when there is one."""
    arguments_hash: str = ""
    """What a verdict is bound to; empty when nobody has to be asked."""

    def needs_permission(self) -> bool:
        """Whether the tool says that somebody has to agree."""
        permission = self.tool.permission
        if isinstance(permission, bool):
            return permission
        try:
            return bool(permission(self.given))
        except Exception:  # noqa: BLE001 - when the tool cannot tell, somebody has to be asked
            return True

    def permission_request(self, session_id: str, run_id: str) -> PermissionRequest:
        """The question whether it may run, with these arguments and no others."""
        tool = self.tool
        self.arguments_hash = arguments_hash(self.arguments)
        required, target = self.needs_permission(), to_text(self.arguments)
        if tool.target is not None:
            try:
                target = clean(str(tool.target(self.given)))
            except Exception:  # noqa: BLE001 - when the tool cannot tell, somebody has to look at the arguments
                required = True
        return PermissionRequest(
            self.call.call_id,
            tool.name,
            tool.action or tool.name,
            target,
            self.arguments,
            self.arguments_hash,
            required,
            session_id,
            run_id,
        )

    def intent(self, run: "Run") -> ToolStarted:
        """What is stored before the effect."""
        return ToolStarted(
            self.call.call_id,
            self.tool.name,
            self.tool.effect,
            run.idempotency_key(self.call.call_id),
            self.arguments_hash,
            self.attempts + 1,
            run_id=run.run_id,
            path=run.path,
        )


async def attempt_without_intent(run: "Run", job: Job) -> ToolResult:
    """As `attempt`, for a tool that asks first: the log does not know that it is under way."""
    run.unlogged.add(job.call.call_id)
    try:
        return await attempt(run, job)
    finally:
        run.unlogged.discard(job.call.call_id)


async def attempt(run: "Run", job: Job) -> ToolResult:
    """Carry out a call, and again if its tool allows that. Whatever happens becomes a result."""
    tries = 0
    while True:
        tries += 1
        begin = _beginning(run, job) if job.tool.asks_first else None
        context: ToolContext[Any] = ToolContext(run, job.call.call_id, job.tool.name, begin)
        try:
            seconds = job.tool.timeout_seconds or run.limits.tool_timeout_seconds
            if seconds is None and job.tool.abortable:
                return result_of(job, await job.tool.call(job.given, context))
            return result_of(job, await supervised(run, job, context, seconds))
        except Suspended:
            raise
        except _TimedOut as late:
            return uncertain(job.call, Status.TIMED_OUT, str(late))
        except asyncio.CancelledError as stop:
            if _is_ours(run, job):
                job.interrupted = True
                return uncertain(job.call, Status.CANCELLED, "The run was cancelled while this ran.")
            error: BaseException = stop
        except GeneratorExit as closing:
            if _current_task() is None:
                raise  # not the tool's doing: the whole run is being thrown away
            error = closing
        except BaseException as raised:  # noqa: BLE001 - SystemExit, KeyboardInterrupt, groups: none may end the run
            error = raised
        finally:
            context.cancelled = True
            context.finish()
        if tries > job.tool.retries or not _may_run_again(job.tool, error):
            return _failed(run, job, error)
        try:
            await run.clock.sleep(RETRY_SECONDS * 2 ** (tries - 1))
        except asyncio.CancelledError:
            job.interrupted = True
            return _failed(run, job, error)  # what it told last is what is known of it


def _beginning(run: "Run", job: Job) -> Callable[[], Awaitable[None]]:
    """Stores the intent of a tool that asks first, when it says that it begins."""

    async def begin() -> None:
        if job.call.call_id not in run.state.started:
            await run.emit(job.intent(run), sync=job.tool.effect != "read")

    return begin


async def supervised(run: "Run", job: Job, context: ToolContext[Any], seconds: float | None) -> Any:
    """Call the tool in a task of its own, which a cancel can be made to wait for, and which can be left behind."""
    task = asyncio.ensure_future(_called(job, context))
    await _wait(run, job, task, seconds)
    told_to_stop = not task.done()
    if told_to_stop:
        context.cancelled = True
        await _tell_to_stop(run, job, task)
    if task.done() and not task.cancelled():
        value, error = task.result()
        if error is None:
            return value
        if not told_to_stop or not isinstance(error, asyncio.CancelledError):
            raise error
    if not told_to_stop or (job.interrupted and job.tool.abortable):
        raise asyncio.CancelledError
    raise _TimedOut(f"Timed out after {seconds:g} seconds; it may still be running.")


async def _wait(run: "Run", job: Job, task: "asyncio.Future[Any]", seconds: float | None) -> None:
    """Until the task is done, its time is up, or a cancel comes and the tool may be aborted."""
    expired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = None if seconds is None else run.clock.call_later(seconds, lambda: expired.done() or expired.cancel())
    try:
        while not task.done() and not expired.done():
            try:
                await asyncio.wait((task, expired), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                job.interrupted = True
                if job.tool.abortable:
                    return
    finally:
        expired.cancel()
        if timer is not None:
            timer.cancel()


async def _tell_to_stop(run: "Run", job: Job, task: "asyncio.Future[Any]") -> None:
    """Cancel a task and give it a moment. One that does not end is left behind: nobody will hear of it again."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task.add_done_callback(lambda _: ended.cancel())
    timer = run.clock.call_later(GRACE_SECONDS, ended.cancel)
    task.cancel()
    if await wait_through((ended,)):
        job.interrupted = True
    timer.cancel()


async def _called(job: Job, context: ToolContext[Any]) -> tuple[Any, BaseException | None]:
    """What the tool returned or raised. Nothing of it has begun when its task is cancelled before that has.

    Errors are handed over, since asyncio would let some that are raised in a task end the event loop.
    """
    try:
        return await job.tool.call(job.given, context), None
    except BaseException as error:  # noqa: BLE001 - see above
        return None, error


class _TimedOut(Exception):
    """The time of a call is up."""


def _is_ours(run: "Run", job: Job) -> bool:
    """Whether a `CancelledError` is the run's own, and not one that the tool has picked up somewhere."""
    return job.interrupted or run.interrupted


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _may_run_again(tool: Tool[..., Any], error: BaseException) -> bool:
    return isinstance(error, NotStarted) or (tool.effect in {"read", "idempotent"} and isinstance(error, Exception))


async def finish(run: "Run", job: Job, result: ToolResult) -> ToolResult:
    """Let the tool's hooks see the result, and make its short form."""
    tool = job.tool
    try:
        for hook in tool.finish:
            changed = hook(job.call, result)
            if inspect.isawaitable(changed):
                changed = await changed
            if changed is not None:
                check.returned("after", hook, changed, ToolResult, "a ToolResult, or nothing")
                result = made_by_hand(job.call, changed)
        if tool.summary is not None and not result.summary and not result.is_error:
            result = msgspec.structs.replace(result, summary=clean(str(tool.summary(result))))
    except FAILURES as error:  # a hook may be there to hide something: without it, nothing is shown
        if isinstance(error, asyncio.CancelledError) and _is_ours(run, job):
            job.interrupted = True
            return uncertain(job.call, Status.CANCELLED, "The run was cancelled when this had just finished.")
        run.report(error, f"a finish hook of {tool.name!r}")
        return error_result(job.call, f"the tool ran, but its result could not be processed: {describe(error)}")
    return result


# -- results -----------------------------------------------------------------------------------------------------------


def result_of(job: Job, value: Any) -> ToolResult:
    """Whatever a tool returned, as a result."""
    call = job.call
    if type(value) is str:
        return ToolResult(call.call_id, call.name, (Text(clean(value)),), terminate=job.tool.terminate)
    if isinstance(value, ToolResult):
        return made_by_hand(call, value)
    if not isinstance(value, ToolOutput):
        return ToolResult(call.call_id, call.name, content_of(value), terminate=job.tool.terminate)
    return ToolResult(
        call.call_id,
        call.name,
        content_of(value.content),
        Status.ERROR if value.is_error else Status.OK,
        to_jsonable(value.render),
        to_text(value.summary),
        value.terminate is True or job.tool.terminate,
    )


def made_by_hand(call: ToolCall, result: ToolResult) -> ToolResult:
    """A result that a tool or a hook has made, as it can be stored: nobody checks what is in it when it is made."""
    content = content_of(result.content) if result.content else ()
    try:
        status = Status(result.status)
    except ValueError:
        status = Status.ERROR
    render, summary, preview = to_jsonable(result.render), to_text(result.summary), to_text(result.preview)
    return ToolResult(call.call_id, call.name, content, status, render, summary, result.terminate is True, preview)


def content_of(value: Any) -> tuple[ResultPart, ...]:
    """Parts as they are; everything else as text."""
    values = cast("Sequence[Any]", value if type(value) is list or type(value) is tuple else (value,))
    if values and all(isinstance(each, RESULT_TYPES) for each in values):
        parts = [storable(each) for each in values]
        if None not in parts:
            return tuple(cast("list[ResultPart]", parts))
    return (Text(to_text(value)),)


def error_result(call: ToolCall, text: str) -> ToolResult:
    """The call failed, or could not even be made."""
    return ToolResult(call.call_id, call.name, (Text(clean(text)),), Status.ERROR)


def denied(call: ToolCall, reason: str) -> ToolResult:
    """The call may not be made."""
    return ToolResult(call.call_id, call.name, (Text(clean(reason) or "permission denied"),), Status.DENIED)


def uncertain(call: ToolCall, status: Status, text: str) -> ToolResult:
    """Nobody knows whether it happened."""
    return ToolResult(call.call_id, call.name, (Text(f"{text} {MAY_HAVE_HAPPENED}"),), status)


def unknown(call: ToolCall) -> ToolResult:
    """A crash came between the intent and the result."""
    return ToolResult(call.call_id, call.name, (Text(INTERRUPTED),), Status.UNKNOWN)


def not_started(call: ToolCall) -> ToolResult:
    """The run ended before this call's turn came."""
    return ToolResult(call.call_id, call.name, (Text(NOT_STARTED),), Status.CANCELLED_BEFORE_START)


def cut_off(call: ToolCall, stop: StopReason) -> ToolResult:
    """The reply broke off, so nobody knows what the call was meant to be."""
    if stop is StopReason.LENGTH:
        why = "by its length limit, so the arguments may be incomplete. Say less at once, or split the work."
    else:
        why = "by the provider's content filter, so the arguments may be incomplete."
    return error_result(call, f"This call was not made: the reply was cut off {why}")


def out_of_calls(call: ToolCall, most: int) -> ToolResult:
    """The run has made all the calls that it may."""
    return error_result(call, f"This call was not made: the run may make {most} calls, and has made them.")


def _failed(run: "Run", job: Job, error: BaseException) -> ToolResult:
    if not isinstance(error, ToolError):
        run.report(error, f"tool {job.tool.name!r}")
    return error_result(job.call, describe(error))


def describe(error: BaseException) -> str:
    """An error as the model is told about it."""
    if isinstance(error, asyncio.CancelledError):
        return "the tool was cancelled by something other than this run"
    kind = type(error).__name__
    text = words_of(error)
    if isinstance(error, ToolError):
        return text or kind
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        text = f"{text}: {'; '.join([describe(each) for each in group.exceptions])}"
    return f"{kind}: {text}" if text else kind
