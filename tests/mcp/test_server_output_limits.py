"""Servers that send too many messages, or list too much."""

from types import SimpleNamespace

import pytest

from perdure._mcp.client.listing import MAX_PAGES, FloodMeter, collect_pages


class Server:
    """A server whose listing has pages of two items each."""

    def __init__(self, pages, cursors=None):
        self.pages = pages
        self.cursors = cursors or [str(number + 1) for number in range(pages - 1)]
        self.asked = []

    async def list_page(self, cursor):
        place = len(self.asked)
        self.asked.append(cursor)
        items = [f"{place}a", f"{place}b"]
        return SimpleNamespace(tools=items, next_cursor=[*self.cursors, None][min(place, len(self.cursors))])


@pytest.mark.parametrize(("count", "floods"), [(5, 0), (6, 1)])
def test_more_messages_than_allowed_within_a_short_time_are_a_flood(count, floods):
    told: list[str] = []
    meter = FloodMeter(told.append, most=5, seconds=2, monotonic=lambda: 1.0)
    for _ in range(count):
        meter.count_messages()
    assert told == ["it sent more than 5 messages within 2 seconds"] * floods


@pytest.mark.parametrize(("seconds", "floods"), [(1.9, 1), (2.0, 0)])
def test_as_many_messages_in_a_longer_time_are_none_and_are_counted_anew(seconds, floods):
    told: list[str] = []
    now = [0.0]
    meter = FloodMeter(told.append, most=5, seconds=2, monotonic=lambda: now[0])
    meter.count_messages(5)
    now[0] = seconds
    meter.count_messages()
    assert len(told) == floods
    meter.count_messages(5)
    assert len(told) == floods
    meter.count_messages()
    assert len(told) == floods + 1


async def test_all_pages_are_read_from_the_first_to_the_last():
    server = Server(3)
    assert await collect_pages(server.list_page, "tools", 100) == (["0a", "0b", "1a", "1b", "2a", "2b"], False)
    assert server.asked == [None, "1", "2"]


@pytest.mark.parametrize(("most", "pages"), [(4, 2), (3, 2), (5, 3)])
async def test_no_page_is_asked_for_when_there_are_enough_items(most, pages):
    server = Server(9)
    found, is_cut = await collect_pages(server.list_page, "tools", most)
    assert (len(found), is_cut, len(server.asked)) == (most, False, pages)


async def test_a_listing_that_goes_in_a_circle_or_has_no_end_is_cut():
    circle = Server(9, ["x", "y", "x", "y"])
    found, is_cut = await collect_pages(circle.list_page, "tools", 100)
    assert (len(found), is_cut) == (6, True)
    endless = Server(MAX_PAGES + 5)
    found, is_cut = await collect_pages(endless.list_page, "tools", 10_000)
    assert (len(found), is_cut, len(endless.asked)) == (2 * MAX_PAGES, True, MAX_PAGES)
