"""A scripted web answers from its tables, and remembers what it was asked."""

from typing import Any

import pytest

from perdure import ConfigError
from perdure.hosts import WebFetchRequest, WebFetchResult, WebSearchQuery, WebSearchResult
from perdure.permissions import UrlTarget
from perdure.testing import ScriptedWeb


async def test_a_page_is_fetched_by_its_url_and_another_is_not_found():
    moved = WebFetchResult("https://example.org/new", 301, "text/plain", "moved")
    web = ScriptedWeb({"https://example.org": "<p>Hello</p>", "https://example.org/old": moved})
    urls = ["https://EXAMPLE.org/", "https://example.org/old", "https://example.org/none"]
    found = [await web.fetch(WebFetchRequest(UrlTarget.of(each))) for each in urls]
    assert found == [
        WebFetchResult("https://example.org/", 200, "text/html", "<p>Hello</p>"),
        moved,
        WebFetchResult("https://example.org/none", 404, "text/plain", "not found"),
    ]
    assert web.urls == ["https://example.org/", "https://example.org/old", "https://example.org/none"]


async def test_a_search_has_the_results_of_its_query_and_another_has_none():
    hit = WebSearchResult("Sails", "https://example.org/sails", "All about sails.")
    web = ScriptedWeb(results={"sails": [hit]})
    queries = [WebSearchQuery("sails"), WebSearchQuery("hulls", 3)]
    assert [list(await web.search(each)) for each in queries] == [[hit], []]
    assert web.queries == queries


@pytest.mark.parametrize("pages", [{"https://example.org": 5}, {5: "<p>Hello</p>"}])
def test_what_is_no_page_is_refused(pages: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        ScriptedWeb(pages)
    assert str(refused.value) == f"ScriptedWeb(pages={pages!r}): give HTML or a WebFetchResult for each URL"


def test_a_page_without_a_complete_url_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        ScriptedWeb({"example.org": "<p>Hello</p>"})
    assert str(refused.value) == "ScriptedWeb(pages='example.org'): give a complete URL for each page"
