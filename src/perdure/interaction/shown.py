"""What a tool shows, and waits for nobody. Above: tools, by `context.display.push`. Below: `core.slot`.

Each kind is checked where it is made, and its fields are what a renderer is given.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final, cast

from perdure.core import check
from perdure.core.plain import to_jsonable
from perdure.core.slot import Showable

LARGEST_PICTURE: Final = 8 * 2**20
"""Bytes of a picture that is kept in the log; a larger one is better given by its address."""


class Words(Showable, frozen=True):
    """Plain text."""

    renderer = "text"

    text: str

    def __post_init__(self) -> None:
        check.text("Words", "text", self.text)


class Markdown(Showable, frozen=True):
    """Text with Markdown in it."""

    renderer = "markdown"

    text: str

    def __post_init__(self) -> None:
        check.text("Markdown", "text", self.text)


class Table(Showable, frozen=True):
    """Rows of values under the names of their columns."""

    renderer = "table"

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]] = ()
    """As many values in each as there are columns; anything that JSON can hold."""

    def __post_init__(self) -> None:
        if not _is_list(self.columns) or not self.columns or not all(isinstance(each, str) for each in self.columns):
            check.refuse("Table", "columns", self.columns, "give a list of names")
        if not _is_list(self.rows):
            check.refuse("Table", "rows", self.rows, "give a list of rows")
        for number, row in enumerate(self.rows):
            if not _is_list(row) or len(row) != len(self.columns):
                check.refuse("Table", f"rows[{number}]", row, f"give a list of {len(self.columns)} values")


class Picture(Showable, frozen=True):
    """An image: its bytes, or the address where it can be fetched."""

    renderer = "image"

    data: bytes = b""
    url: str = ""
    alt: str = ""
    """What is to be seen on it, for those who cannot."""
    media_type: str = "image/png"

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            check.refuse("Picture", "data", self.data, "give bytes")
        for name in ("url", "alt", "media_type"):
            check.text("Picture", name, getattr(self, name), filled=name == "media_type")
        if bool(self.data) == bool(self.url):
            check.refuse("Picture", "url", self.url, "give either its data or its url")
        if len(self.data) > LARGEST_PICTURE:
            check.refuse("Picture", "data", self.data[:8], f"more than {LARGEST_PICTURE:,} bytes: give its url instead")

    @property
    def input(self) -> Any:
        """The bytes as Base64."""
        fields = {"url": self.url, "alt": self.alt, "media_type": self.media_type}
        return {"data": base64.b64encode(self.data).decode(), **cast("dict[str, Any]", to_jsonable(fields))}


class Progress(Showable, frozen=True):
    """How far something is. `display.update` shows the next step in its place."""

    renderer = "progress"

    label: str
    done: float = 0
    total: float | None = None
    """What it comes to in the end; `None` when nobody knows."""

    def __post_init__(self) -> None:
        check.text("Progress", "label", self.label)
        check.number("Progress", "done", self.done)
        if self.total is not None:
            check.number("Progress", "total", self.total)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
