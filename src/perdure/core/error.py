"""Every error that Perdure raises on purpose. Above: everything. Below: nothing.

PerdureError
├ ConfigError            what the caller described cannot work (also a ValueError)
├ UsageError             the right thing, at the wrong time or place (also a RuntimeError)
│ ├ Unchangeable           a description does not change (also an AttributeError)
│ └ SessionBusy            somebody else is driving this session
├ ModelError             the model could not answer
│ ├ RateLimited            told to slow down           retryable
│ │ └ QuotaSpent             for longer than anybody would wait
│ ├ ProviderDown           unreachable or failing      retryable
│ ├ ReplyCutOff            the stream ended too early  retryable
│ ├ EmptyReply             an answer with nothing      retryable
│ ├ ContextOverflow        the request is too long
│ ├ AuthFailed             no key, or a wrong one
│ ├ BadRequest             the provider refused the request's form
│ ├ Refused                the provider refused its content
│ ├ InvalidOutput          the answer is not what was asked for
│ ├ OutOfBudget            a shared budget does not allow another request
│ └ AllModelsFailed        every model of a failover failed
├ ToolError              raised by a tool; its text goes back to the model
│ ├ NotStarted             raised by a tool that is sure that nothing has happened yet
│ └ NotAnswered            whoever a tool asked did not answer
└ StoreError             the log could not be written or read
  ├ Conflict               the log has grown since it was read
  ├ Fenced                 another driver has taken the session over
  ├ SessionNotFound
  ├ SessionExists
  ├ Unsupported            this store cannot do that
  └ UnreadableEntry        written by a newer version, and too important to skip
"""

from typing import ClassVar


class PerdureError(Exception):
    """The root: `except PerdureError` catches all that Perdure raises on purpose."""

    exit_code: ClassVar[int] = 1
    """What the command line exits with."""
    retryable: ClassVar[bool] = False
    """Whether the same thing may succeed when tried again."""


class ConfigError(PerdureError, ValueError):
    """What the caller described cannot work. Raised where it is described, not when it is run."""

    exit_code = 2


class UsageError(PerdureError, RuntimeError):
    """The right call at the wrong time or place."""

    exit_code = 2


class Unchangeable(UsageError, AttributeError):
    """A description does not change once it is made; there is a way to make another one."""


class SessionBusy(UsageError):
    """Somebody else is driving this session; the message says who."""

    exit_code = 75
    retryable = True


class ModelError(PerdureError):
    """The model could not answer. Foreign errors become one of these at the border, once."""

    exit_code = 69

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        """How long the provider asked us to wait, if it did."""


class RateLimited(ModelError):
    """The provider told us to slow down."""

    retryable = True


class QuotaSpent(RateLimited):
    """A quota is used up until tomorrow, or even longer: waiting is for somebody else to decide."""

    retryable = False


class ProviderDown(ModelError):
    """The provider cannot be reached, or fails on its side."""

    retryable = True


class ReplyCutOff(ModelError):
    """The stream ended before the model said that it had finished."""

    retryable = True


class EmptyReply(ModelError):
    """The model answered with neither text nor calls."""

    retryable = True


class ContextOverflow(ModelError):
    """The request does not fit the model's window."""

    def __init__(self, message: str, *, window_tokens: int | None = None) -> None:
        super().__init__(message)
        self.window_tokens = window_tokens
        """How large the window is, when the provider said so."""


class AuthFailed(ModelError):
    """The key is missing, wrong, or not allowed to do this."""


class BadRequest(ModelError):
    """The provider did not accept the form of the request."""


class Refused(ModelError):
    """The provider refused to answer what was asked."""


class InvalidOutput(ModelError):
    """The answer is not a value of the type that was asked for, and the model could not be brought to mend it."""


class OutOfBudget(ModelError):
    """What is left of a shared budget does not allow another request. The run ends with status `limit`."""


class AllModelsFailed(ModelError):
    """Every model of a `failover` failed; `attempts` has each name and its error, in order."""

    def __init__(self, attempts: tuple[tuple[str, Exception], ...]) -> None:
        tried = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in attempts)
        super().__init__(f"all {len(attempts)} models failed: {tried}")
        self.attempts = attempts

    def __reduce__(self) -> tuple[type["AllModelsFailed"], tuple[object, ...]]:
        """Made anew from its attempts, when it is copied or sent to another process."""
        return type(self), (self.attempts,)


class ToolError(PerdureError):
    """Raise it from a tool to tell the model what went wrong; any other exception works too, this one is not logged."""


class NotStarted(ToolError):
    """Raise it from a tool that is sure that nothing has happened: the call may then be tried again."""

    retryable = True


class NotAnswered(ToolError):
    """Whoever was asked did not answer: they declined, it is too late, or nobody is there."""


class StoreError(PerdureError):
    """The log could not be written or read. What was acknowledged before is still there."""

    exit_code = 74


class Conflict(StoreError):
    """The log has grown since this driver read it."""

    retryable = True


class Fenced(StoreError):
    """Another driver has taken this session over: stop, and open it again."""


class SessionNotFound(StoreError):
    """There is no session of this name in the store."""

    exit_code = 66


class SessionExists(StoreError):
    """There is a session of this name already; it has been left as it is."""

    exit_code = 73


class Unsupported(StoreError):
    """This store cannot do what was asked; another one can."""

    exit_code = 69


class UnreadableEntry(StoreError):
    """An entry that must be understood was written by a newer version: upgrade Perdure to drive this session."""
