"""HTML in pieces: what a browser would see, in time that grows with the length of a page and no faster."""

import time

import pytest

from perdure._tools.web.html_text import read_html_tokens
from tests.seeds import chance


def tokens(page: str) -> list[str]:
    """The tokens of a page, as text: `<a>`, `</a>` and what is between."""
    marks = {"text": "{}", "start": "<{}>", "end": "</{}>"}
    return [marks[each.kind].format(each.value) for each in read_html_tokens(page)]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("", []),
        ("plain &amp; simple", ["plain & simple"]),
        ("<P Class=x>a</P >", ["<p>", "a", "</p>"]),
        ("a<br/>b", ["a", "<br>", "b"]),
        ("1 < 2 <3", ["1 ", "<", " 2 ", "<", "3"]),
        ("a<!-- <b> -->c<!-->d<!--->e", ["a", "c", "d", "e"]),
        ("<!doctype html><?xml x?>a</>b", ["a", "b"]),
        ("a<!-- never ends <p>b</p>", ["a"]),
        ("<a title='>'>b</a>", ["<a>", "b", "</a>"]),
        ("<a title='never ends>b</a>", []),
        ("<script>if (a < b) '<p>'</script>c", ["<script>", "", "</script>", "c"]),
        ("<STYLE>p{}</Style>c", ["<style>", "", "</style>", "c"]),
        ("<script>never ends", ["<script>", ""]),
        ("<script></scripty></script >c", ["<script>", "", "</script>", "c"]),
        ("<title>a &lt;b> <i></title>c", ["<title>", "a <b> <i>", "</title>", "c"]),
    ],
)
def test_a_page_is_split_as_a_browser_would(page, expected):
    assert tokens(page) == expected


def test_attributes_are_read_in_every_form():
    [tag] = read_html_tokens("""<a HREF="x?a=1&amp;b=2" title = 'it"s' id=plain hidden href=second =odd data-x=>""")
    assert tag.attributes == {
        "href": "x?a=1&b=2",
        "title": 'it"s',
        "id": "plain",
        "hidden": "",
        "=odd": "",
        "data-x": "",
    }


def test_each_token_says_where_the_page_goes_on_after_it():
    page = "a<p x=1>b</p><title>c</title>1 < 2<!-- no -->d"
    assert [(each.kind, each.value, each.position) for each in read_html_tokens(page)] == [
        ("text", "a", 1),
        ("start", "p", 8),
        ("text", "b", 9),
        ("end", "p", 13),
        ("start", "title", 20),
        ("text", "c", 21),
        ("end", "title", 29),
        ("text", "1 ", 31),
        ("text", "<", 32),
        ("text", " 2", 34),
        ("text", "d", 46),
    ]


PIECES = [
    "<a ",
    "<a b='x' ",
    "<!-",
    "<!--",
    "</a",
    "<script ",
    "<a =",
    '<a "',
    "<![CDATA[",
    "&#1",
    "<p hidden>",
    "< ",
    "<?",
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_broken_page_takes_time_that_grows_with_its_length(piece):
    def measure(size: int) -> float:
        page = piece * (size // len(piece))
        began = time.process_time()
        for _ in read_html_tokens(page):
            pass
        return time.process_time() - began

    measure(10_000)
    assert measure(400_000) < 40 * max(
        measure(40_000), 0.005
    )  # ten times as long; a hundred times if it were quadratic


def test_any_text_is_split_without_an_error_and_ends():
    numbers = chance("html tokens")
    for _ in range(300):
        page = "".join(
            numbers.choices([*PIECES, "<p>", "</p>", ">", "'", '"', "-->", "=", "x", "</script>", "\0"], k=60)
        )
        found = list(read_html_tokens(page))
        assert [each.position for each in found] == sorted(each.position for each in found)
