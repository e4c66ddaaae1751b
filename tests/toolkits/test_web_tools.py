"""`web_fetch` and `web_search`: what they return, what they ask for, and what they refuse."""

import asyncio

import pytest

from perdure import Agent, ConfigError, Permissions, ToolError, allow, ask, deny
from perdure._io.http.transport import HttpTimeoutExceeded
from perdure._tools.web.tools import MOST_PAGE_BYTES, cut_text
from perdure.hosts import EgressPolicy, LocalWeb, WebFetchRequest, WebFetchResult, WebSearchQuery, WebSearchResult
from perdure.permissions import UrlTarget, allow_all, later, url
from perdure.testing import ScriptedModel, ScriptedWeb, call, calls
from perdure.tools import format_fetched_page, format_search_results, web_fetch_tool, web_search_tool
from tests.wire.server import Playback, Reply

HERE = EgressPolicy(private_networks=["127.0.0.1"], ports=None)
DOCS = "https://docs.example.org/page"
PAGES = {DOCS: "<title>Docs</title><p>Hello <a href=/more>more</a></p>"}


def results_of(outcome):
    return [each for message in outcome.new_messages for each in message.tool_results]


async def run_tool(tool, name, permission=allow_all, **arguments):
    outcome = await Agent(ScriptedModel(call(name, **arguments), "Done."), tools=[tool], permission=permission).run(
        "Go."
    )
    [result] = results_of(outcome)
    return result


async def fetch(web, permission=allow_all, **arguments):
    return await run_tool(web_fetch_tool(web), "web_fetch", permission, **arguments)


# -- web_fetch ---------------------------------------------------------------------------------------------------------


async def test_a_page_is_returned_as_text_below_its_address_status_and_type():
    result = await fetch(ScriptedWeb(PAGES), url="https://DOCS.example.org:443/x/../page#top")
    assert result.text == f"{DOCS} (200 text/html)\n\n# Docs\n\nHello [more](https://docs.example.org/more)"
    assert (result.labels, result.is_error) == (("untrusted",), False)


async def test_what_is_fetched_is_the_address_that_was_checked():
    web = ScriptedWeb(PAGES)
    await fetch(web, url="https://DOCS.example.org:443/x/../page#top")
    assert web.urls == [DOCS]


async def test_a_page_with_an_error_status_is_an_error_with_its_text():
    result = await fetch(ScriptedWeb(), url=DOCS)
    assert (result.text, result.is_error) == (f"{DOCS} (404 text/plain)\n\nnot found", True)


async def test_a_call_needs_permission_and_rules_match_the_url():
    rules = Permissions(
        allow("web_fetch", target="https://docs.example.org/*"),
        deny("web_fetch", target=url("https://docs.example.org/private/**")),
        handler=later,
    )
    session = Agent(ScriptedModel(), tools=[web_fetch_tool(ScriptedWeb())], permission=rules).session()
    verdicts = {
        each: (await session.explain("web_fetch", {"url": each})).verdict
        for each in (
            DOCS,
            "https://docs.example.org/private/x",
            "https://docs.example.org/a/../private/x",
            "http://docs.example.org/page",
            "https://docs.example.org.evil.example/page",
            "https://docs.example.org:8443/page",
        )
    }
    assert list(verdicts.values()) == ["allow", "deny", "deny", "ask", "ask", "ask"]


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest",
        "http://localhost:8080/",
        "https://u:p@docs.example.org/",
        "docs.example.org",
        "file:///etc/passwd",
        "https://docs.example.org\\@127.0.0.1/",
    ],
)
async def test_what_is_never_fetched_is_refused_before_a_person_is_asked(address):
    async with LocalWeb() as web:
        model = ScriptedModel(call("web_fetch", url=address), "Done.")
        outcome = await Agent(model, tools=[web_fetch_tool(web)], permission=Permissions(handler=later)).run("Go.")
    assert outcome.status == "done"
    assert "cannot be fetched" in results_of(outcome)[0].text


async def test_a_page_that_cannot_be_had_is_an_error_with_the_reason():
    class Slow(ScriptedWeb):
        async def fetch(self, request):
            raise HttpTimeoutExceeded(f"{request.target.host!r} did not answer")

    result = await fetch(Slow(), url=DOCS)
    assert result.is_error
    assert result.text == f"{DOCS} cannot be fetched: 'docs.example.org' did not answer"


async def test_what_is_no_text_is_refused_with_its_kind():
    web = ScriptedWeb({DOCS: WebFetchResult(DOCS, 200, "application/pdf", b"%PDF")})
    result = await fetch(web, url=DOCS)
    assert result.is_error
    assert result.text == f"{DOCS} (200 application/pdf) cannot be read: it is application/pdf, not text (4 bytes)"


@pytest.mark.parametrize("arguments", [{"offset": -1}, {"max_bytes": 0}])
async def test_positions_that_make_no_sense_are_refused(arguments):
    assert "give an offset" in (await fetch(ScriptedWeb(PAGES), url=DOCS, **arguments)).text


async def test_a_secret_is_not_put_into_an_address():
    assert not web_fetch_tool(ScriptedWeb()).credentials
    assert not web_search_tool(ScriptedWeb()).credentials


async def test_pages_are_fetched_at_the_same_time():
    both = asyncio.Barrier(2)

    class Together(ScriptedWeb):
        async def fetch(self, request):
            async with asyncio.timeout(10):
                await both.wait()
            return await super().fetch(request)

    model = ScriptedModel(calls(call("web_fetch", url=DOCS), call("web_fetch", url=f"{DOCS}2")), "Done.")
    outcome = await Agent(model, tools=[web_fetch_tool(Together(PAGES))], permission=allow_all).run("Go.")
    assert [each.is_error for each in results_of(outcome)] == [False, True]


# -- redirects ---------------------------------------------------------------------------------------------------------


def moved(location: str) -> Reply:
    return Reply(b"moved", 302, {"location": location}, media_type="text/plain")


async def test_a_redirect_within_an_origin_is_followed_and_named():
    answers = [moved("/b"), Reply(b"there", media_type="text/plain")]
    async with Playback(answers) as server, LocalWeb(HERE) as web:
        result = await fetch(web, url=f"{server.base_url}/a")
    start = server.base_url
    assert result.text == f"{start}/b (200 text/plain)\n[redirected from {start}/a]\n\nthere"


async def test_a_redirect_to_another_origin_is_told_and_not_followed():
    async with Playback([]) as other, Playback([moved(f"{other.base_url}/x")]) as server, LocalWeb(HERE) as web:
        result = await fetch(web, url=f"{server.base_url}/a")
    assert f"[It redirects to {other.base_url}/x, which was not fetched: fetch that address" in result.text
    assert other.received == []


@pytest.mark.parametrize("objection", [deny, ask])
async def test_a_redirect_that_a_rule_objects_to_is_not_followed(objection):
    async with Playback([moved("/private/b")]) as server, LocalWeb(HERE) as web:
        rules = Permissions(
            allow("web_fetch"), objection("web_fetch", target=url(f"{server.base_url}/private/**")), handler=later
        )
        result = await fetch(web, rules, url=f"{server.base_url}/a")
    assert "which was not fetched" in result.text
    assert [each.path for each in server.received] == ["/a"]


async def test_a_redirect_to_a_private_address_is_an_error():
    async with Playback([moved("http://169.254.169.254/")]) as server, LocalWeb(HERE) as web:
        result = await fetch(web, url=f"{server.base_url}/a")
    assert result.is_error
    assert "never allowed" in result.text


# -- long pages --------------------------------------------------------------------------------------------------------


def test_a_long_page_says_how_to_get_the_rest_and_nothing_is_lost():
    lines = [f"line {number} with ümläuts" for number in range(2_000)]
    page = WebFetchResult(DOCS, 200, "text/plain", "\n".join(lines))
    offset, seen = 0, ""
    while True:
        header, _, shown = format_fetched_page(page, offset, 10_000).partition("\n\n")
        assert header == f"{DOCS} (200 text/plain)"
        text, _, note = shown.rpartition("\n[Showing")
        assert len(text.encode()) <= 10_000
        seen += text + "\n" if "offset=" in note else text
        if "offset=" not in note:
            break
        offset = int(note.partition("offset=")[2].partition(" ")[0])
    assert seen == "\n".join(lines)


def test_a_page_of_one_long_line_is_cut_within_it():
    page = WebFetchResult(DOCS, 200, "text/plain", "é" * 1_000)
    shown = format_fetched_page(page, 0, 101)
    assert f"\n{'é' * 50}\n[Showing characters 0-50 of 1,000. Use offset=50 to continue.]" in shown


def test_an_offset_behind_the_end_says_so():
    page = WebFetchResult(DOCS, 200, "text/plain", "short")
    assert "[The text has 5 characters; there is none at offset 9.]" in format_fetched_page(page, 9)


def test_a_page_that_was_not_read_to_its_end_says_so():
    page = WebFetchResult(DOCS, 200, "text/plain", "x", is_truncated=True)
    assert "its end is missing" in format_fetched_page(page)


def test_a_page_without_text_says_so():
    assert format_fetched_page(WebFetchResult(DOCS, 204, "", b"")) == f"{DOCS} (204)\n\n(no text)"


async def test_a_call_returns_no_more_than_the_limit():
    web = ScriptedWeb({DOCS: WebFetchResult(DOCS, 200, "text/plain", "x" * 500_000)})
    assert len((await fetch(web, url=DOCS, max_bytes=10**9)).text) < MOST_PAGE_BYTES + 500


# -- web_search --------------------------------------------------------------------------------------------------------

FOUND = [
    WebSearchResult("Lighthouse", "https://example.org/lighthouse", "A tower\nwith  a light."),
    WebSearchResult("", "https://example.org/other"),
]


async def test_results_are_listed_with_title_address_and_snippet():
    web = ScriptedWeb(results={"lighthouse": FOUND})
    result = await run_tool(web_search_tool(web), "web_search", query=" lighthouse ", max_results=2)
    assert result.text == (
        "[1] Lighthouse — https://example.org/lighthouse\nA tower with a light.\n[2] (no title) — https://example.org/other"
    )
    assert (result.labels, web.queries) == (("untrusted",), [WebSearchQuery("lighthouse", 2)])


async def test_no_results_are_said():
    assert (await run_tool(web_search_tool(ScriptedWeb()), "web_search", query="x")).text == "No results."


@pytest.mark.parametrize(("wanted", "asked"), [(0, 1), (3, 3), (1_000, 20)])
async def test_the_number_of_results_has_limits(wanted, asked):
    web = ScriptedWeb(results={"x": FOUND * 20})
    result = await run_tool(web_search_tool(web), "web_search", query="x", max_results=wanted)
    assert web.queries[0].max_results == asked
    assert len([each for each in result.text.splitlines() if each.startswith("[")]) == asked


async def test_an_empty_query_is_refused():
    assert (await run_tool(web_search_tool(ScriptedWeb()), "web_search", query="  ")).is_error


async def test_a_search_that_fails_is_an_error_with_the_reason():
    class Broken:
        async def search(self, _query):
            raise HttpTimeoutExceeded("it is too slow")

    result = await run_tool(web_search_tool(Broken()), "web_search", query="x")
    assert (result.text, result.is_error) == ("the search failed: it is too slow", True)


def test_a_result_cannot_pass_for_another():
    hostile = WebSearchResult("a\n[2] fake — https://evil.example\nx" + "y" * 500, "https://example.org", "\u202ez\x1b")
    first, second = format_search_results([hostile]).splitlines()
    assert first.startswith("[1] a [2] fake")
    assert (second, len(first) < 300) == ("z", True)


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [web_fetch_tool, web_search_tool])
@pytest.mark.parametrize("backend", [None, "https://example.org", ScriptedWeb])
def test_what_is_no_backend_is_refused(make, backend):
    with pytest.raises(ConfigError, match="give a backend with"):
        make(backend)


def test_a_scripted_web_wants_pages_by_url():
    with pytest.raises(ConfigError, match="HTML or a WebFetchResult"):
        ScriptedWeb({DOCS: 5})  # type: ignore[dict-item]


async def test_an_error_of_a_backend_goes_to_the_model():
    class Refusing(ScriptedWeb):
        async def search(self, query):
            raise ToolError(f"no searches for {query.text}")

    assert (await run_tool(web_search_tool(Refusing()), "web_search", query="x")).text == "no searches for x"


# -- exactly -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "is_error"), [(200, False), (399, False), (400, True), (500, True)])
async def test_a_page_is_an_error_from_status_400_on_and_its_summary_has_the_status(status, is_error):
    result = await fetch(ScriptedWeb({DOCS: WebFetchResult(DOCS, status, "text/plain", "x")}), url=DOCS)
    assert (result.is_error, result.summary) == (is_error, f"(fetched {DOCS}: {status})")


async def test_a_single_byte_can_be_asked_for():
    web = ScriptedWeb({DOCS: WebFetchResult(DOCS, 200, "text/plain", "xyz")})
    assert (await fetch(web, url=DOCS, max_bytes=1, offset=0)).text == (
        f"{DOCS} (200 text/plain)\n\nx\n[Showing characters 0-1 of 3. Use offset=1 to continue.]"
    )
    refused = await fetch(web, url=DOCS, max_bytes=0)
    assert refused.text == "offset=0, max_bytes=0: give an offset of 0 or more, and a size above 0"


async def test_five_results_are_asked_for_if_the_model_does_not_say():
    web = ScriptedWeb(results={"x": FOUND * 20})
    result = await run_tool(web_search_tool(web), "web_search", query="x")
    assert web.queries == [WebSearchQuery("x", 5)]
    assert [each[:3] for each in result.text.splitlines() if each.startswith("[")] == [
        "[1]",
        "[2]",
        "[3]",
        "[4]",
        "[5]",
    ]


def test_a_page_names_its_redirects_and_what_is_missing_of_it():
    page = WebFetchResult(
        DOCS, 302, "text/plain; charset=utf-8", "text\n", is_truncated=True, redirects=["http://a.example/", "http://b.example/"],
        redirect_to="https://c.example/",
    )  # fmt: skip
    assert format_fetched_page(page) == (
        f"{DOCS} (302 text/plain)\n[redirected from http://a.example/]\n[redirected from http://b.example/]\n"
        "[It redirects to https://c.example/, which was not fetched: fetch that address if you need it.]\n\ntext\n"
        "[The page is larger than what is read of it: its end is missing.]"
    )
    plain = WebFetchResult(DOCS, 200, "text/plain", "0123456789")
    assert format_fetched_page(plain) == f"{DOCS} (200 text/plain)\n\n0123456789"
    assert format_fetched_page(plain, 4) == (f"{DOCS} (200 text/plain)\n\n456789\n[Showing characters 4-10 of 10.]")
    assert format_fetched_page(plain, 10) == (
        f"{DOCS} (200 text/plain)\n\n\n[The text has 10 characters; there is none at offset 10.]"
    )


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("ab\ncd", 4, "ab\n"),
        ("a\nbcd", 4, "a\nbc"),
        ("a\nbcde", 3, "a\n"),
        ("äöü", 3, "ä"),
        ("äöü", 6, "äöü"),
        ("", 5, ""),
    ],
)
def test_a_text_is_cut_at_the_end_of_a_line_in_its_second_half(text, most, shown):
    assert cut_text(text, most) == shown


def test_titles_and_snippets_have_a_length():
    first, second = format_search_results([WebSearchResult("t" * 5_000, DOCS, "s" * 5_000)]).splitlines()
    title, snippet = first.removeprefix("[1] ").removesuffix(f" — {DOCS}"), second
    assert (title.rstrip("…"), snippet.rstrip("…")) == ("t" * (len(title) - 1), "s" * (len(snippet) - 1))
    again = format_search_results([WebSearchResult("t" * (len(title) - 1), DOCS, "s" * (len(snippet) - 1))])
    assert "…" not in again


@pytest.mark.parametrize(
    ("source", "target", "follows"),
    [
        ("https://a.example/x", "https://a.example/y", True),
        ("http://a.example/x", "https://a.example/y", True),
        ("https://a.example/x", "http://a.example/y", False),
        ("http://a.example:8080/x", "https://a.example/y", False),
        ("http://a.example/x", "https://a.example:8443/y", False),
        ("http://a.example/x", "https://b.example/y", False),
        ("https://a.example/x", "https://b.example/x", False),
    ],
)
async def test_redirects_are_followed_within_an_origin_and_to_https(source, target, follows):
    decided = []

    class Asking(ScriptedWeb):
        async def fetch(self, request):
            decided.append(request.follow(UrlTarget.of(source), UrlTarget.of(target)))
            return await super().fetch(request)

    await fetch(Asking(PAGES), url=DOCS)
    assert decided == [follows]
    assert not WebFetchRequest(UrlTarget.of(DOCS)).follow(UrlTarget.of(source), UrlTarget.of(target))
