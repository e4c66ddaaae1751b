"""`perdure run --trace FILE`: collect a trace of the runs of a command, and write it to a file."""

# ruff: noqa: PTH100, PTH120 - pathlib would cost every start milliseconds
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import click

from perdure._cli.terminal.output import warn

if TYPE_CHECKING:
    from perdure._runtime.agent.extension import Extension


class RunTrace:
    """Collects a trace while it is entered as a context manager, and writes it to a file.

    Lines of JSON are written while runs are in progress; a page and a document at the end.
    """

    def __init__(self, path: str) -> None:
        """Open the file. Raises `UsageError` if it cannot be written."""
        from perdure._tracing.collect.tracer import Tracer

        self._path = path
        self._taps = ExitStack()
        is_whole = path.lower().endswith((".html", ".htm", ".json"))
        try:
            if is_whole:
                write_private_file(path, "")
            self._tracer = Tracer(write=None if is_whole else path)
        except OSError as error:
            folder = os.path.dirname(os.path.abspath(path))
            raise click.UsageError(
                f"the trace cannot be written to {path!r} ({error.strerror}); check the folder {folder!r}"
            ) from error

    @property
    def extension(self) -> "Extension":
        """The extension with which an agent is traced."""
        from perdure._tools.extensions import tracing

        return tracing(self._tracer)

    async def __aenter__(self) -> Self:
        """Begin to collect the raw requests of models, with keys masked, and the lines of their responses."""
        from perdure._io.http.tap import tap_models

        self._taps.enter_context(tap_models(self._tracer))
        return self

    async def __aexit__(self, *details: object) -> None:
        """Write what was collected. A file that cannot be written is a warning: the run itself is stored."""
        self._taps.close()
        try:
            if self._path.lower().endswith(".json"):
                import msgspec

                write_private_file(self._path, msgspec.json.encode(self._tracer.trace.to_json()).decode() + "\n")
            elif self._tracer.writer is None:
                write_private_file(self._path, self._tracer.trace.to_html())
            elif not self._tracer.close():
                warn(f"the trace in {self._path!r} is not complete: the disk is too slow")
        except OSError as error:
            warn(f"the trace cannot be written to {self._path!r}: {error.strerror}")
        if (writer := self._tracer.writer) is not None and (lost := writer.stats.dropped + writer.stats.failed):
            warn(f"the trace in {self._path!r} lacks {lost} entries, which could not be written")


def write_private_file(path: str, text: str) -> None:
    """Write a text to a file that only its owner can read: a trace contains the conversation."""
    from perdure._io.home.paths import open_private_file

    with open(path, "w", encoding="utf-8", opener=open_private_file) as file:
        file.write(text)
