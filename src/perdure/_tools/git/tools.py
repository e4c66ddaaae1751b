"""The tools `git_status`, `git_diff`, `git_log`, `git_show` and `git_commit`, over a `GitBackend`.

Each call becomes the words of one git command, which rules match as a `CommandTarget`; exactly these words are run. The
repository is that of the working folder: the model names no other.
"""

# ruff: noqa: ARG001 - the arguments of a call are in its command, which is its target

import re
from collections.abc import Awaitable, Sequence
from typing import Annotated, Any, Final, Protocol

from msgspec import Struct

from perdure._core.permission.targets.command import CommandPart, CommandTarget
from perdure._core.permission.targets.path import PathTarget
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Skip, Tool, tool
from perdure._core.tools.wrappers import before
from perdure._core.values.error import ToolError
from perdure._io.files.confined_folder import FileRefused
from perdure._tools.files.backend import FileReadBackend, call_backend_method, check_backend, may_show_path
from perdure._tools.origin import labelled_by_origin, record_write

MOST_BYTES: Final = 100 * 1024
"""The most bytes of output that a call returns."""
MOST_LISTED_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of names that are checked against permission rules before a call."""
MOST_DENIED: Final = 500
"""The most files that a call leaves out because rules deny them."""
EXCLUDED: Final = ":exclude:"
"""What a path begins with, among the words after `--`, that a backend leaves out of the output."""
_REVISION: Final = re.compile(r"[\w./@{}^~+=\-]{1,200}")
_MOST_LOGGED: Final = 200


class GitOutput(Struct, frozen=True):
    """The output of a git command: its text, exit code and error output."""

    text: str
    exit_code: int = 0
    problem: str = ""
    """What it wrote to standard error."""
    is_truncated: bool = False


class GitBackend(Protocol):
    """Protocol of a backend that runs git commands in a repository.

    It runs no code from the repository: no hooks, filters or pagers. If it has an attribute `risk`, text that says why
    a command is less safe than that, such as a missing sandbox, then every call needs permission, and the question has
    this text.
    """

    def run_git(
        self, arguments: Sequence[str], *, given: str = "", max_bytes: int = MOST_BYTES
    ) -> GitOutput | Awaitable[GitOutput]:
        """Run a git command of these tools, and return its output. Raises `ToolError` if it cannot be run.

        A path after `--` that begins with `:exclude:` is left out of what the command shows.
        """
        ...


def git_read_tools(files: FileReadBackend, git: GitBackend) -> list[Tool[..., Any]]:
    """Return the tools that read the repository: `git_status`, `git_diff`, `git_log` and `git_show`.

    They need permission if the backend has a `risk`, such as that there is no sandbox; it is in the question.
    """
    _check_backends("git_read_tools", files, git)
    risk = describe_risk(git)
    asks = bool(risk)

    @tool(effect="read", permission=asks, target=lambda _: _to_target(build_status_command(), risk))
    async def git_status(context: ToolContext[Any]) -> str:
        """Show the branch, and the files that have changed or are new."""
        return await _run(context, files, git, "(nothing has changed)")

    @tool(effect="read", permission=asks, target=lambda given: _to_target(build_diff_command(files, **given), risk))
    async def git_diff(
        context: ToolContext[Any],
        base: Annotated[str, "Compare with this branch or commit: what HEAD adds to it. Empty for uncommitted."] = "",
        path: Annotated[str, "Only this file or folder."] = ".",
        staged: Annotated[bool, "Only what is staged."] = False,  # noqa: FBT002 - a model gives it by name
    ) -> str:
        """Show changes as a diff: uncommitted ones, staged ones, or those of this branch since `base`."""
        return await _run(context, files, git, "(no changes)")

    @tool(effect="read", permission=asks, target=lambda given: _to_target(build_log_command(files, **given), risk))
    async def git_log(
        context: ToolContext[Any],
        base: Annotated[str, "Only commits that this branch or commit does not have."] = "",
        path: Annotated[str, "Only commits that touch this file or folder."] = ".",
        limit: Annotated[int, "The most commits."] = 20,
    ) -> str:
        """List commits, the latest first: hash, date, author, message."""
        return await _run(context, files, git, "(no commits)")

    @tool(effect="read", permission=asks, target=lambda given: _to_target(build_show_command(files, **given), risk))
    async def git_show(
        context: ToolContext[Any],
        revision: Annotated[str, "A commit, such as 'HEAD~1' or a hash."] = "HEAD",
        path: Annotated[str, "Only this file or folder."] = ".",
    ) -> str:
        """Show a commit: its message and its changes."""
        return await _run(context, files, git, "(no changes)")

    return [
        labelled_by_origin(git_status, files),
        *[
            before(labelled_by_origin(each, files), _refuse_early(make, files))
            for each, make in (
                (git_diff, build_diff_command),
                (git_log, build_log_command),
                (git_show, build_show_command),
            )
        ],
    ]


def git_commit_tool(files: FileReadBackend, git: GitBackend) -> Tool[..., Any]:
    """Return the tool `git_commit`, which commits named files and needs permission."""
    _check_backends("git_commit_tool", files, git)

    @tool(
        permission=True,
        action="commit",
        parallel=False,
        credentials=False,
        target=lambda given: _to_target(build_commit_command(files, **given), describe_risk(git)),
    )
    async def git_commit(
        message: Annotated[str, "The message: what changed, and why."],
        paths: Annotated[Sequence[str], "The files to commit; no others are."],
        context: ToolContext[Any],
    ) -> str:
        """Commit the named files as they are now, new and deleted ones included. Hooks do not run.

        Returns the branch, the id and the first line of the commit, and the number of files and lines that changed.
        """
        await context.begin()
        await record_write(context, files, f"{files.root}/.git")
        words = _words_of(context)
        named = words[words.index("--") + 1 :]
        added = await call_backend_method(context, git.run_git, ["add", "--all", "--", *named])
        _check_done(added)
        done = await call_backend_method(context, git.run_git, words[1:], given=message)
        if done.exit_code == 1 and not done.problem.strip():  # its text would list files that no tool lists
            raise ToolError("there is nothing to commit: the named files are as in the last commit")
        _check_done(done)
        return done.text.strip() or "committed"

    return before(labelled_by_origin(git_commit, files), _refuse_early(build_commit_command, files))


# -- the words of commands ---------------------------------------------------------------------------------------------


def build_status_command() -> list[str]:
    """Build the git command line of the tool `git_status`."""
    return ["git", "status", "--short", "--branch", "--untracked-files=normal", "--", "."]


def build_diff_command(files: FileReadBackend, base: str = "", path: str = ".", *, staged: bool = False) -> list[str]:
    """Build the git command line of the tool `git_diff`.

    Raises `ToolError` for an invalid revision, or a path outside the root.
    """
    if base and staged:
        raise ToolError("give base, or staged, not both")
    since = [f"{check_revision(base)}...HEAD"] if base else ["--cached"] if staged else ["HEAD"]
    return ["git", "diff", *since, "--", check_path(files, path)]


def build_log_command(files: FileReadBackend, base: str = "", path: str = ".", limit: int = 20) -> list[str]:
    """Build the git command line of the tool `git_log`.

    Raises `ToolError` for an invalid revision or limit, or a path outside the root.
    """
    if not 1 <= limit <= _MOST_LOGGED:
        raise ToolError(f"limit={limit}: give a number from 1 to {_MOST_LOGGED}")
    since = [f"{check_revision(base)}..HEAD"] if base else ["HEAD"]
    form = "--format=%h %ad %an%n    %s%n%w(0,4,4)%-b"
    return ["git", "log", f"--max-count={limit}", "--date=short", form, *since, "--", check_path(files, path)]


def build_show_command(files: FileReadBackend, revision: str = "HEAD", path: str = ".") -> list[str]:
    """Build the git command line of the tool `git_show`.

    Raises `ToolError` for an invalid revision, or a path outside the root.
    """
    return ["git", "show", "--date=short", f"{check_revision(revision)}^{{commit}}", "--", check_path(files, path)]


def build_commit_command(files: FileReadBackend, message: str, paths: Sequence[str]) -> list[str]:
    """Build the git command line of the tool `git_commit`.

    Raises `ToolError` if the message or the paths are missing, or for a path outside the root.
    """
    if not message.strip():
        raise ToolError("give a message for the commit")
    if not paths:
        raise ToolError("name the files to commit")
    return ["git", "commit", "--only", "--file=-", "--", *[check_path(files, each, write=True) for each in paths]]


def check_revision(revision: str) -> str:
    """Return a revision; raise `ToolError` if git could read it as an option, a file or a range."""
    if not _REVISION.fullmatch(revision) or revision.startswith(("-", ".", "/")) or ".." in revision:
        raise ToolError(f"{revision!r} is no revision: give a branch, a tag, a hash, or HEAD~1")
    return revision


def check_path(files: FileReadBackend, path: str, *, write: bool = False) -> str:
    """Return a path relative to the backend's root folder, for git; raise `ToolError` if access is not allowed.

    It also raises `ToolError` if the path is outside of that folder.

    The path is not resolved through links: git has the link itself, and not what it leads to.
    """
    import posixpath

    plain = posixpath.normpath(path.strip() or "\0")
    if plain.startswith(f"{files.root}/"):
        plain = plain[len(files.root) + 1 :]
    if "\0" in plain or plain.startswith(("/", "..")):
        raise ToolError(f"{path!r} cannot be used: it is outside the working folder {files.root!r}")
    try:
        target = files.resolve(plain)
        files.check(target, write=write)
        files.check(target, is_folder=True)
    except FileRefused as error:
        raise ToolError(f"{path!r} cannot be used: {error}") from error
    return plain


def _refuse_early(make: Any, files: FileReadBackend) -> Any:
    """Return a hook that answers a call whose command cannot be made, before a person is asked."""

    def check_arguments(_call: Any, arguments: dict[str, Any]) -> Skip | None:
        try:
            make(files, **arguments)
        except ToolError as error:
            return Skip(str(error))
        except Exception:  # noqa: BLE001 - arguments that are not valid: the validation says what is wrong
            return None
        return None

    return check_arguments


async def _run(context: ToolContext[Any], files: FileReadBackend, git: GitBackend, otherwise: str) -> str:
    """Run the command that is the target of a call, and return its output, without files that rules deny."""
    words = _words_of(context)[1:]
    hidden = await _list_denied_paths(context, files, git, words)
    done = await call_backend_method(context, git.run_git, [*words, *[f"{EXCLUDED}{each}" for each in hidden]])
    _check_done(done)
    note = f"\n[cut off after {MOST_BYTES:,} bytes: ask for one file or folder]" if done.is_truncated else ""
    return (done.text.rstrip() + note) or otherwise


async def _list_denied_paths(
    context: ToolContext[Any], files: FileReadBackend, git: GitBackend, words: Sequence[str]
) -> list[str]:
    """Return the paths of files that a git command would show, and that permission rules deny or ask about."""
    if words[0] not in {"diff", "show"} or not context.hides_paths:
        return []
    split = words.index("--")
    form = ["--format="] if words[0] == "show" else []
    listing = [*words[:split], "-z", "--name-only", "--no-renames", *form, *words[split:]]
    listed = await call_backend_method(context, git.run_git, listing, max_bytes=MOST_LISTED_BYTES)
    _check_done(listed)
    if listed.is_truncated:
        raise ToolError("there are too many files to check: ask for one file or folder")
    found = {each.strip("\n") for each in listed.text.split("\0")} - {""}
    denied = [each for each in sorted(found) if not _is_shown_by_any_name(context, files, each)]
    if len(denied) > MOST_DENIED:
        raise ToolError(f"more than {MOST_DENIED} of these files are denied: ask for one file or folder")
    return denied


def _is_shown_by_any_name(context: ToolContext[Any], files: FileReadBackend, path: str) -> bool:
    """Return True if no rule denies a path of the repository, neither as it is named nor where a link leads now."""
    return context.may_show(PathTarget(f"{files.root}/{path}", files.root)) and may_show_path(context, files, path)


def describe_risk(git: GitBackend) -> str:
    """Return what a person should know who is asked about a git command; empty if there is no risk."""
    return str(getattr(git, "risk", ""))


def _to_target(words: Sequence[str], risk: str) -> CommandTarget:
    """Return the target of a call: its words, of which it is known that they show no file that a rule denies."""
    checked = CommandTarget.of(words)
    return CommandTarget(checked.text, checked.argv, (CommandPart(checked.argv, reads=()),), note=risk)


def _words_of(context: ToolContext[Any]) -> list[str]:
    target = context.target
    if not isinstance(target, CommandTarget):
        raise ToolError("the call has no command")
    return [*target.argv]


def _check_done(done: GitOutput) -> None:
    if done.exit_code and not done.is_truncated:
        raise ToolError(f"git failed: {(done.problem or done.text).strip()[-500:] or f'exit code {done.exit_code}'}")


def _check_backends(owner: str, files: FileReadBackend, git: GitBackend) -> None:
    check_backend(owner, files, ("resolve", "check", "show"))
    check_backend(owner, git, ("run_git",))
