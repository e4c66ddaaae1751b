"""What tools show: checked where it is made, and given to a renderer as JSON values."""

import base64

import pytest

from perdure import ConfigError
from perdure._people.kinds import LARGEST_PICTURE
from perdure.people import Markdown, Picture, PlainText, Progress, Table


@pytest.mark.parametrize(
    ("shown", "renderer", "data"),
    [
        (PlainText("hello"), "text", {"text": "hello"}),
        (Markdown("# hello"), "markdown", {"text": "# hello"}),
        (
            Table(["a", "b"], [[1, "x"], [None, True]]),
            "table",
            {"columns": ["a", "b"], "rows": [[1, "x"], [None, True]]},
        ),
        (Table(("a",)), "table", {"columns": ["a"], "rows": []}),
        (Progress("copying", 3, 10), "progress", {"label": "copying", "done": 3, "total": 10}),
        (Progress("copying"), "progress", {"label": "copying", "done": 0, "total": None}),
        (
            Picture(b"\x89PNG", alt="a cat"),
            "image",
            {"data": base64.b64encode(b"\x89PNG").decode(), "url": "", "alt": "a cat", "media_type": "image/png"},
        ),
        (
            Picture(url="https://example.org/cat.jpg", media_type="image/jpeg"),
            "image",
            {"data": "", "url": "https://example.org/cat.jpg", "alt": "", "media_type": "image/jpeg"},
        ),
    ],
)
def test_a_renderer_is_given_the_fields_as_json_values(shown, renderer, data):
    assert (shown.shown_as, shown.input) == (renderer, data)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: PlainText(5), "PlainText(text=5): give text"),  # type: ignore[arg-type]
        (lambda: Markdown(None), "Markdown(text=None): give text"),  # type: ignore[arg-type]
        (lambda: Table("abc"), "Table(columns='abc'): give a list of names"),
        (lambda: Table([]), "Table(columns=[]): give a list of names"),
        (lambda: Table([1]), "Table(columns=[1]): give a list of names"),  # type: ignore[list-item]
        (lambda: Table(["a"], 5), "Table(rows=5): give a list of rows"),  # type: ignore[arg-type]
        (lambda: Table(["a"], [[1], [1, 2]]), "Table(rows[1]=[1, 2]): give a list of 1 values"),
        (lambda: Table(["a"], ["x"]), "Table(rows[0]='x'): give a list of 1 values"),
        (lambda: Progress(5), "Progress(label=5): give text"),  # type: ignore[arg-type]
        (lambda: Progress("x", -1), "Progress(done=-1): give a number from 0 on"),
        (lambda: Progress("x", 1, float("nan")), "Progress(total=nan): give a number from 0 on"),
        (Picture, "Picture(url=''): give either its data or its url"),
        (lambda: Picture(b"x", "https://example.org"), "give either its data or its url"),
        (lambda: Picture("x"), "Picture(data='x'): give bytes"),  # type: ignore[arg-type]
        (lambda: Picture(b"x", media_type=""), "Picture(media_type=''): give"),
        (lambda: Picture(b"x", url=1), "Picture(url=1): give text"),  # type: ignore[arg-type]
        (lambda: Table(b"a"), "Table(columns=b'a'): give a list of names"),  # type: ignore[arg-type]
        (lambda: Table(["a"], "x"), "Table(rows='x'): give a list of rows"),
        (lambda: Table(["a", "b"], [[1]]), "Table(rows[0]=[1]): give a list of 2 values"),
        (lambda: Table(["a"], [5]), "Table(rows[0]=5): give a list of 1 values"),  # type: ignore[list-item]
        (lambda: Progress("x", total="1"), "Progress(total='1'): give a number from 0 on"),  # type: ignore[arg-type]
        (lambda: Picture(b"x", alt=1), "Picture(alt=1): give text"),  # type: ignore[arg-type]
        (lambda: Picture(b"x" * (LARGEST_PICTURE + 1)), "more than 8,388,608 bytes: give its url instead"),
    ],
)
def test_what_cannot_be_shown_is_refused_where_it_is_made(make, told):
    with pytest.raises(ConfigError) as refused:
        make()
    assert told in str(refused.value)


def test_the_largest_picture_can_be_shown():
    assert len(Picture(b"x" * LARGEST_PICTURE).data) == LARGEST_PICTURE
