"""The argument `network` of bash: one command reaches the network, after a person was asked."""

import socket
import threading

import pytest

from perdure import Agent, Permissions, allow
from perdure.hosts import LocalShell
from perdure.permissions import command
from perdure.testing import ScriptedModel, call
from perdure.tools import shell_tools

pytestmark = pytest.mark.needs("bubblewrap")


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                client.close()

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def connect(port):
    return f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected'"


async def run(root, rules, *calls):
    async with LocalShell(root, sandbox="require") as shell:
        agent = Agent(ScriptedModel(*calls, "Done."), tools=shell_tools(shell), permission=Permissions(*rules))
        outcome = await agent.run("Go.")
    return [each for message in outcome.new_messages for each in message.tool_results]


async def test_one_command_reaches_the_network_and_the_next_does_not(tmp_path, port):
    rules = [allow("bash"), allow("bash", action="network", target=command("bash"))]
    calls = [call("bash", command=connect(port), **options) for options in ({"network": True}, {})]
    online, offline = await run(tmp_path, rules, *calls)
    assert (online.text, online.labels) == ("connected", ("private", "untrusted"))
    assert "connected" not in offline.text
    assert offline.labels == ("private", "untrusted")  # the command before may have left there what it was sent


async def test_a_rule_for_the_tool_does_not_give_the_network(tmp_path, port):
    for rules in ([allow("bash")], [allow("*")], [allow("bash", target=command("bash"))]):
        (result,) = await run(tmp_path, rules, call("bash", command=connect(port), network=True))
        assert result.status == "denied"


async def test_a_command_that_only_reads_is_asked_about_with_the_network(tmp_path):
    (tmp_path / "f").write_text("x")
    quiet, asked = await run(tmp_path, [], call("bash", command="cat f"), call("bash", command="cat f", network=True))
    assert (quiet.status, asked.status) == ("ok", "denied")


async def test_the_output_of_a_background_command_with_network_is_untrusted(tmp_path):
    rules = [allow("bash"), allow("bash", action="network")]
    async with LocalShell(tmp_path, sandbox="require") as shell:
        bash, output, kill = shell_tools(shell)
        session = Agent(ScriptedModel(), tools=[bash, output, kill], permission=Permissions(*rules)).session()
        for options, labels in (({}, ("private",)), ({"network": True}, ("private", "untrusted"))):
            begun = await session.call("bash", {"command": "sleep 60", "background": True, **options})
            job = begun.text.split()[2].rstrip(".")
            assert (await session.call("bash_output", {"job_id": job})).labels == labels
            assert (await session.call("kill_shell", {"job_id": job})).labels == labels


def test_the_description_says_what_the_sandbox_allows(tmp_path):
    for network, expected in ((False, "has no network access (a call can ask for it)"), (True, "has network access")):
        description = shell_tools(LocalShell(tmp_path, sandbox="require", network=network))[0].description
        assert expected in description
        for word in ("working folder", "/tmp", ".git", "perdure.toml", "secrets"):
            assert word in description
    assert "no sandbox" in shell_tools(LocalShell(tmp_path, sandbox="off"))[0].description
