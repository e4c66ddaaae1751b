"""Replay stored sessions as regression tests: `check_replay`, and a pytest fixture that does the same.

Any test can call `check_replay`. As a pytest plugin, this module provides a fixture that does the same; enable it in a
`conftest.py`:

    pytest_plugins = ["perdure.testing"]
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import msgspec
import pytest

from perdure._core.log.store import Store
from perdure._core.tools.tool import Tool
from perdure._core.values.error import ConfigError
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.overrides import Overrides
from perdure._runtime.transfer import export_session, read_document
from perdure._stores import open_store
from perdure._work.replay.differences import Divergence
from perdure._work.replay.replay import ReplayReport, Source, replay

RecordedSource: TypeAlias = "str | os.PathLike[str] | Source"
"""A recorded session: a file written by `record`, a document from `export_session`, or the entries of a log."""


class Diverged(AssertionError):
    """Raised when a replayed agent does not do what was recorded; the message shows the first difference."""

    def __init__(self, session_id: str, divergence: Divergence) -> None:
        super().__init__(f"session {session_id!r} does something else than recorded at {divergence}")
        self.divergence = divergence


async def check_replay(
    agent: Agent[Any], recorded: RecordedSource, *, added: Sequence[Tool[..., Any]] = (), **code: Unpack[Overrides]
) -> ReplayReport:
    """Replay a recorded session with this agent, offline; raise `Diverged` if it does anything other than recorded.

    Args:
        agent: The agent to test.
        recorded: A file, as a path; or a document, or entries.
        added: Tools that other tools added during a run.
        code: Options of recorded runs that no log can keep, such as `tools` and `permission`.
    """
    source = _read(recorded) if isinstance(recorded, str | os.PathLike) else recorded
    replayed = await replay(agent, source, added=added, **code)
    if replayed.divergence is not None:
        raise Diverged(replayed.session_id, replayed.divergence)
    return replayed


async def record(
    agent: Agent[Any],
    session_id: str,
    path: str | os.PathLike[str],
    *,
    store: Store | str | None = None,
    added: Sequence[Tool[..., Any]] = (),
    **code: Unpack[Overrides],
) -> ReplayReport:
    """Write a stored session to a file for `check_replay`, after checking that this agent can replay it.

    The file contains the instructions and tools as well, so that changes in them can be shown. It contains the whole
    conversation: check it for secrets before you share it.
    """
    kept = agent.store if store is None else open_store(store)
    replayed = await replay(agent, session_id, store=kept, added=added, **code)
    if replayed.divergence is not None:
        raise Diverged(session_id, replayed.divergence)
    _write(path, await export_session(kept, session_id, prefixes=replayed.prefixes))
    return replayed


def _write(path: str | os.PathLike[str], document: dict[str, Any]) -> None:
    """Write the document with one value per line, so that changes of the file can be reviewed."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def _read(path: str | os.PathLike[str]) -> Source:
    try:
        return read_document(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the recording {os.fspath(path)!r} cannot be read ({error.strerror}): give its path"
        ) from error


Replaying: TypeAlias = Callable[..., Awaitable[ReplayReport]]


@pytest.fixture
def replayed(request: pytest.FixtureRequest) -> Replaying:
    """Pytest fixture: `check_replay`, which replays a recorded session, with paths relative to the test file."""
    folder = request.path.parent

    async def check(agent: Agent[Any], recorded: RecordedSource, **given: Any) -> ReplayReport:
        found = folder / recorded if isinstance(recorded, str | os.PathLike) else recorded
        return await check_replay(agent, found, **given)

    return check
