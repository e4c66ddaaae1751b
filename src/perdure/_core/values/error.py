"""The exception classes of Perdure.

PerdureError
├ ConfigError            an invalid option or argument (also a ValueError)
├ UsageError             a valid call at the wrong time or place (also a RuntimeError)
│ ├ Unchangeable           an attribute of an immutable object was set (also an AttributeError)
│ ├ LimitExceeded          a limit of the run forbids another request to the model
│ ├ SessionBusy            another process or task is driving this session
│ └ ShuttingDown           this process was asked to end, and begins no more runs
├ ModelError             the model could not answer
│ ├ RateLimited            rate limit reached          retryable
│ │ └ QuotaSpent             a quota is used up, for hours or days
│ ├ ProviderDown           unreachable or failing      retryable
│ ├ ReplyCutOff            the stream ended too early  retryable
│ ├ EmptyReply             neither text nor calls      retryable
│ ├ ContextOverflow        the request is too long
│ ├ AuthFailed             no key, or a wrong one
│ ├ BadRequest             the provider rejected the request's form
│ ├ ContentRefused         the provider refused its content
│ ├ InvalidOutput          the answer does not match the requested type
│ ├ OutOfBudget            a shared budget does not allow another request
│ └ AllModelsFailed        every model of a failover failed
├ MiddlewareFailed       a middleware raised an error of its own
├ ToolError              raised by a tool; its text goes back to the model
│ ├ EffectNotStarted       raised by a tool that is sure that nothing has happened yet
│ ├ EffectUnknown          raised by a tool that cannot know if something has happened
│ └ NotAnswered            a question of a tool was not answered
└ StoreError             the log could not be written or read
  ├ Conflict               the log has grown since it was read
  ├ Fenced                 another driver has taken the session over
  ├ SessionNotFound
  ├ SessionExists
  ├ UnsupportedByStore     this store does not support the operation
  └ EntryTooNew            written by a newer version, and too important to skip
"""

from typing import ClassVar


class PerdureError(Exception):
    """Base class of every error that Perdure raises on purpose."""

    exit_code: ClassVar[int] = 1
    """The exit code of the command line after this error."""
    retryable: ClassVar[bool] = False
    """True if the same operation may succeed when tried again."""


class ConfigError(PerdureError, ValueError):
    """An invalid option or argument. Raised where it is given, not later when it is used."""

    exit_code = 2


class UsageError(PerdureError, RuntimeError):
    """A method was called at the wrong time or place, such as inside a tool; its arguments are valid."""

    exit_code = 2


class Unchangeable(UsageError, AttributeError):
    """An attribute of an immutable object was set; the message names the way to make a changed copy."""


class LimitExceeded(UsageError):
    """A limit of the run forbids another request to the model. Unless its engine catches it, the run ends as `limit`.

    It is no `ModelError`: neither a retry nor another model gets past it.
    """

    def __init__(self, limit: str) -> None:
        super().__init__(f"the run has reached its limit {limit}: it cannot ask the model again")
        self.limit = limit
        """The name of the limit: `max_turns`, `token_budget`, `max_cost`, `max_tool_calls`."""

    def __reduce__(self) -> tuple[type["LimitExceeded"], tuple[object, ...]]:
        """Rebuild the error from the name of its limit when it is copied or pickled."""
        return type(self), (self.limit,)


class SessionBusy(UsageError):
    """Another process or task is running this session; the message names it."""

    exit_code = 75
    retryable = True


class ShuttingDown(UsageError):
    """This process is shutting down and starts no more runs; nothing was stored.

    Send the request to the next process.
    """

    exit_code = 75
    retryable = True


class ModelError(PerdureError):
    """Base class of the errors with which a model, or its provider, fails to answer.

    Errors of other libraries are converted to one of these, once, where they occur.
    """

    exit_code = 69

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        """The wait that the provider asked for, if any."""


class RateLimited(ModelError):
    """The provider's rate limit was reached."""

    retryable = True


class QuotaSpent(RateLimited):
    """A quota is used up until tomorrow, or longer. The request is not retried: the caller decides whether to wait."""

    retryable = False


class ProviderDown(ModelError):
    """The provider cannot be reached, or fails on its side."""

    retryable = True


class ReplyCutOff(ModelError):
    """The stream of a model's reply ended before the reply was complete."""

    retryable = True


class EmptyReply(ModelError):
    """The model answered with neither text nor calls."""

    retryable = True


class ContextOverflow(ModelError):
    """The request does not fit the model's context window."""

    def __init__(self, message: str, *, window_tokens: int | None = None) -> None:
        super().__init__(message)
        self.window_tokens = window_tokens
        """The size of the window, when the provider reported it."""


class AuthFailed(ModelError):
    """The provider rejected the API key: it is missing, wrong, or not allowed to do this."""


class BadRequest(ModelError):
    """The provider rejected the request as malformed."""

    is_unknown_model: bool = False
    """True if there is no such model, or no API at this address: every request to it fails alike."""


class ContentRefused(ModelError):
    """The provider refused to answer because of the content of the request, such as a content filter."""


class InvalidOutput(ModelError):
    """The model's answer is not a valid value of the requested output type, and the model did not correct it."""


class OutOfBudget(ModelError):
    """A shared budget has too little left for another request. The run ends with status `limit`."""


class AllModelsFailed(ModelError):
    """Every model of a `failover` failed; `attempts` has each name and its error, in order."""

    def __init__(self, attempts: tuple[tuple[str, Exception], ...]) -> None:
        tried = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in attempts)
        super().__init__(f"all {len(attempts)} models failed: {tried}")
        self.attempts = attempts

    def __reduce__(self) -> tuple[type["AllModelsFailed"], tuple[object, ...]]:
        """Rebuild the error from its attempts when it is copied or pickled."""
        return type(self), (self.attempts,)


def is_transient(error: Exception) -> bool:
    """Return True if a request that failed with this error may succeed when it is sent again.

    Models of other authors raise errors of the standard library for a broken connection.
    """
    return error.retryable if isinstance(error, PerdureError) else isinstance(error, (ConnectionError, TimeoutError))


class MiddlewareFailed(PerdureError):
    """A middleware function raised an error, which is the cause of this one."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the middleware {name!r} failed {problem}")
        self.name = name
        """Name of the middleware."""
        self.problem = problem
        """Where it failed, and the error as text."""

    def __reduce__(self) -> tuple[type["MiddlewareFailed"], tuple[str, str]]:
        """Rebuild the error from its parts when it is copied or pickled."""
        return type(self), (self.name, self.problem)


class ToolError(PerdureError):
    """Error for tools to raise: the model is sent its message. Any other exception works too, but is logged."""


class EffectNotStarted(ToolError):
    """Error for a tool to raise if it is certain that its call had no effect: the call may safely be tried again."""

    retryable = True


class EffectUnknown(ToolError):
    """Error for a tool to raise if it cannot be known whether the call had its effect: its result is *unknown*.

    Such as for a request that was sent, and whose answer was lost.
    """


class NotAnswered(ToolError):
    """A question got no answer: it was declined, it has expired, or there is no person to ask."""


class StoreError(PerdureError):
    """The log of a session could not be written or read. Entries stored before are still there."""

    exit_code = 74


class Conflict(StoreError):
    """The log of a session has grown since this process read it, so that its append was rejected."""

    retryable = True


class Fenced(StoreError):
    """Another process has taken over the session, so that this process can no longer append to its log."""


class SessionNotFound(StoreError):
    """There is no session of this name in the store."""

    exit_code = 66


class SessionExists(StoreError):
    """There is a session of this name already; it was not changed."""

    exit_code = 73


class UnsupportedByStore(StoreError):
    """The store does not support the requested operation."""

    exit_code = 69


class EntryTooNew(StoreError):
    """The log has an entry that only a newer Perdure can read, and that must not be skipped.

    Upgrade to run the session.
    """
