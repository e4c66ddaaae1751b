"""The interface to a running program that is spoken to in lines, such as an MCP server over pipes."""

from typing import Protocol


class LineProcess(Protocol):
    """Protocol of a running program that is spoken to in lines."""

    @property
    def error_text(self) -> str:
        """The end of what the program has written to its standard error."""
        ...

    async def read_line(self) -> bytes:
        """Return the next line, empty at the end. Raises `ValueError` for one that is too long."""
        ...

    async def write(self, data: bytes) -> None:
        """Write data. Raises `ConnectionError` when the program is gone."""
        ...

    async def close(self) -> None:
        """End the program and all that it started."""
        ...
