"""Content that a tool can show to people without asking for an answer: text, Markdown, tables, pictures, progress bars.

Each kind is validated where it is made, and its fields are the input of its renderer.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final, cast

from perdure.core import argument_checks
from perdure.core.display_slot import Showable
from perdure.core.jsonable import to_jsonable

LARGEST_PICTURE: Final = 8 * 2**20
"""The largest picture, in bytes, that is stored in the log; give a larger one by its URL."""


class PlainText(Showable, frozen=True):
    """Plain text that a tool shows to people."""

    renderer = "text"

    text: str

    def __post_init__(self) -> None:
        argument_checks.require_text("PlainText", "text", self.text)


class Markdown(Showable, frozen=True):
    """Markdown text that a tool shows to people."""

    renderer = "markdown"

    text: str

    def __post_init__(self) -> None:
        argument_checks.require_text("Markdown", "text", self.text)


class Table(Showable, frozen=True):
    """A table with named columns that a tool shows to people."""

    renderer = "table"

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]] = ()
    """As many JSON values in each as there are columns."""

    def __post_init__(self) -> None:
        if not _is_list(self.columns) or not self.columns or not all(isinstance(each, str) for each in self.columns):
            argument_checks.raise_config_error("Table", "columns", self.columns, "give a list of names")
        if not _is_list(self.rows):
            argument_checks.raise_config_error("Table", "rows", self.rows, "give a list of rows")
        for number, row in enumerate(self.rows):
            if not _is_list(row) or len(row) != len(self.columns):
                argument_checks.raise_config_error(
                    "Table", f"rows[{number}]", row, f"give a list of {len(self.columns)} values"
                )


class Picture(Showable, frozen=True):
    """An image that a tool shows to people: its bytes, or the URL where it can be fetched."""

    renderer = "image"

    data: bytes = b""
    url: str = ""
    alt: str = ""
    """A description of the image, for people who cannot see it."""
    media_type: str = "image/png"

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            argument_checks.raise_config_error("Picture", "data", self.data, "give bytes")
        for name in ("url", "alt", "media_type"):
            argument_checks.require_text("Picture", name, getattr(self, name), non_empty=name == "media_type")
        if bool(self.data) == bool(self.url):
            argument_checks.raise_config_error("Picture", "url", self.url, "give either its data or its url")
        if len(self.data) > LARGEST_PICTURE:
            argument_checks.raise_config_error(
                "Picture", "data", self.data[:8], f"more than {LARGEST_PICTURE:,} bytes: give its url instead"
            )

    @property
    def input(self) -> Any:
        """The fields as data for the screen, with the bytes of the image as Base64."""
        fields = {"url": self.url, "alt": self.alt, "media_type": self.media_type}
        return {"data": base64.b64encode(self.data).decode(), **cast("dict[str, Any]", to_jsonable(fields))}


class Progress(Showable, frozen=True):
    """A progress bar that a tool shows to people; `display.update` moves it."""

    renderer = "progress"

    label: str
    done: float = 0
    total: float | None = None
    """The value of `done` at the end; `None` when it is unknown."""

    def __post_init__(self) -> None:
        argument_checks.require_text("Progress", "label", self.label)
        argument_checks.require_number("Progress", "done", self.done)
        if self.total is not None:
            argument_checks.require_number("Progress", "total", self.total)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
