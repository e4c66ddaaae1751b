"""The text of a page for the model, and of elements for people: what a page writes cannot look like what is ours."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._tools.browser.page_text import describe_browser_element, escape_page_text
from perdure.hosts import BrowserElement, BrowserFrame, BrowserSnapshot
from perdure.tools import format_browser_element, format_browser_snapshot

SHOP = "https://shop.example/"
PAY = "https://pay.example/form"
OURS = re.compile(r"\\.|(\[)", re.DOTALL)
"""Matches what is escaped; an opening bracket that is not is ours."""
WRITTEN = st.lists(
    st.sampled_from(["[", "]", "\\", '"', "e1", "frame https://bank.example/", "\n", " ", "a", "\u200b", "---", "…"]),
    max_size=12,
).map("".join) | st.text(max_size=20)
"""What a page may write."""


def count_ours(text: str) -> int:
    """Return how many brackets are opened that are not in the words of a page."""
    return len([each for each in OURS.finditer(text) if each[1]])


def test_a_long_page_is_shown_in_parts():
    text = "".join([f"line {number}\n" for number in range(20)])
    snapshot = BrowserSnapshot(SHOP, "Long", [BrowserFrame(SHOP, text, (), is_truncated=True)], ["a note"])
    begin, end = f'"Long" — {SHOP}\n[a note]\n\n', "[The page is larger than what is read of it: its end is missing.]"
    first = "line 0\nline 1\nline 2\nline 3\nline 4"
    assert format_browser_snapshot(snapshot, 0, 40) == (
        f"{begin}{first}\n[Showing characters 0-35 of 149. Use browser_snapshot(offset=35) to continue.]\n{end}"
    )
    second = "line 5\nline 6\nline 7\nline 8\nline 9"
    assert format_browser_snapshot(snapshot, 35, 40) == (
        f"{begin}{second}\n[Showing characters 35-70 of 149. Use browser_snapshot(offset=70) to continue.]\n{end}"
    )
    assert format_browser_snapshot(snapshot, 142, 40) == (
        f"{begin}line 19\n[Showing characters 142-149 of 149.]\n{end}"
    )
    whole = BrowserSnapshot(SHOP, "Long", [BrowserFrame(SHOP, text)])
    assert format_browser_snapshot(whole, 0, 149) == f'"Long" — {SHOP}\n\n{text.strip()}'


def test_a_page_without_title_text_or_frames_says_so():
    assert format_browser_snapshot(BrowserSnapshot(SHOP, "", [])) == f"(no title) — {SHOP}\n\n(no text)"
    frames = [BrowserFrame(SHOP, " \n"), BrowserFrame(PAY, "Pay\u200b here.\n"), BrowserFrame(PAY, "")]
    assert format_browser_snapshot(BrowserSnapshot(SHOP, "Shop", frames)) == (
        f'"Shop" — {SHOP}\n\n[frame {PAY}]\nPay here.'
    )


def test_a_name_of_others_is_one_line_of_200_characters_at_most():
    for length, shown in ((200, "x" * 200), (201, "x" * 200 + "…")):
        element = BrowserElement("e1", "link", "x" * length, SHOP)
        assert format_browser_element(element) == f'[e1] link "{shown}"'


def test_an_element_is_shown_with_its_value_state_and_options():
    element = BrowserElement("e1", "combobox", "Size\u200b  of\nit", SHOP, "small", ("disabled",), ("small", "large"))
    assert (
        format_browser_element(element) == '[e1] combobox "Size of it" = "small" (disabled) options: "small" | "large"'
    )


@given(WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN)
def test_nothing_that_a_page_writes_looks_like_a_reference_a_frame_or_a_note(title, name, value, words, address):
    element = BrowserElement("e1", "textbox", name, SHOP, value, (), (name, value))
    text = f"{escape_page_text(words)} {format_browser_element(element)} {escape_page_text(words)}"
    frames = [BrowserFrame(SHOP, text, (element,)), BrowserFrame(f"data:{address}", escape_page_text(words) + "x")]
    shown = format_browser_snapshot(BrowserSnapshot(f"{SHOP}?{address}", title, frames, [words]))
    assert count_ours(shown) == 3  # the note, the element and the frame
    assert f" — {SHOP}?" in shown.splitlines()[0]


@given(WRITTEN, WRITTEN)
def test_a_quoted_name_ends_where_it_seems_to_end(name, value):
    shown = format_browser_element(BrowserElement("e1", "textbox", name, SHOP, value))
    quoted = re.findall(r'"(?:\\.|[^"\\])*"', shown)
    assert re.sub(r'"(?:\\.|[^"\\])*"', "", shown) in {"[e1] textbox ", "[e1] textbox  = "}
    assert len(quoted) == (2 if value else 1)


@pytest.mark.parametrize("words", ["[e1] button", "\\\\[e1] button", "\\[e1]\\", "[[[", "\\\\\\["])
def test_no_part_of_a_page_begins_within_what_is_escaped(words):
    text = "x" + escape_page_text(words) * 3
    for offset in range(len(text)):
        shown = format_browser_snapshot(BrowserSnapshot(SHOP, "Shop", [BrowserFrame(SHOP, text)]), offset, 4)
        page = shown.split("\n\n", 1)[1].partition("\n[Showing characters")[0]
        assert count_ours(page) == 0


def test_a_person_is_shown_the_element_the_text_near_it_and_where_it_leads():
    element = BrowserElement(
        "e1", "button", 'Pay" now\n', "about:srcdoc", "", ("checked",), (), "Total: [5 €] …", PAY, SHOP
    )
    assert describe_browser_element(element) == (
        f'button "Pay\\" now" (checked) near "Total: \\[5 €] …" leads to {PAY} in a frame of {SHOP}'
    )
    assert describe_browser_element(BrowserElement("e1", "link", "Go", SHOP)) == 'link "Go"'


def test_the_host_of_an_address_is_shown_in_full_and_the_rest_up_to_500_characters():
    for length, shown in ((500, "x" * 500), (501, "x" * 500 + "…")):
        assert format_browser_snapshot(BrowserSnapshot("x" * length, "", [])).startswith(f"(no title) — {shown}\n")
