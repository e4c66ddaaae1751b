"""Requests for permission to make a tool call, and the verdicts about them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from perdure._core.values import checks
from perdure._core.values.binding import NO_BINDING, ApprovalBinding
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError
from perdure._core.values.event import PermissionDecided, Scope
from perdure._core.values.provenance import has_private_and_untrusted_labels

from .targets.command import CommandTarget
from .targets.path import PathTarget
from .targets.patterns import Target, is_target_pattern
from .targets.text import TextTarget

SCOPES = get_args(Scope)

Covers: TypeAlias = str
"""The calls that an answer is for: `arguments` (exactly these), `target` (exactly this target), `tool` (every call of
the tool and action), or a pattern for the target, such as `/project/drafts/**`.
"""
WIDTHS = ("arguments", "target", "tool")


class PermissionRequest(Struct, frozen=True):
    """A request for permission to make one tool call, with these arguments."""

    call_id: str
    tool: str
    action: str
    """The kind of action; the tool's name when the tool does not define one."""
    target: str
    """The target as text: a path, an address, a command line; the arguments when the tool does not define one."""
    arguments: Mapping[str, Any]
    """A copy of the arguments that will run. Changing it changes nothing."""
    arguments_hash: str
    """The verdict is valid for these arguments only."""
    required: bool
    """True if the tool needs permission."""
    session_id: str = ""
    run_id: str = ""
    typed_target: Target | None = None
    """The target that rules match, and that the tool gets as `context.target`; `None` for plain text."""
    binding: ApprovalBinding = NO_BINDING
    """The identity of tool, agent, store, project and session that a remembered answer is bound to."""
    labels: tuple[str, ...] = ()
    """Labels of what the model had seen when it made the call, such as `untrusted`."""
    sources: tuple[str, ...] = ()
    """Where the text with these labels came from: `tool:fetch`, `file:notes.txt`, `import:…`."""
    sends: bool = False
    """True if the call can send data out of the machine."""
    earlier: tuple["PermissionRequest", ...] = ()
    """Earlier calls of the tool in this session, as far as the model still sees them, for a person who is asked."""

    @property
    def can_leak(self) -> bool:
        """True if the call can send out private data because untrusted text, which the model has seen, asks for it."""
        return self.sends and has_private_and_untrusted_labels(self.labels)

    @property
    def matched_target(self) -> Target:
        """The target that rules match."""
        return TextTarget(self.target) if self.typed_target is None else self.typed_target

    @property
    def note(self) -> str:
        """A note for the person who is asked, such as that there is no sandbox; or empty."""
        return self.typed_target.note if isinstance(self.typed_target, CommandTarget) else self.caution

    @property
    def caution(self) -> str:
        """The reason why a person is asked whatever the rules allow: other programs trust the file; or empty."""
        return self.typed_target.caution if isinstance(self.typed_target, PathTarget) else ""

    @property
    def reads_only(self) -> str:
        """The reason why a command needs no permission, such as "git status only reads"; else empty."""
        return self.typed_target.reads_only if isinstance(self.typed_target, CommandTarget) else ""

    @property
    def root_run_id(self) -> str:
        """The id of the session's own run, in which a subagent works."""
        return self.run_id.partition("/")[0]


class Verdict(Struct, frozen=True, metaclass=StrictOptionsMeta):
    """A decision about a tool call: allowed or not, the reason, and for how long and for what it is remembered."""

    allow: bool
    reason: str = ""
    """Shown to the model when denied."""
    scope: Scope = "once"
    """How long the decision is remembered: `once`, `run`, `session` or `forever` (in every session, as long as
    `Permissions.grants` keeps it; after that, in the session that was asked)."""
    covers: Covers = "arguments"
    """The calls for which it is remembered: `arguments`, `target`, `tool`, or a pattern for the target."""
    by: str = ""
    """Who decided, for the log and for `explain`."""

    def __post_init__(self) -> None:
        if not isinstance(self.allow, bool):
            message = f"Verdict(allow={self.allow!r}): give True or False"
            raise ConfigError(message)
        if self.scope not in SCOPES:
            message = f"Verdict(scope={self.scope!r}): the scopes are 'once', 'run', 'session' and 'forever'"
            raise ConfigError(message)
        if is_target_pattern(self.covers):
            force_setattr(self, "covers", self.covers.text)  # type: ignore[attr-defined]
        checks.require_text("Verdict", "reason", self.reason)
        checks.require_text("Verdict", "covers", self.covers, non_empty=True)
        checks.require_text("Verdict", "by", self.by)


EVERYTHING_ALLOWED = Verdict(allow=True, reason="everything is allowed")
NOTHING_ALLOWED = Verdict(allow=False, reason="permission denied: no tool may be used")
NO_ANSWER = Verdict(allow=False, reason="permission denied: no answer was given")
EXPIRED = Verdict(allow=False, reason="permission denied: the question expired without an answer")
NO_ONE_TO_ASK = Verdict(
    allow=False,
    reason="permission denied: this tool needs permission and there is no one to ask; do not try it again in this run",
)

TOOL_NEEDS_PERMISSION = "the tool needs permission"
"""Why a call is asked about if no rule is about it."""


def explain_no_one_to_ask(why: str) -> str:
    """Build the denial text for a call that needs approval, for the reason `why`, when there is no person to ask."""
    if why == TOOL_NEEDS_PERMISSION:
        return NO_ONE_TO_ASK.reason
    return f"permission denied: {why}, and there is no one to ask; do not try it again in this run"


def list_part_requests(request: PermissionRequest) -> list[PermissionRequest]:
    """Return one request for each simple command of a parsed command line; an empty list for any other target."""
    target = request.typed_target
    if not isinstance(target, CommandTarget):
        return []
    return [
        replace(
            request,
            target=str(part),
            typed_target=CommandTarget(
                str(part), part.argv, (part,), root=target.root, network=target.network, configures=target.configures
            ),
            required=request.required and not part.reads_only,
            sends=request.sends and not part.reads_only,
            arguments_hash=request.arguments_hash if len(target.parts) == 1 else "",
        )
        for part in target.parts
    ]


def build_permission_decided_event(
    request: PermissionRequest, verdict: Verdict, path: str = "", *, level: int = 0, at: float = 0.0
) -> PermissionDecided:
    """Build the event that stores a verdict about a tool call. It is stored before the call runs.

    `level` is the gate that asked: 0 for that of the session's own agent, 1 for that of an agent below, and so on.
    """
    lasts = verdict.scope != "once"
    target = request.matched_target
    return PermissionDecided(
        request.call_id,
        request.tool,
        request.action,
        request.target,
        request.arguments_hash,
        verdict.allow,
        verdict.reason,
        verdict.scope,
        tool_identity=request.binding.tool,
        by=verdict.by,
        covers=verdict.covers if lasts else "",
        target_kind=str(target.__struct_config__.tag) if lasts and request.typed_target is not None else "",
        binding=request.binding if lasts else None,
        level=level if lasts else 0,
        at=at if lasts else 0.0,
        run_id=request.run_id,
        path=path,
    )


def complete_verdicts(requests: Sequence[PermissionRequest], answers: Sequence[object]) -> list[Verdict]:
    """Return exactly one verdict for each request: a missing or invalid answer becomes a denial."""
    verdicts = [answer if isinstance(answer, Verdict) else NO_ANSWER for answer in answers[: len(requests)]]
    return verdicts + [NO_ANSWER] * (len(requests) - len(verdicts))
