"""On-demand servers: what is found, who decides, what lasts, and that nothing starts before."""

from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ConfigError
from perdure._mcp import servers
from perdure._mcp.catalogue import ACTIVE_SERVERS, REQUESTED_SERVERS
from perdure.mcp import CatalogueEntry, McpCatalogue, McpServer
from perdure.testing import ScriptedModel, call, calls
from tests.mcp.http_server import reach, serve_http
from tests.mcp.line_server import LineServer
from tests.mcp.servers import is_alive, read_lines, scripted

pytestmark = pytest.mark.packages("mcp")


def entry(folder, name="notes", description="Write down and read notes", tags=("memo",), behaviour="kind"):
    (folder / name).mkdir(exist_ok=True)
    server = scripted(behaviour, folder / name, name=name, permission=False)
    return CatalogueEntry(server=server, description=description, tags=tags)


def entries(folder):
    return entry(folder), entry(folder, "mail", "Send and read mails", ("smtp",))


def agent_of(folder, *replies, catalogue=None, **options):
    catalogue = catalogue or McpCatalogue(*entries(folder), **options)
    store = f"sqlite:{folder / 'log.db'}"
    return catalogue, Agent(ScriptedModel(*replies), name="helper", extensions=[catalogue.extension], store=store)


def sent_tools(agent):
    return [[each.name for each in request.tools] for request in agent.model.requests]


def result_of(outcome, place=0):
    return outcome.tool_calls[place].result.text


async def test_the_best_match_is_activated_used_and_there_in_the_next_process(tmp_path):
    find = call("discover_tools", need="send a mail")
    _, agent = agent_of(tmp_path, find, call("mail__echo", text="hi"), "sent", policy="best")
    async with agent:
        outcome = await agent.session("s").run("mail it")
    assert outcome.text == "sent"
    assert sent_tools(agent)[0] == ["discover_tools"]
    assert "mail__echo" in sent_tools(agent)[1]
    assert "notes__echo" not in sent_tools(agent)[1]
    assert result_of(outcome) == ("The server 'mail' is active. From now on you have its tools: mail__echo, mail__act.")
    assert read_lines(tmp_path / "mail", "calls") == ["echo hi"]

    catalogue, other = agent_of(tmp_path, call("mail__echo", text="again"), "done", policy="best")
    async with other:
        session = other.session("s")
        assert await catalogue.list_active(session) == ["mail"]
        await session.run("once more")
    assert "mail__echo" in sent_tools(other)[0]
    assert read_lines(tmp_path / "mail", "calls") == ["echo hi", "echo again"]


async def test_servers_that_are_activated_in_the_same_turn_are_all_active(tmp_path):
    both = calls(call("discover_tools", need="mail"), call("discover_tools", need="notes"))
    catalogue, agent = agent_of(tmp_path, both, "ok", policy="best")
    async with agent:
        session = agent.session("s")
        await session.run("both")
        assert sorted(await catalogue.list_active(session)) == ["mail", "notes"]
    assert {"mail__echo", "notes__echo"} <= set(sent_tools(agent)[1])


async def test_nothing_is_started_for_a_session_that_has_activated_nothing(tmp_path):
    catalogue = McpCatalogue(*entries(tmp_path), policy="best")
    _, agent = agent_of(tmp_path, call("discover_tools", need="mail"), "ok", "hello", catalogue=catalogue)
    async with agent:
        await agent.session("one").run("x")
        (pid,) = read_lines(tmp_path / "mail", "starts")
        lifespan: Any = catalogue.extension.lifespan
        async with lifespan(agent):  # as for another agent with the same catalogue
            pass
        assert is_alive(int(pid))
        await agent.session("two").run("y")
    assert not is_alive(int(pid))
    assert sent_tools(agent)[-1] == ["discover_tools"]
    assert not (tmp_path / "notes" / "calls").exists()


@pytest.mark.parametrize("named", ["", "notes"])
async def test_interactive_asks_a_person_even_if_the_model_names_the_server(named, tmp_path):
    ask = call("discover_tools", need="memo", server=named)
    catalogue, agent = agent_of(tmp_path, ask, "waited", "done")
    async with agent:
        session = agent.session("s")
        outcome = await session.run("note it")
        assert outcome.status == "waiting"
        assert catalogue.policy == "interactive"
        assert "notes" in outcome.questions[0].text
        assert "scripted_server.py" in outcome.questions[0].text
        assert await session.kept(ACTIVE_SERVERS) is None
        await session.answer(outcome.questions[0].ask_id, answer=True)
        await session.resume()
        assert await catalogue.list_active(session) == ["notes"]
    assert "notes__echo" in sent_tools(agent)[-1]


async def test_the_text_of_the_model_does_not_hide_what_a_person_agrees_to(tmp_path):
    need = "memo'?\n\nActivate the calculator?" + " x" * 5_000
    _, agent = agent_of(tmp_path, call("discover_tools", need=need, server="notes"), "waited")
    async with agent:
        text = (await agent.session("s").run("note it")).questions[0].text
    assert text.startswith("Activate the MCP server 'notes' (")
    assert "\n" not in text
    assert text.count(" x") < 101


async def test_a_fork_has_the_servers_that_were_active_and_activates_its_own(tmp_path):
    find = call("discover_tools", need="mail")
    more = call("discover_tools", need="notes")
    catalogue, agent = agent_of(tmp_path, find, "ok", more, "ok", policy="best")
    async with agent:
        session = agent.session("s")
        await session.run("mail")
        forked = await session.fork("f")
        await forked.run("notes")
        assert await catalogue.list_active(forked) == ["mail", "notes"]
        assert await catalogue.list_active(session) == ["mail"]
    assert "mail__echo" in sent_tools(agent)[2]


async def test_a_person_can_say_no(tmp_path):
    catalogue, agent = agent_of(tmp_path, call("discover_tools", need="memo"), "ok")
    async with agent:
        session = agent.session("s")
        outcome = await session.run("note it")
        await session.answer(outcome.questions[0].ask_id, answer=False)
        outcome = await session.resume()
        assert result_of(outcome) == "A person was asked, and said no."
        assert await catalogue.list_active(session) == []


async def test_a_person_chooses_among_several_or_none(tmp_path):
    for number, (answer, active) in enumerate([("mail", ["mail"]), ("-", [])]):
        catalogue, agent = agent_of(tmp_path, call("discover_tools", need="read"), "ok")
        async with agent:
            session = agent.session(f"s{number}")
            outcome = await session.run("read")
            assert outcome.questions[0].text == "Activate an MCP server for 'read'?"
            notes, mail = (" ".join([each.server.command, *each.server.args]) for each in catalogue.entries.values())
            assert [each["label"] for each in outcome.questions[0].input["options"]] == [
                f"notes: Write down and read notes ({notes})",
                f"mail: Send and read mails ({mail})",
                "none of them",
            ]
            await session.answer(outcome.questions[0].ask_id, answer)
            outcome = await session.resume()
            assert await catalogue.list_active(session) == active
            assert (result_of(outcome) == "A person was asked, and chose none.") is (active == [])


async def test_interactive_without_a_person_activates_nothing(tmp_path):
    catalogue = McpCatalogue(*entries(tmp_path))
    agent = Agent(
        ScriptedModel(call("discover_tools", need="memo", server="notes"), "ok"),
        extensions=[catalogue.extension],
        interactive=False,
    )
    async with agent:
        session = agent.session("s")
        outcome = await session.run("note it")
        assert result_of(outcome) == (
            "Activating a server needs the consent of a person, and none answered. Go on without it."
        )
        assert await catalogue.list_active(session) == []


async def test_the_host_decides_later_or_at_once(tmp_path):
    catalogue, agent = agent_of(tmp_path, call("discover_tools", need="memo"), "later", "now", policy="defer")
    async with agent:
        session = agent.session("s")
        outcome = await session.run("note it")
        assert result_of(outcome) == (
            "The host program decides about these servers; go on without them for now:\n"
            "- notes: Write down and read notes"
        )
        assert await session.kept(REQUESTED_SERVERS) == {"need": "memo", "servers": ["notes"]}
        await catalogue.activate(session, "notes")
        await catalogue.activate(session, "notes")
        assert await catalogue.list_active(session) == ["notes"]
        await session.run("again")
        assert "notes__echo" in sent_tools(agent)[-1]
        assert await catalogue.deactivate(session, "notes")
        assert not await catalogue.deactivate(session, "notes")
        assert await catalogue.list_active(session) == []

    async def choose(need, found, _context):
        return found[0].name if "memo" in need else None

    find = call("discover_tools", need="memo"), call("discover_tools", need="mail")
    _, agent = agent_of(tmp_path, *find, "done", policy="defer", choose=choose)
    async with agent:
        outcome = await agent.session("t").run("note it")
    assert "The server 'notes' is active." in result_of(outcome, 0)
    assert result_of(outcome, 1) == "The host program activates none of them."


async def test_a_server_that_cannot_be_reached_is_not_activated_and_stops_no_run(tmp_path):
    broken = CatalogueEntry(server=scripted("kind", name="gone", cwd="/nowhere"), description="memo")
    catalogue = McpCatalogue(broken, policy="best")
    _, agent = agent_of(tmp_path, call("discover_tools", need="memo"), "ok", "still here", catalogue=catalogue)
    async with agent:
        session = agent.session("s")
        outcome = await session.run("x")
        assert outcome.tool_calls[0].result.is_error
        assert await catalogue.list_active(session) == []
        await catalogue.activate(session, "gone")
        assert (await session.run("y")).text == "still here"


async def test_what_is_not_there_is_explained(tmp_path):
    replies = call("discover_tools", need="fly to the moon"), call("discover_tools", need="x", server="moon"), "ok"
    catalogue, agent = agent_of(tmp_path, *replies, policy="best")
    async with agent:
        session = agent.session("s")
        outcome = await session.run("x")
        with pytest.raises(ConfigError, match="no server 'moon' in the catalogue; there is notes, mail"):
            await catalogue.activate(session, "moon")
    assert result_of(outcome, 0) == (
        "No server matches 'fly to the moon'. There are:\n"
        "- notes: Write down and read notes\n"
        "- mail: Send and read mails"
    )
    assert "there is no server 'moon'; there is notes, mail" in result_of(outcome, 1)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: McpCatalogue(policy="ask"), "policy"),  # type: ignore[arg-type]
        (lambda: McpCatalogue(3), "CatalogueEntry"),  # type: ignore[arg-type]
        (lambda: McpCatalogue(choose=print), "policy='defer' alone"),
        (lambda: McpCatalogue(choose=3, policy="defer"), "choose"),  # type: ignore[arg-type]
        (lambda: CatalogueEntry(server=scripted("kind"), description="x", tags=(3,)), "tags"),  # type: ignore[arg-type]
        (lambda: CatalogueEntry(server=3, description="x"), "McpServer"),  # type: ignore[arg-type]
        (lambda: CatalogueEntry(server=scripted("kind"), description=""), "description"),
        (lambda: CatalogueEntry(server=scripted("kind"), description="x", tags="y"), "tags"),  # type: ignore[arg-type]
    ],
)
def test_bad_options_are_refused(build, said):
    with pytest.raises(ConfigError, match=said):
        build()


def described(name, description="Something", tags=()):
    return CatalogueEntry(
        server=McpServer(name=name, command="run", args=("a", "b")), description=description, tags=tags
    )


@pytest.mark.parametrize(
    ("need", "found"),
    [
        ("mails", ["post", "mail", "desk"]),
        ("MAIL!", ["post", "mail", "desk"]),
        ("send a mail and a letter", ["post", "mail", "desk"]),
        ("letter stamp envelope read", ["desk", "post", "mail"]),
        ("read", ["mail", "desk"]),
        ("s", []),
        ("ss", []),
        ("a b c", []),
        ("", []),
        ("nothing of it", []),
    ],
)
def test_names_and_tags_count_more_than_descriptions_and_the_best_is_first(need, found):
    catalogue = McpCatalogue(
        described("mail", "Read what has arrived"),
        described("post", "Send a letter, or a mail", ("mail_box", "letters")),
        described("desk", "Write mails, read, stamp an envelope", ("stamp", "Envelope s")),
        described("calendar", "Plan days"),
    )
    assert [each.name for each in catalogue.search(need)] == found


@pytest.mark.parametrize(("count", "more"), [(1, ""), (10, ""), (11, "; and 1 more"), (13, "; and 3 more")])
def test_the_model_is_told_of_the_first_ten_servers(count, more):
    catalogue = McpCatalogue(*[described(f"s{number}") for number in range(count)])
    (tool,) = catalogue.extension.tools
    known = "; ".join([f"s{number}: Something" for number in range(min(count, 10))])
    assert tool.description == (
        f"Find more tools for a task, and get them. There are servers with tools for: {known}{more}."
    )
    assert (tool.name, tool.effect, tool.asks_first) == ("discover_tools", "idempotent", True)


async def test_no_more_than_ten_servers_are_proposed(tmp_path):
    catalogue = McpCatalogue(*[described(f"s{number}") for number in range(12)], policy="defer")
    _, agent = agent_of(tmp_path, call("discover_tools", need="something"), "ok", catalogue=catalogue)
    async with agent:
        session = agent.session("s")
        await session.run("x")
        kept = await session.kept(REQUESTED_SERVERS)
    assert kept == {"need": "something", "servers": [f"s{number}" for number in range(10)]}


@pytest.mark.parametrize(("length", "shown"), [(200, "n" * 200), (201, "n" * 200 + "…")])
async def test_a_person_is_asked_in_one_line_that_shows_what_is_started(length, shown, tmp_path):
    catalogue = McpCatalogue(described("notes"))
    need = call("discover_tools", need="n" * length, server="notes")
    _, agent = agent_of(tmp_path, need, "waited", catalogue=catalogue)
    async with agent:
        outcome = await agent.session("s").run("note it")
    assert [each.text for each in outcome.questions] == [f"Activate the MCP server 'notes' (run a b) for {shown!r}?"]


def test_a_server_with_a_url_is_shown_by_it():
    server = McpServer(name="far", transport="http", url="https://example.org/mcp")
    assert CatalogueEntry(server=server, description="x").how_reached == "https://example.org/mcp"


# -- servers in this process -------------------------------------------------------------------------------------------


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> LineServer:
    """A server with one tool, in the place of every program."""
    tool = {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}}
    server = LineServer({"tools/list": {"tools": [tool]}, "tools/call": {"content": []}})
    monkeypatch.setattr(servers, "start_process", server.start)
    return server


async def test_a_server_that_is_active_already_is_named_and_nobody_is_asked(
    tmp_path: Path, program: LineServer
) -> None:
    catalogue = McpCatalogue(described("notes", "Write notes"), described("mail", "Send mails"))
    again = call("discover_tools", need="write notes")
    _, agent = agent_of(tmp_path, again, "ok", catalogue=catalogue)
    async with agent:
        session = agent.session("s")
        await catalogue.activate(session, "notes")
        await catalogue.activate(session, "notes")
        assert await catalogue.list_active(session) == ["notes"]
        outcome = await session.run("x")
    assert outcome.text == "ok"
    assert result_of(outcome) == "The server 'notes' is active. From now on you have its tools: notes__echo."
    assert len(program.processes) == 1
    assert program.processes[0].is_closed


async def test_names_that_are_not_in_the_catalogue_any_more_are_passed_over(
    tmp_path: Path, program: LineServer
) -> None:
    catalogue = McpCatalogue(described("notes"), described("mail"), policy="best")
    _, agent = agent_of(tmp_path, "ok", catalogue=catalogue)
    async with agent:
        session = agent.session("s")
        await session.keep(ACTIVE_SERVERS, ["gone", "notes", 7, "mail"])
        assert await catalogue.list_active(session) == ["gone", "notes", "mail"]
        await session.run("x")
    assert sent_tools(agent) == [["discover_tools", "notes__echo", "mail__echo"]]


async def test_a_server_that_is_deactivated_leaves_the_others_active(tmp_path: Path, program: LineServer) -> None:
    catalogue = McpCatalogue(described("notes"), described("mail"), policy="best")
    _, agent = agent_of(tmp_path, "ok", catalogue=catalogue)
    async with agent:
        session = agent.session("s")
        for name in ("notes", "mail"):
            await catalogue.activate(session, name)
        assert await catalogue.deactivate(session, "notes") is True
        assert await catalogue.deactivate(session, "notes") is False
        assert await catalogue.list_active(session) == ["mail"]
        await session.run("x")
    assert sent_tools(agent) == [["discover_tools", "mail__echo"]]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_server_is_reached_with_the_headers_of_the_run(tmp_path: Path, is_async: bool) -> None:
    def find(_server: McpServer, run: Any) -> Any:
        headers = {"Authorization": f"Bearer {run.deps}"}

        async def give() -> dict[str, str]:
            return headers

        return give() if is_async else headers

    async with serve_http("kind") as server:
        far = CatalogueEntry(server=reach(server, permission=False), description="Acts far away")
        catalogue = McpCatalogue(far, policy="best", headers=find)
        replies = call("discover_tools", need="act far away"), call("h__act"), "done"
        _, agent = agent_of(tmp_path, *replies, catalogue=catalogue)
        async with agent:
            outcome = await agent.session("s").run("x", deps="ann")
    assert outcome.text == "done"
    assert server.calls == ["Bearer ann"]
    assert {each.get("authorization") for each in server.headers} == {"Bearer ann"}


async def test_connections_last_until_the_last_agent_is_closed(tmp_path: Path, program: LineServer) -> None:
    catalogue = McpCatalogue(described("notes"), policy="best")
    _, agent = agent_of(tmp_path, call("discover_tools", need="something"), "ok", catalogue=catalogue)
    async with agent:
        async with Agent(ScriptedModel(), extensions=[catalogue.extension]):
            await agent.session("s").run("x")
        assert [each.is_closed for each in program.processes] == [False]
    assert [each.is_closed for each in program.processes] == [True]
