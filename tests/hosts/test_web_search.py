"""Search engines, as servers on the loopback that answer like them."""

from types import SimpleNamespace

import pytest

from perdure import ConfigError, ToolError
from perdure._io.http.transport import NetError
from perdure.hosts import (
    BraveSearch,
    EgressDenied,
    EgressPolicy,
    LocalWeb,
    SearxngSearch,
    WebSearchQuery,
    WebSearchResult,
    WikipediaSearch,
)
from tests.wire.server import Playback, Reply, json_reply

HERE = EgressPolicy(private_networks=["127.0.0.1"], ports=None)
QUERY = WebSearchQuery("light house & more", 2)
KEY = "BSA-key-of-a-test"

BRAVE = {
    "type": "search",
    "query": {"original": "light house & more", "more_results_available": True},
    "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
    "web": {
        "type": "search",
        "results": [
            {
                "title": "Lighthouse &amp; more",
                "url": "https://example.org/1",
                "is_source_local": False,
                "description": "A <strong>light</strong> <strong>house</strong> is a tower.",
                "profile": {"name": "Example", "url": "https://example.org"},
            },
            {"title": "Script", "url": "javascript:alert(1)", "description": "x"},
            {"title": "Second", "url": "https://example.org/2", "description": None},
            {"title": "Third", "url": "https://example.org/3"},
        ],
        "family_friendly": True,
    },
}
SEARXNG = {
    "query": "light house & more",
    "number_of_results": 2,
    "results": [
        {"url": "https://example.org/1", "title": "First", "content": "A tower.", "engine": "x", "score": 1.0},
        {"url": "https://example.org/2", "title": "Second", "content": None, "publishedDate": None},
        {"url": "https://example.org/3", "title": "Third", "content": ""},
    ],
    "answers": [],
    "suggestions": ["x"],
}
WIKIPEDIA = {
    "batchcomplete": "",
    "continue": {"sroffset": 2, "continue": "-||"},
    "query": {
        "searchinfo": {"totalhits": 2},
        "search": [
            {
                "ns": 0,
                "title": "Light house (tower)",
                "pageid": 1,
                "size": 5,
                "snippet": 'A <span class="searchmatch">light</span> &quot;house&quot;',
            },
            {"ns": 0, "title": "Äther/C#?", "pageid": 2, "snippet": ""},
        ],
    },
}


def brave(server):
    return BraveSearch(KEY, url=f"{server.base_url}/res/v1/web/search", policy=HERE)


def searxng(server):
    return SearxngSearch(f"{server.base_url}/", policy=HERE)


def wikipedia(server):
    return WikipediaSearch(url=server.base_url, policy=HERE)


async def search(make, reply):
    async with Playback([reply]) as server:
        backend = make(server)
        try:
            return server, list(await backend.search(QUERY))
        finally:
            await backend.close()


async def test_brave_is_asked_with_its_key_and_marks_are_removed():
    server, found = await search(brave, json_reply(BRAVE))
    assert found == [
        WebSearchResult("Lighthouse & more", "https://example.org/1", "A light house is a tower."),
        WebSearchResult("Second", "https://example.org/2", ""),
    ]
    [request] = server.received
    assert request.path == "/res/v1/web/search?q=light+house+%26+more&count=2"
    assert (request.headers["x-subscription-token"], request.headers["accept"]) == (KEY, "application/json")


async def test_searxng_is_asked_for_json():
    server, found = await search(searxng, json_reply(SEARXNG))
    assert found == [
        WebSearchResult("First", "https://example.org/1", "A tower."),
        WebSearchResult("Second", "https://example.org/2", ""),
    ]
    assert server.received[0].path == "/search?q=light+house+%26+more&format=json"


async def test_wikipedia_finds_articles_and_their_addresses():
    server, found = await search(wikipedia, json_reply(WIKIPEDIA))
    assert found == [
        WebSearchResult("Light house (tower)", f"{server.base_url}/wiki/Light_house_(tower)", 'A light "house"'),
        WebSearchResult("Äther/C#?", f"{server.base_url}/wiki/%C3%84ther/C%23%3F", ""),
    ]
    [request] = server.received
    assert request.path.startswith("/w/api.php?action=query&list=search&srsearch=light+house+%26+more&srlimit=2&")


@pytest.mark.parametrize("answer", [{"type": "search"}, {"web": None}, {"web": {"results": []}}])
async def test_brave_may_find_nothing(answer):
    _, found = await search(brave, json_reply(answer))
    assert found == []


@pytest.mark.parametrize("make", [brave, searxng, wikipedia])
@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (json_reply({}, 401), "status 401: the key is not valid"),
        (json_reply({}, 429), "status 429: too many searches"),
        (Reply(b"<html>", 503), "status 503: it cannot be used now"),
        (Reply(b"<html>not json", 200), "not one of a search"),
        (Reply(b"\xff\xfe", 200), "not one of a search"),
        (json_reply([1, 2]), "not one of a search"),
        (json_reply({"web": {"results": 5}, "results": 5, "query": 5}), "not one of a search"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_for_the_model(make, reply, says):
    with pytest.raises(ToolError, match=says) as caught:
        await search(make, reply)
    assert KEY not in str(caught.value)


async def test_the_key_goes_to_no_other_origin():
    async with Playback([json_reply(BRAVE)]) as thief:
        redirect = Reply(b"", 302, {"location": f"{thief.base_url}/"})
        with pytest.raises(ToolError, match="status 302"):
            await search(brave, redirect)
    assert thief.received == []


async def test_by_default_only_the_host_of_the_engine_can_be_reached():
    for backend in (SearxngSearch("http://127.0.0.1:8888"), WikipediaSearch(url="http://localhost")):
        with pytest.raises(EgressDenied):
            await backend.search(QUERY)


async def test_an_endpoint_that_is_not_there_is_an_error():
    async with Playback([]) as server:
        backend = searxng(server)
    with pytest.raises(NetError):
        await backend.search(QUERY)
    await backend.close()


def test_the_key_of_brave_is_that_of_the_environment_by_default(monkeypatch):
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="BRAVE_API_KEY"):
        BraveSearch()
    monkeypatch.setenv("BRAVE_API_KEY", KEY)
    assert KEY not in repr(BraveSearch())


@pytest.mark.parametrize(
    "make",
    [
        lambda: BraveSearch("kéy"),
        lambda: BraveSearch("key", url="nowhere"),
        lambda: SearxngSearch(""),
        lambda: SearxngSearch("example.org"),
        lambda: WikipediaSearch("en.evil.example/"),
        lambda: WikipediaSearch(url="x"),
    ],
)
def test_options_that_cannot_work_are_refused(make):
    with pytest.raises(ConfigError, match=r"give (a|non-empty)"):
        make()


def test_wikipedia_has_languages():
    assert WikipediaSearch("de")._build_url("Ä") == "https://de.wikipedia.org/wiki/%C3%84"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "the key is not valid"),
        (403, "the key or the request is not accepted"),
        (404, "it cannot be used now"),
        (422, "the key or the query is not accepted"),
        (429, "too many searches: wait, or use another engine"),
    ],
)
async def test_each_status_is_explained(status, reason):
    with pytest.raises(ToolError) as caught:
        await search(searxng, json_reply({}, status))
    assert str(caught.value) == f"SearxngSearch answered with status {status}: {reason}"


async def test_a_redirect_at_the_same_origin_is_followed():
    async with Playback([Reply(b"", 302, {"location": "/elsewhere"}), json_reply(SEARXNG)]) as server:
        backend = searxng(server)
        found = await backend.search(QUERY)
        await backend.close()
    assert [each.title for each in found] == ["First", "Second"]
    assert [each.path.partition("?")[0] for each in server.received] == ["/search", "/elsewhere"]


@pytest.mark.parametrize("make", [brave, searxng, wikipedia])
async def test_a_backend_that_is_closed_closes_its_connections(make, monkeypatch):
    closed: list[object] = []

    async def close(client: object) -> None:
        closed.append(client)

    monkeypatch.setattr("perdure._io.egress.client.EgressClient.aclose", close)
    await make(SimpleNamespace(base_url="http://127.0.0.1:1")).close()
    assert len(closed) == 1


async def test_a_fetcher_that_is_closed_closes_its_connections(monkeypatch):
    closed: list[object] = []

    async def close(client: object) -> None:
        closed.append(client)

    monkeypatch.setattr("perdure._io.egress.client.EgressClient.aclose", close)
    async with LocalWeb(HERE):
        assert closed == []
    assert len(closed) == 1
