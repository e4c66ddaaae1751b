"""`perdure permissions`: rules and grants, what would become of a call, and taking a grant back."""

import asyncio
import json

import pytest

from perdure import Agent, Permissions, tool
from perdure.permissions import GrantFile, Verdict
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import basic_tools
from tests.security.emulator import draw_rows

ARGUMENTS = json.dumps({"path": "a.txt", "text": "hello"})
CONFIG = '[permissions]\ndeny = ["calculate"]\nask = ["read_text"]\n'


@pytest.fixture
def granted(perdure, tmp_path):
    """Answers that last: one for the session `one`, one for every session. Returns a function that lists the grants."""

    async def run(session_id: str, scope: str, covers: str) -> None:
        def answer(requests):
            return [Verdict(allow=True, scope=scope, covers=covers, by="Ann")] * len(requests)  # type: ignore[arg-type]

        gate = Permissions(handler=answer, grants=GrantFile(tmp_path / "home" / "grants.jsonl"))
        model = ScriptedModel(call("write_text", path=f"{session_id}.txt", text="hello"), "Done.")
        store = open_store(f"sqlite:{tmp_path}/home/sessions.db")
        async with Agent(model, tools=basic_tools(tmp_path), permission=gate, store=store) as agent:
            await agent.session(session_id).run("Go.")
        await store.aclose()

    asyncio.run(run("one", "session", "tool"))
    asyncio.run(run("two", "forever", "target"))

    def listed(*options: str) -> list[dict]:
        result = perdure("permissions", "list", "--json", *options)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return listed


def test_rules_and_grants_of_all_sessions_are_listed(perdure, granted, tmp_path):
    (tmp_path / "perdure.toml").write_text(CONFIG, encoding="utf-8")
    rules = [each for each in granted() if each["kind"] == "rule"]
    assert [each["rule"] for each in rules] == ["deny('calculate')", "ask('read_text')"]
    grants = {each["scope"]: each for each in granted() if each["kind"] == "grant"}
    assert {*grants} == {"session", "forever"}
    assert (grants["session"]["session_id"], grants["session"]["by"]) == ("one", "Ann")
    assert grants["forever"]["target"].endswith("two.txt")
    shown = perdure("permissions", "list")
    assert "| rule: \"deny('calculate')\"" in shown.stdout
    assert f"| {grants['session']['grant_id']} (session one, for tool): " in shown.stdout
    assert f"| {grants['forever']['grant_id']} (forever, for target): " in shown.stdout
    assert '|   by: "Ann"' in shown.stdout


def test_the_grants_of_one_session_are_listed_with_those_of_all(granted):
    assert {each["scope"] for each in granted("--session", "two") if each["kind"] == "grant"} == {"forever"}
    assert {each["scope"] for each in granted("--session", "one") if each["kind"] == "grant"} == {"session", "forever"}


def test_where_there_is_nothing_it_says_so(perdure):
    result = perdure("permissions", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no configuration in use has rules\nthere are no grants\n"
    assert perdure("permissions", "list", "--json").output == ""


@pytest.mark.usefixtures("granted")
@pytest.mark.parametrize(
    ("config", "arguments", "verdict"),
    [
        ("", ["write_text", ARGUMENTS], "ask"),
        ("", ["calculate", '{"expression": "1"}'], "allow"),
        (CONFIG, ["calculate", '{"expression": "1"}'], "deny"),
        (CONFIG, ["read_text", '{"path": "a.txt"}'], "ask"),
    ],
)
def test_a_call_is_explained(perdure, tmp_path, config, arguments, verdict):
    if config:
        (tmp_path / "perdure.toml").write_text(config, encoding="utf-8")
    result = perdure("permissions", "explain", *arguments, "--json")
    assert json.loads(result.stdout)["verdict"] == verdict
    assert not (tmp_path / "a.txt").exists()
    shown = perdure("permissions", "explain", *arguments).stdout
    assert shown.startswith({"ask": "| asked about\n", "allow": "| allowed\n", "deny": "| denied\n"}[verdict])
    assert "| because: " in shown


def test_a_grant_is_revoked_and_the_call_is_asked_about_again(perdure, granted):
    for grant in [each for each in granted() if each["kind"] == "grant"]:
        result = perdure("permissions", "revoke", grant["grant_id"])
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr.startswith(f"{grant['grant_id']} is revoked: ")
        again = perdure("permissions", "revoke", grant["grant_id"])
        assert (again.exit_code, "`perdure permissions list` lists them" in again.stderr) == (2, True)
    assert [each for each in granted() if each["kind"] == "grant"] == []


@pytest.fixture
def kept_by_no_one(perdure, tmp_path):
    """A yes for ever in the logs of `g1` and `g2`, given to programs that keep no grants. Returns its id."""

    @tool(permission=True)
    async def refund(order: str) -> str:
        """Pay money back."""
        return f"{order} is paid back"

    answer = Verdict(allow=True, scope="forever", covers="tool", by="boss")

    async def run() -> str:
        gate = Permissions()
        for name in ("g1", "g2"):
            gate = Permissions(handler=lambda requests: [answer] * len(requests))
            store = open_store(f"sqlite:{tmp_path}/home/sessions.db")
            clerk = Agent(ScriptedModel(call("refund", order="7"), "Done."), name="clerk", tools=[refund])
            model = ScriptedModel(call("clerk", task="Pay."), "Done.")
            async with Agent(model, tools=[clerk.as_tool()], permission=gate, store=store) as agent:
                await agent.session(name).run("Go.")
            await store.aclose()
        return next(iter(gate.grants)).grant_id

    return asyncio.run(run())


def test_a_grant_for_ever_that_only_logs_have_is_listed_for_their_sessions_and_revoked_in_all(perdure, kept_by_no_one):
    grant_id = kept_by_no_one
    shown = perdure("permissions", "list").stdout
    for name in ("g1", "g2"):
        assert f"| {grant_id} (forever, in {name}, for tool): " in shown
        assert (
            f"grant {grant_id} (forever): allow('refund', action='refund')" in perdure("sessions", "show", name).stdout
        )
    of_one = [json.loads(line) for line in perdure("permissions", "list", "--json", "-s", "g1").stdout.splitlines()]
    assert [(each["grant_id"], each["session_id"]) for each in of_one] == [(grant_id, "g1")]
    assert perdure("permissions", "revoke", grant_id).exit_code == 0
    assert perdure("permissions", "list").stderr.endswith("there are no grants\n")
    for name in ("g1", "g2"):
        assert grant_id not in perdure("sessions", "show", name).stdout
    assert f"there is no grant '{grant_id}'" in perdure("permissions", "revoke", grant_id).stderr


def test_a_grant_for_ever_is_revoked_in_one_session_alone_if_that_is_asked_for(perdure, kept_by_no_one):
    assert perdure("permissions", "revoke", kept_by_no_one, "--session", "g1").exit_code == 0
    shown = perdure("permissions", "list").stdout
    assert "in g1" not in shown
    assert f"| {kept_by_no_one} (forever, in g2, for tool): " in shown


def test_what_is_revoked_in_the_file_is_revoked_in_the_log_too(perdure, granted):
    grant = next(each for each in granted() if each["kind"] == "grant" and each["scope"] == "forever")
    assert perdure("permissions", "revoke", grant["grant_id"]).exit_code == 0
    assert grant["grant_id"] not in perdure("permissions", "list").stdout
    assert grant["grant_id"] not in perdure("sessions", "show", "two").stdout


def test_a_revocation_is_a_line_of_json_if_that_is_asked_for(perdure, granted):
    grant = next(each for each in granted() if each["kind"] == "grant")
    done = json.loads(perdure("permissions", "revoke", grant["grant_id"], "--json").stdout)
    assert (done["grant_id"], done["revoked"]) == (grant["grant_id"], True)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["explain", "nothing"], 2, "there is no tool 'nothing'"),
        (["explain", "write_text", "[]"], 2, "the arguments are no JSON object"),
        (["explain", "write_text", "{"], 2, "the arguments are no JSON object"),
        (["explain", "write_text", "{}"], 2, "invalid arguments for 'write_text'"),
        (["explain", "now", "{}", "--session", "nobody"], 66, "there is no session 'nobody'"),
        (["list", "--session", "nobody"], 66, "there is no session 'nobody'"),
        (["revoke", "grant_0"], 2, "there is no grant 'grant_0'"),
    ],
)
def test_what_cannot_work_says_why(perdure, command, code, message):
    result = perdure("permissions", *command)
    assert result.exit_code == code, result.output
    assert message in result.stderr


def test_help_has_examples(perdure):
    assert "perdure permissions list" in perdure("permissions").stdout
    for command in ("list", "explain", "revoke"):
        assert f"perdure permissions {command}" in perdure("permissions", command, "--help").stdout


def test_a_hostile_target_cannot_imitate_another_grant(perdure, tmp_path):
    @tool(permission=True, target="what")
    async def act(what: str) -> str:
        """Do it."""
        return what

    fake = f"x{' ' * 200}\n| grant_0123456789abcdef (forever): \"deny('*')\"\x1b[2J"

    async def run() -> None:
        def answer(requests):
            return [Verdict(allow=True, scope="session", covers="target")] * len(requests)

        store = open_store(f"sqlite:{tmp_path}/home/sessions.db")
        model = ScriptedModel(call("act", what=fake), "Done.")
        async with Agent(model, tools=[act], permission=Permissions(handler=answer), store=store) as agent:
            await agent.session("s").run("Go.")
        await store.aclose()

    asyncio.run(run())
    shown = perdure("permissions", "list").stdout
    rows = draw_rows(shown.replace("\n", "\r\n"), 80)
    assert len([row for row in rows if row.startswith("| grant_")]) == 1
    assert all(row.startswith(("| ", ": ", "|+")) for row in rows)


def test_the_rule_and_the_grant_that_decide_are_shown(perdure, granted, tmp_path):
    (grant,) = [each for each in granted("--session", "one") if each["scope"] == "session"]
    result = perdure("permissions", "explain", "--session", "one", "write_text", ARGUMENTS, "--json")
    why = f"allowed before, for {grant['scope']}"
    assert json.loads(result.stdout) == {"verdict": "allow", "why": why, "rule": "", "grant_id": grant["grant_id"]}
    rows = perdure("permissions", "explain", "--session", "one", "write_text", ARGUMENTS).stdout.splitlines()
    assert rows[:2] == ["| allowed", f'| because: "{why}"']
    assert rows[2].startswith(f"| {grant['grant_id']} (session one, for tool): ")
    (tmp_path / "perdure.toml").write_text(CONFIG, encoding="utf-8")
    assert perdure("permissions", "explain", "calculate", '{"expression": "1"}').stdout.splitlines() == [
        "| denied",
        "| because: \"denied by the rule deny('calculate')\"",
        "| rule: \"deny('calculate')\"",
    ]
