"""`perdure mcp`: servers of the user and of the project, their tools, calls, approvals and logins."""

import asyncio
import json
import queue
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from perdure.mcp import LoginFile, StoredLogin
from tests.mcp.login.protected_server import WAIT_SECONDS, running_protected_server
from tests.mcp.servers import SCRIPT, read_lines

pytestmark = pytest.mark.packages("mcp")

PROGRAM = (sys.executable, "-I", "-S", str(SCRIPT))


@pytest.fixture
def project(perdure, tmp_path, monkeypatch):
    """A project in the working folder."""
    (tmp_path / "project/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def add(perdure, name, behaviour="kind", folder="", *options):
    result = perdure("mcp", "add", *options, name, "--", *PROGRAM, behaviour, str(folder))
    assert result.exit_code == 0, result.output
    return result


def rows(perdure):
    return [json.loads(line) for line in perdure("mcp", "list", "--json").stdout.splitlines()]


def test_a_server_is_added_listed_and_removed(perdure, project, tmp_path):
    assert "there is no MCP server here" in perdure("mcp", "list").stderr
    add(perdure, "one")
    made = perdure("mcp", "add", "two", "--no-try", "--url", "https://x.example/mcp", "--header", "X=${KEY}")
    assert made.exit_code == 0
    path = tmp_path / "home/mcp.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["mcpServers"]["two"] == {
        "type": "http",
        "url": "https://x.example/mcp",
        "headers": {"X": "${KEY}"},
    }
    assert [(each["name"], each["state"], each["source"]) for each in rows(perdure)] == [
        ("one", "used", "user"),
        ("two", "used", "user"),
    ]
    assert "https://x.example/mcp" in perdure("mcp", "list").stdout
    again = perdure("mcp", "add", "one", "--", "x")
    assert again.exit_code == 2
    assert "already: perdure mcp remove one" in again.stderr
    assert perdure("mcp", "remove", "one").exit_code == 0
    assert [each["name"] for each in rows(perdure)] == ["two"]
    assert "no server 'one'" in perdure("mcp", "remove", "one").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("x",), "give either a command"),
        (("x", "--url", "https://x.example", "--", "y"), "give either a command"),
        (("a b", "--", "y"), "letters, digits"),
        (("x", "--url", "ftp://x"), "begins with https://"),
        (("x", "--url", "https://x.example", "-e", "A=1"), "--env is for a server with a command"),
        (("x", "--header", "A=1", "--", "y"), "--header is for a server with --url"),
        (("x", "-e", "A", "--", "y"), "write NAME=VALUE"),
    ],
)
def test_a_server_that_cannot_be_is_not_added(arguments, said, perdure, tmp_path):
    result = perdure("mcp", "add", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "home/mcp.json").exists()


def test_servers_of_a_project_need_trust_and_those_of_the_user_come_first(perdure, project):
    add(perdure, "same")
    note = add(perdure, "same", "kind", "", "--project")
    assert "perdure trust .mcp.json" in note.stderr
    add(perdure, "theirs", "kind", "", "--project")
    assert [each["state"] for each in rows(perdure)] == ["used", "untrusted", "untrusted"]
    result = perdure("mcp", "tools", "theirs")
    assert result.exit_code == 2
    assert "not trusted yet: perdure trust .mcp.json" in result.stderr
    assert perdure("trust", "--yes", ".mcp.json").exit_code == 0
    assert [each["state"] for each in rows(perdure)] == ["used", "hidden", "used"]
    file = json.loads(Path(".mcp.json").read_text())
    file["mcpServers"]["theirs"]["disabled"] = True
    Path(".mcp.json").write_text(json.dumps(file))
    assert [each["state"] for each in rows(perdure)] == ["used", "untrusted", "untrusted"]
    perdure("trust", "--yes", ".mcp.json")
    assert "is disabled in" in perdure("mcp", "tools", "theirs").stderr
    assert perdure("mcp", "remove", "--project", "theirs").exit_code == 0


def test_tools_are_listed_and_called(perdure, project):
    add(perdure, "one", "kind", project)
    listed = perdure("mcp", "tools", "one")
    assert listed.exit_code == 0, listed.output
    assert "one__echo" in listed.stdout
    assert json.loads(perdure("mcp", "tools", "one", "--json").stdout.splitlines()[0])["name"].startswith("one__")
    called = perdure("mcp", "call", "one", "echo", '{"text": "hi"}')
    assert (called.exit_code, called.stdout) == (0, "echo hi\n")
    as_json = perdure("mcp", "call", "one", "one__echo", '{"text": "ho"}', "--json")
    assert json.loads(as_json.stdout)["text"] == "echo ho"
    assert read_lines(project, "calls") == ["echo hi", "echo ho"]
    assert perdure("mcp", "call", "one", "echo", '{"text": 3}').exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("call", "one", "echo", "[]"), "no JSON object"),
        (("call", "one", "gone"), "no tool 'gone' that may be used; there is"),
        (("call", "two", "echo"), "no MCP server 'two'; there is one"),
        (("tools", "two"), "no MCP server 'two'; there is one"),
        (("login", "one"), "nothing to log in to"),
        (("login", "two"), "no MCP server 'two'"),
    ],
)
def test_what_cannot_be_used_is_explained(arguments, said, perdure, project):
    add(perdure, "one")
    result = perdure("mcp", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_change_is_shown_and_approved(perdure, project, tmp_path):
    add(perdure, "one")
    assert perdure("mcp", "tools", "one").exit_code == 0
    assert "nothing of server 'one' waits" in perdure("mcp", "approve", "one").stderr
    pins = json.loads((tmp_path / "home/mcp_pins.json").read_text())
    pins["one"]["tools"]["echo"] = {"digest": "x", "texts": {"description": "what was agreed to"}}
    (tmp_path / "home/mcp_pins.json").write_text(json.dumps(pins))
    off = perdure("mcp", "tools", "one")
    assert "one__echo" not in off.stdout
    assert "echo: off (changed)" in off.stderr
    asked = perdure("mcp", "approve", "one")
    assert asked.exit_code == 2
    assert "what was agreed to" in asked.stdout
    assert "use --yes" in asked.stderr
    assert perdure("mcp", "approve", "one", "echo", "--yes").exit_code == 0
    assert "one__echo" in perdure("mcp", "tools", "one").stdout


def test_a_login_is_shown_and_forgotten(perdure, project, tmp_path):
    perdure("mcp", "add", "two", "--no-try", "--url", "https://x.example/mcp")
    login = StoredLogin(
        url="https://x.example/mcp", resource="r", issuer="i", token_endpoint="t", client_id="c", access_token="SECRET"
    )
    LoginFile(tmp_path / "home/mcp_logins.json").store("two", login)
    listed = perdure("mcp", "list")
    assert "(logged in)" in listed.stdout
    assert "SECRET" not in listed.output
    assert "forgotten" in perdure("mcp", "logout", "two").stderr
    assert "not there" in perdure("mcp", "logout", "two").stderr


@pytest.fixture
def protected():
    """A server that wants a login, on a thread of its own: its URL and its accounts."""
    started: queue.Queue[Any] = queue.Queue()

    async def serve():
        is_over = asyncio.Event()
        async with running_protected_server() as (url, accounts):
            started.put((url, accounts, asyncio.get_running_loop(), is_over))
            await is_over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    url, accounts, loop, is_over = started.get(timeout=WAIT_SECONDS)
    yield url, accounts
    loop.call_soon_threadsafe(is_over.set)
    thread.join(WAIT_SECONDS)


def test_a_person_logs_in_and_the_tools_can_be_used(perdure, project, tmp_path, protected, monkeypatch):
    url, accounts = protected

    def consent(address):
        def follow():
            with httpx2.Client(timeout=WAIT_SECONDS) as http:
                http.get(http.get(address).headers["location"])

        threading.Thread(target=follow, daemon=True).start()
        return True

    monkeypatch.setattr("webbrowser.open", consent)
    assert perdure("mcp", "add", "safe", "--url", url).exit_code == 0
    before = perdure("mcp", "tools", "safe")
    assert before.exit_code == 1
    assert "wants a login (HTTP status 401), as with perdure mcp login" in before.stderr
    done = perdure("mcp", "login", "safe")
    assert done.exit_code == 0, done.output
    assert "logged in to 'safe'" in done.stderr
    path = tmp_path / "home/mcp_logins.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    tokens = [*accounts.access, *accounts.refresh]
    assert len(tokens) == 2
    called = perdure("mcp", "call", "safe", "whoami")
    assert (called.exit_code, called.stdout) == (0, "you\n"), called.output
    assert "(logged in)" in perdure("mcp", "list").stdout
    assert not [each for each in tokens if each in done.output + called.output]
    assert perdure("mcp", "logout", "safe").exit_code == 0
    assert perdure("mcp", "tools", "safe").exit_code == 1


def test_a_login_that_a_server_refuses_says_why(perdure, project, protected, monkeypatch):
    url, accounts = protected
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("nothing is opened"))
    perdure("mcp", "add", "other", "--url", url.removesuffix("/mcp") + "/other")
    result = perdure("mcp", "login", "other")
    assert result.exit_code == 2
    assert "does not say how to log in" in result.stderr
    assert accounts.asked == []


def test_a_run_has_the_tools_of_the_servers(perdure, project):
    add(perdure, "one", "kind", project)
    result = perdure("run", "--context", "--yes", "echo the text hello")
    assert result.exit_code == 0, result.output
    assert read_lines(project, "calls")


def test_a_damaged_file_is_reported_and_left_alone(perdure, project, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/mcp.json").write_text("{")
    assert perdure("mcp", "list").exit_code == 2
    result = perdure("mcp", "add", "x", "--", "y")
    assert result.exit_code == 2
    assert "mcp.json" in result.stderr
    assert (tmp_path / "home/mcp.json").read_text() == "{"


def test_without_a_subcommand_the_help_is_printed(perdure):
    assert "perdure mcp add time" in perdure("mcp").stdout


@pytest.fixture
def changed(perdure, project, tmp_path):
    """A server `one` whose tool `echo` is another than the one that was approved."""
    add(perdure, "one")
    perdure("mcp", "tools", "one")
    pins = json.loads((tmp_path / "home/mcp_pins.json").read_text())
    pins["one"]["tools"]["echo"] = {"digest": "x", "texts": {"description": "what was agreed to"}}
    (tmp_path / "home/mcp_pins.json").write_text(json.dumps(pins))


@pytest.mark.usefixtures("changed")
def test_a_change_is_a_line_of_json_for_programs(perdure):
    listed = [json.loads(line) for line in perdure("mcp", "tools", "one", "--json").stdout.splitlines()]
    off = listed[-1]
    assert {"name": off["name"], "off": off["off"]} == {"name": "echo", "off": "changed"}
    assert "what was agreed to" in off["difference"]
    shown = perdure("mcp", "approve", "one", "--yes", "--json")
    assert [json.loads(line) for line in shown.stdout.splitlines()] == [off]
    assert shown.stderr == "the changes of 'one' are approved\n"
    assert perdure("mcp", "approve", "one").stderr == "nothing of server 'one' waits for approval\n"


@pytest.mark.usefixtures("changed")
def test_changes_of_other_tools_are_not_approved_with_a_named_one(perdure):
    assert perdure("mcp", "approve", "one", "other", "--yes").stderr == "nothing of server 'one' waits for approval\n"
    assert "one__echo" not in perdure("mcp", "tools", "one").stdout


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(("answer", "code", "is_approved"), [("n\n", 1, False), ("y\n", 0, True)])
def test_at_a_terminal_a_change_is_approved_by_a_person(perdure, monkeypatch, answer, code, is_approved):
    monkeypatch.setattr(
        "perdure._cli.services.mcp.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True), stdout=sys.stdout)
    )
    asked = perdure("mcp", "approve", "one", stdin=answer)
    assert asked.exit_code == code
    assert "| echo: changed\n" in asked.stdout
    assert asked.stderr.startswith("Approve what is shown above? [y/N]: ")
    assert ("one__echo" in perdure("mcp", "tools", "one").stdout) == is_approved


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(
    ("answers", "is_approved"), [("n\n", False), ("\n\n\n\n\n\n\n\n\nn\n", False), ("\n" * 9 + "y\n", True)]
)
def test_a_change_that_is_longer_than_the_screen_is_seen_page_by_page(
    perdure, tmp_path, monkeypatch, answers, is_approved
):
    """A server could have what it changed scroll away, and imitate the end of it."""
    imitation = "x\nApprove what is shown above? [y/N]: \n| other: new\n" + "w" * 70 + "| other: new\n"
    pins = json.loads((tmp_path / "home/mcp_pins.json").read_text())
    pins["one"]["tools"]["echo"] = {"digest": "x", "texts": {"description": [imitation, *map(str, range(155))]}}
    (tmp_path / "home/mcp_pins.json").write_text(json.dumps(pins))
    monkeypatch.setattr(
        "perdure._cli.services.mcp.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True), stdout=sys.stdout)
    )
    asked = perdure("mcp", "approve", "one", stdin=answers)
    assert asked.stderr.count("Enter: more, n: do not approve it") == (1 if answers == "n\n" else 9)
    imitated = ("| other", "other", "Approve", "w", "x")
    assert [line for line in asked.stdout.splitlines() if line.startswith(imitated)] == []
    assert ("one__echo" in perdure("mcp", "tools", "one").stdout) == is_approved


def test_a_configuration_that_cannot_be_used_is_noted_and_the_servers_of_the_user_are_listed(perdure, project):
    add(perdure, "one")
    (project / "perdure.toml").write_text("modle = 1\n")
    listed = perdure("mcp", "list")
    assert listed.exit_code == 0
    assert "perdure.toml:1: " in listed.stderr
    assert listed.stdout.split()[:3] == ["used", "user", "one"]


def test_servers_that_are_no_object_are_left_as_they_are(perdure, project):
    Path(".mcp.json").write_text('{"mcpServers": []}')
    result = perdure("mcp", "add", "--project", "x", "--", "y")
    assert (result.exit_code, result.stderr) == (
        2, "error: '.mcp.json' has no object of servers by name: repair it first\n",
    )  # fmt: skip
    assert Path(".mcp.json").read_text() == '{"mcpServers": []}'


# -- servers that cannot be used ---------------------------------------------------------------------------------------


def test_a_server_that_is_added_is_tried(perdure, project, tmp_path):
    made = add(perdure, "one")
    assert "warning" not in made.stderr
    done = json.loads(perdure("mcp", "add", "two", "--json", "--", *PROGRAM, "kind", "").stdout)
    assert (done["name"], "problem" in done) == ("two", False)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["--", "no-such-program", "--x"], "its process has ended"),
        (["--", sys.executable, "-c", "raise SystemExit(3)"], "its process has ended"),
        (["--url", "http://127.0.0.1:9/mcp"], "cannot be reached"),
        (["--url", "http://127.0.0.1:9/mcp", "--header", "X=${NOT_SET_ANYWHERE}"], "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_a_server_that_cannot_be_used_is_added_with_a_warning(perdure, project, tmp_path, command, told):
    made = perdure("mcp", "add", "ghost", *command)
    assert made.exit_code == 0
    assert f"server 'ghost' is in {tmp_path}/home/mcp.json" in made.stderr
    (warning,) = [each for each in made.stderr.splitlines() if each.startswith("warning: ")]
    assert warning.startswith("warning: MCP server 'ghost' cannot be used: ")
    assert told in warning
    assert warning.endswith("until perdure mcp remove ghost")
    assert rows(perdure)[0]["name"] == "ghost"


def test_a_server_is_not_tried_if_that_is_not_wanted(perdure, project, tmp_path):
    made = perdure(
        "mcp", "add", "--no-try", "ghost", "--", sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"
    )
    assert (made.exit_code, "warning" in made.stderr) == (0, False)
    assert not (tmp_path / "ran").exists()


def test_a_program_that_is_not_there_is_named_in_the_list(perdure, project):
    perdure("mcp", "add", "--no-try", "ghost", "--", "no-such-program")
    add(perdure, "one")
    listed = perdure("mcp", "list")
    assert listed.stderr == (
        "warning: MCP server 'ghost' cannot be started: there is no program 'no-such-program' on PATH\n"
    )
    assert [each["problem"] for each in rows(perdure)] == ["there is no program 'no-such-program' on PATH", ""]


def test_a_program_that_is_not_at_its_path_is_named_in_the_list(perdure, project, tmp_path):
    (tmp_path / "text").write_text("no program")
    perdure("mcp", "add", "--no-try", "gone", "--", str(tmp_path / "gone"))
    perdure("mcp", "add", "--no-try", "text", "--", str(tmp_path / "text"))
    add(perdure, "one")
    assert [each["problem"] for each in rows(perdure)] == [
        f"{str(tmp_path / name)!r} is not there, or is no program" for name in ("gone", "text")
    ] + [""]
    assert perdure("mcp", "list").stderr.count("warning: MCP server") == 2


@pytest.mark.parametrize("words", [[], ["-q"], ["--json"]])
def test_a_run_says_at_its_start_which_server_cannot_be_used(perdure, project, words):
    perdure("mcp", "add", "--no-try", "ghost", "--", "no-such-program")
    add(perdure, "one")
    result = perdure("run", "--context", *words, "Calculate 6 * 7")
    assert result.exit_code == 0, result.stderr
    told = [each for each in result.stderr.splitlines() if each.startswith("warning: ")]
    assert len(told) == 1
    assert "the tools of an MCP server cannot be used: MCP server 'ghost'" in told[0]
    assert result.stderr.startswith("warning: ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"mcpServers": nope', "mcp.json:1: this is no JSON"),
        ('{"mcpServers": {"env": {"url": "http://127.0.0.1:9", "headers": {"X": "${NOT_SET_ANYWHERE}"}}}}', "not set"),
    ],
)
def test_a_run_says_at_its_start_which_file_of_servers_cannot_be_used(perdure, project, tmp_path, text, told):
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home/mcp.json").write_text(text)
    for words in ([], ["-q"], ["--json"]):
        result = perdure("run", "--context", *words, "Calculate 6 * 7")
        assert result.exit_code == 0, result.stderr
        (warning,) = [each for each in result.stderr.splitlines() if each.startswith("warning: ")]
        assert warning.startswith("warning: MCP servers are left out: ")
        assert told in warning


def test_the_doctor_connects_to_the_servers_that_are_used(perdure, project):
    perdure("mcp", "add", "--no-try", "ghost", "--", "no-such-program")
    add(perdure, "one")
    Path(".mcp.json").write_text('{"mcpServers": {"foreign": {"command": "no-such-program"}}}')
    result = perdure("doctor", "--json")
    assert result.exit_code == 1
    checks = {each["name"]: each for each in map(json.loads, result.stdout.splitlines())}
    assert checks["MCP server one"]["status"] == "ok"
    assert checks["MCP server ghost"]["status"] == "fail"
    assert "its process has ended" in checks["MCP server ghost"]["finding"]
    assert checks["MCP server ghost"]["advice"] == "repair it, or perdure mcp remove ghost"
    assert "MCP server foreign" not in checks  # nobody has trusted it
