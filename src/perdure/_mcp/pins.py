"""Pins of MCP servers: the tools as a person approved them; a tool that has changed since is switched off.

The first listing of a server is pinned as it is. Later, a tool whose texts, schemas or hints differ, and a tool that is
new, stay off until they are approved; a server that is reached in another way is off as a whole.
"""

# ruff: noqa: PTH100, PTH111, PTH116, PTH123 - pathlib would cost every start milliseconds
import contextlib
import difflib
import hashlib
import os
import shutil
import threading
from collections.abc import Collection, Generator, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from perdure._io.home.decision_file import DecisionFile
from perdure._io.home.runtime_files import trust_runtime_file

from .client.listing import ListedTool, clean_text
from .settings import McpServer

_LOADER_VARIABLES: Final = ("LD_", "DYLD_", "NODE_", "PYTHON", "PATH", "BASH_ENV", "PERL5", "RUBY")
"""Beginnings of the names of variables that change which code a program runs: their values are a part of a pin."""


class ToolPin(Struct, frozen=True):
    """Tool of an MCP server as it was approved: the hash, and the texts that were hashed, to show what has changed."""

    digest: str
    texts: dict[str, Any]


class ServerPin(Struct, frozen=True):
    """MCP server as it was approved: its command or URL, and its tools by their names at the server."""

    identity: dict[str, Any]
    tools: dict[str, ToolPin] = {}


class ToolChange(Struct, frozen=True):
    """Difference between an MCP tool, or its server, and the approved pin; it is off until a person approves it."""

    server: str
    tool: str
    """The tool's own name; empty for the server as a whole."""
    kind: Literal["changed", "new", "reached_differently"]
    difference: str
    """Lines that begin with `-` (agreed) and `+` (now)."""


class PinFile:
    """File with the pins (approved states) of MCP servers; without a path, pins last as long as this process.

    A link is refused.
    """

    def __init__(self, path: "str | os.PathLike[str] | None" = None) -> None:
        self.path: str | None = None if path is None else os.path.abspath(os.path.expanduser(os.fspath(path)))
        """The file."""
        self._pins: dict[str, ServerPin] = {}
        """The pins, if there is no file."""
        self._changing = threading.Lock()
        self._file = None
        if self.path is not None:
            self._file = DecisionFile(self.path, "the pin file of MCP servers", _decode_pins)
            trust_runtime_file(self, self.path, "file")

    def load_pins(self) -> dict[str, ServerPin]:
        """Return the pins by server. Raises `ConfigError` if the file is damaged, or others can write to it."""
        return self._pins if self._file is None else self._file.load()

    def find_changes(self, server: McpServer, tools: Sequence[ListedTool]) -> list[ToolChange]:
        """Return the differences between a server's tools and its pin; a server without a pin is pinned as it is."""
        identity = build_server_identity(server)
        pin = self.load_pins().get(server.name) or self._pin_first_listing(server, tools)
        if pin.identity != identity:
            return [ToolChange(server.name, "", "reached_differently", _diff(pin.identity, identity))]
        changes: list[ToolChange] = []
        for tool in tools:
            agreed = pin.tools.get(tool.name)
            if agreed is None:
                changes.append(ToolChange(server.name, tool.name, "new", _diff({}, tool.pinned_texts)))
            elif agreed.digest != hash_tool(tool):
                changes.append(ToolChange(server.name, tool.name, "changed", _diff(agreed.texts, tool.pinned_texts)))
        return changes

    def approve(self, server: McpServer, tools: Sequence[ListedTool], names: Collection[str] | None = None) -> None:
        """Approve these tools as they are now, or only the named ones, and the server's command or URL; store the pin.

        A server that is reached differently begins anew: what was agreed to before does not count.
        """
        identity = build_server_identity(server)
        agreed = _pin_tools([each for each in tools if names is None or each.name in names])
        with self._change_pins() as pins:
            before = pins.get(server.name)
            kept = before.tools if before is not None and before.identity == identity else {}
            pins[server.name] = ServerPin(identity, {**kept, **agreed})

    def forget(self, server: str) -> bool:
        """Delete the pin of a server, so that its next list of tools is pinned as it is; False if it has none."""
        with self._change_pins() as pins:
            return pins.pop(server, None) is not None

    def _pin_first_listing(self, server: McpServer, tools: Sequence[ListedTool]) -> ServerPin:
        """Pin a server as it is, unless another process has done so meanwhile; return its pin."""
        with self._change_pins() as pins:
            return pins.setdefault(server.name, ServerPin(build_server_identity(server), _pin_tools(tools)))

    @contextlib.contextmanager
    def _change_pins(self) -> Generator[dict[str, ServerPin]]:
        """Let the block change the pins, and store them; no other thread or process changes them meanwhile.

        Raises `ConfigError` if they cannot be stored.
        """
        with self._changing if self._file is None else self._file.lock():
            before = self.load_pins()
            pins = dict(before)
            yield pins
            if pins == before:
                return
            if self._file is None:
                self._pins = pins
            else:
                self._file.replace(msgspec.json.format(msgspec.json.encode(pins), indent=2) + b"\n")


def _decode_pins(content: bytes) -> dict[str, ServerPin]:
    return msgspec.json.decode(content, type=dict[str, ServerPin]) if content else {}


def _pin_tools(tools: Sequence[ListedTool]) -> dict[str, ToolPin]:
    return {each.name: ToolPin(hash_tool(each), each.pinned_texts) for each in tools}


def build_server_identity(server: McpServer) -> dict[str, Any]:
    """Return the settings that identify a server in its pin: the URL; or the command, and a hash of its program.

    Of other environment variables only the names are a part of it, and of headers nothing: their values may be secrets,
    and are replaced from time to time.
    """
    if server.transport != "stdio":
        return {"transport": server.transport, "url": server.url}
    loaded = {name: value for name, value in server.env.items() if name.upper().startswith(_LOADER_VARIABLES)}
    program = shutil.which(server.command, path=server.env.get("PATH")) or server.command
    return {
        "transport": "stdio",
        "command": server.command,
        "args": list(server.args),
        "cwd": server.cwd,
        "env": sorted(server.env),
        "loaded": dict(sorted(loaded.items())),
        "program": os.path.realpath(program),
        "program_digest": _hash_program(os.path.realpath(program)),
    }


_program_digests: dict[tuple[str, int, int, int], str] = {}
"""Digests of programs by path, inode, size and time of change: an interpreter has a hundred megabytes."""


def _hash_program(path: str) -> str:
    """Return the SHA-256 of a program; empty if it cannot be read."""
    try:
        found = os.stat(path)
        key = (path, found.st_ino, found.st_size, found.st_mtime_ns)
        if key not in _program_digests:
            with open(path, "rb") as file:
                _program_digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return _program_digests[key]
    except OSError:
        return ""


def hash_tool(tool: ListedTool) -> str:
    """Return the SHA-256 of all texts, schemas and hints of an MCP tool that a person approves."""
    return hashlib.sha256(msgspec.json.encode(tool.pinned_texts, order="deterministic")).hexdigest()


def _diff(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return the lines that differ between two values."""
    changed = list(difflib.unified_diff(_to_lines(before), _to_lines(after), n=0, lineterm=""))[2:]
    return "\n".join([each for each in changed if not each.startswith("@@")])


def _to_lines(value: dict[str, Any]) -> list[str]:
    if not value:
        return []
    text = msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2)
    return [clean_text(each) for each in text.decode().splitlines()]
