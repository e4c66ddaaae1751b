"""Kept sessions as regression tests. Above: tests of agents. Below: `perdure.replaying.replay`.

Any test can call `check_replay`. As a plugin of pytest this module brings a fixture that does the same; say so in a
`conftest.py`:

    pytest_plugins = ["perdure.testing.replay"]
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import msgspec
import pytest

from perdure.agent import Agent
from perdure.core.error import ConfigError
from perdure.core.store import Store
from perdure.core.tool import Tool
from perdure.override import Overrides
from perdure.replaying.replay import Divergence, Replayed, Source, replay
from perdure.stores import open_store
from perdure.transfer import export_session, read_document

Recorded: TypeAlias = "str | os.PathLike[str] | Source"
"""A recording: the file that `record` has written, or what `replay` takes beside the id of a session."""


class Diverged(AssertionError):
    """An agent does something else than was recorded; the message shows what."""

    def __init__(self, session_id: str, divergence: Divergence) -> None:
        super().__init__(f"session {session_id!r} does something else than recorded at {divergence}")
        self.divergence = divergence


async def check_replay(
    agent: Agent[Any], recorded: Recorded, *, added: Sequence[Tool[..., Any]] = (), **code: Unpack[Overrides]
) -> Replayed:
    """Replay a recording with this agent; raises `Diverged` when it does something else.

    Args:
        agent: Who is to do it now.
        recorded: A file, as a path; or a document, or entries.
        added: Tools that were added by other tools while a run was going.
        code: What recorded runs were given of their own and no log can keep.
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
) -> Replayed:
    """Write a kept session to a file that `check_replay` can read, once this agent has been seen to do the same.

    The file holds the instructions and the tools as well, so that a change of them can be shown. Look for secrets in it
    before you hand it on: it holds all that was said.
    """
    kept = agent.store if store is None else open_store(store)
    replayed = await replay(agent, session_id, store=kept, added=added, **code)
    if replayed.divergence is not None:
        raise Diverged(session_id, replayed.divergence)
    _write(path, await export_session(kept, session_id, prefixes=replayed.prefixes))
    return replayed


def _write(path: str | os.PathLike[str], document: dict[str, Any]) -> None:
    """One value on a line, so that a change of the file can be read."""
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


Replaying: TypeAlias = Callable[..., Awaitable[Replayed]]


@pytest.fixture
def replayed(request: pytest.FixtureRequest) -> Replaying:
    """Checks a recording, as `check_replay` does; a path begins in the folder of the test."""
    folder = request.path.parent

    async def check(agent: Agent[Any], recorded: Recorded, **given: Any) -> Replayed:
        found = folder / recorded if isinstance(recorded, str | os.PathLike) else recorded
        return await check_replay(agent, found, **given)

    return check
