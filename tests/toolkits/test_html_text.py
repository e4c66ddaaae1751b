"""HTML as people read it, for a model."""

import pytest

from perdure._tools.web.html_text import convert_html, remove_invisible_characters

LONG = "This sentence makes the page long enough to be taken as it is. " * 5


def text_of(body: str) -> str:
    return convert_html(body, "https://example.org/docs/page").text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<h1>Title</h1><p>One\n two<p>Three", "# Title\n\nOne two\n\nThree"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>", "- a\n- b\n  - c"),
        ("<ol start=3><li>a</li><li><p>b</p></li></ol>", "3. a\n4. b"),
        ("<ol start=x><li>a</ol>", "1. a"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2"),
        ("one<br>two", "one\ntwo"),
        ("<pre>a\n  b\n</pre>c", "```\na\n  b\n```\n\nc"),
        ("<a href='../x?a=1&amp;b'>link <b>text</b></a>!", "[link text](https://example.org/x?a=1&b)!"),
        ("<a href='#part'>here</a> <a href='javascript:x()'>there</a>", "here there"),
        ("<a href='/a b'>x</a><a href='https://[bad'>y</a>", "[x](https://example.org/a%20b)y"),
        ("<a href=/x><h2>Card</h2><p>More</p></a>", "## [Card](https://example.org/x)\n\nMore"),
        ("<img alt='A  cat' src=x><img src=y>", "[image: A cat]"),
        ("<script>evil()</script><style>p{}</style><template>t</template><svg><text>s</text></svg>ok", "ok"),
        ("<!-- comment -->ok", "ok"),
        ("<div>a</div><div>b</div>", "a\nb"),
        ("a&nbsp;b &copy;", "a b ©"),
        ("<a href=/x>one<a href=/y>two</a>", "[one](https://example.org/x)[two](https://example.org/y)"),
        ("<a href=/x> </a>after<a>plain</a>", "afterplain"),
        ("before<pre>a\n b</pre>", "before\n```\na\n b\n```"),
        ("<pre>a<div>b</div>c\n d</pre>", "```\na\n```\n```\nb\n```\n```\nc\n d\n```"),
        ("<pre> \n</pre>a\n b", "a b"),
        ("</pre>a\n b</ul></ol>", "a b"),
        ("before<h2>Title</h2>after", "before\n\n## Title\n\nafter"),
        ("<h1>1</h1><h6>6</h6>", "# 1\n\n###### 6"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul><li>d", "- a\n  - b\n\n- c\n\n- d"),
        ("<ol><li>a<ul><li>b</ul><li>c</ol>d", "1. a\n  - b\n\n2. c\n\nd"),
        ("<ol start=0><li>a<li>b</ol>", "0. a\n1. b"),
        ("<ul>" * 8 + "<li>a", "          - a"),
        ("<li><div>a</div><div>b</div>", "- a\nb"),
        ("<li>a<p>b", "- a\n\nb"),
        ("a<blockquote>b</blockquote>c<section>d</section>e<article>f", "a\n\nb\nc\n\nd\ne\n\nf"),
        ("<td>a<td>b<th>c", "a | b | c"),
        ("a<img alt=' '>b", "ab"),
        ("", ""),
    ],
)
def test_a_page_becomes_text(body, text):
    assert text_of(body) == text


@pytest.mark.parametrize(
    "hidden",
    [
        "<p hidden>secret</p>",
        "<p hidden>secret<p>",
        "<div style='color: red; DISPLAY : none'>se<div>cr</div>et</div>",
        "<span style='visibility:hidden'>secret</span>",
        "<select><option>secret</select>",
        "<span hidden>se<br>cr<b>et</span>",
        "<span hidden>span</span>",
        "<p hidden>secret<p hidden>more</p>",
        "<b hidden>a</b><b hidden>b</b>",
    ],
)
def test_what_people_do_not_see_is_left_out(hidden):
    assert text_of(f"<p>{LONG}</p>{hidden}<p>after</p>") == f"{LONG.strip()}\n\nafter"


def test_an_element_whose_end_is_missing_does_not_hide_the_rest():
    assert text_of("<div hidden>one<p>two</p>") == "one\n\ntwo"
    assert text_of("</div><div hidden>one<p>two</p>") == "one\n\ntwo"
    assert text_of("<br hidden>one</br>two") == "onetwo"


def test_navigation_and_footers_are_left_out_of_a_page_with_enough_text():
    around = "<nav>Menu</nav>{}<aside>Ads</aside><footer>Imprint</footer>"
    assert text_of(around.format(f"<p>{LONG}</p>")) == LONG.strip()
    assert text_of(around.format("<p>Short</p>")) == "Menu\n\nShort\n\nAds\nImprint"


def test_the_title_is_apart():
    page = convert_html("<title> A \n title </title><svg><title>no</title></svg><p>text")
    assert (page.title, page.text) == ("A title", "text")
    page = convert_html("<title>first</title><title>second</title>text")
    assert (page.title, page.text) == ("first", "secondtext")


def test_links_follow_the_base_of_a_page():
    assert text_of("<base href='https://other.org/x/'><a href=y>z</a>") == "[z](https://other.org/x/y)"
    assert text_of("<base href='#'><a href=y>z</a>") == "[z](https://example.org/docs/y)"


def test_characters_that_nobody_sees_are_left_out():
    tags = "".join(chr(0xE0000 + ord(each)) for each in "send it")
    assert text_of(f"<p>He{tags}l\u200blo\u202e!</p>") == "Hello!"
    assert remove_invisible_characters("a\r\nb\rc\td\x1b[0m\0") == "a\nb\nc\td[0m"


def test_a_deeply_nested_page_is_converted():
    assert text_of("<div>" * 50_000 + "deep").strip() == "deep"
    assert text_of("<ul><li>" * 2_000 + "deep").endswith("- deep")


@pytest.mark.parametrize(
    ("first", "last"), [(0x7F, 0x9F), (0x202A, 0x202E), (0x2060, 0x206F), (0xE0000, 0xE0FFF)], ids=hex
)
def test_each_character_that_is_not_seen_is_left_out_and_its_neighbours_are_not(first, last):
    assert text_of(f"<p>a{chr(first)}{chr(last)}b</p>") == "ab"
    assert text_of(f"<p>a{chr(last + 1)}b</p>") != "ab"


def test_exactly_these_characters_are_removed():
    looked_at = [*range(0x3000), *range(0xFE00, 0x10000), *range(0xDFFF0, 0xE1010)]
    removed = [code for code in looked_at if not remove_invisible_characters(chr(code))]
    assert removed == [
        *[code for code in range(0x20) if code not in {0x09, 0x0A, 0x0D}],
        *range(0x7F, 0xA0),
        *(0xAD, 0x061C, 0x180E, 0x200B, 0x200E, 0x200F),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        0xFEFF,
        *range(0xE0000, 0xE1000),
    ]


def test_a_page_of_just_enough_text_is_taken_without_what_is_around_it():
    around = "<nav>Menu</nav><p>{}</p>"
    assert text_of(around.format("x" * 200)) == "x" * 200
    assert text_of(around.format("x" * 199)) == f"Menu\n\n{'x' * 199}"
