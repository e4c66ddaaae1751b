"""Glue's packages, with what does their work here."""

import base64
import json
import runpy
import subprocess
import sys
import time

import click.testing
import pytest

from perdure import Agent, ConfigError
from perdure._cli.main import root_command
from perdure._models import registry
from perdure.context import Prompts
from perdure.events import ReplyFinished, TextDelta
from perdure.models import ModelInfo, list_provider_statuses, open_model, openai_compatible, register
from perdure.testing import ScriptedModel, call
from perdure.tools import basic_tools
from tests.coming_from.shows import shows
from tests.docs.pages import ROOT
from tests.models.canned import CannedTransport


@shows("glue", "package loop")
def test_the_core_depends_on_nothing_else_of_ours():
    listed = "import sys, perdure._core.run.loop; print(*[name for name in sys.modules if name.startswith('perdure.')])"
    done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    assert "_core" in loaded
    assert loaded <= {"_core", "_facade", "_version"}


@shows("glue", "package cli", "package cmd", "package cmd/glue", "package examples", "package examples/local-agent")
def test_the_command_line_runs_an_agent_and_keeps_its_session(tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PERDURE_MODEL", "demo")
    monkeypatch.chdir(tmp_path)
    runner = click.testing.CliRunner()
    ran = runner.invoke(root_command, ["run", "--session", "sums", "Calculate 6 * 7"])
    assert (ran.exit_code, "42" in ran.stdout) == (0, True)
    again = runner.invoke(root_command, ["run", "--session", "sums", "Calculate 2 ** 10"])
    assert "1024" in again.stdout
    shown = runner.invoke(root_command, ["sessions", "show", "sums"])
    assert "42" in shown.stdout
    assert "1024" in shown.stdout


@shows("glue", "package prompts")
async def test_prompts_are_versions_in_files(tmp_path):
    (tmp_path / "v1.md").write_text("Be brief.\n", encoding="utf-8")
    (tmp_path / "v2.md").write_text("Be kind.\n\n", encoding="utf-8")
    prompts = Prompts(tmp_path, default="v1")
    assert (prompts.versions, prompts.get(), prompts.get("v2")) == (("v1", "v2"), "Be brief.\n", "Be kind.\n")
    with pytest.raises(ConfigError, match="'v3'"):
        prompts.get("v3")
    model = ScriptedModel("Yes.")
    await Agent(model, instructions=prompts.get("v2")).run("Well?")
    assert model.requests[0].instructions.strip() == "Be kind."


class EchoModel:
    def __init__(self, name):
        self.info = ModelInfo(name, "echo")

    async def stream(self, request):
        yield TextDelta(request.messages[-1].text)
        yield ReplyFinished()


@shows("glue", "package providers", "package examples/echo-provider")
async def test_a_provider_of_your_own_is_registered_and_opened_by_name(monkeypatch):
    monkeypatch.setattr(registry, "_factories", {})
    register("echo", EchoModel)
    assert "echo" in registry.providers()
    outcome = await Agent("echo:loud").run("Hello?")
    assert outcome.text == "Hello?"
    model = open_model("echo:quiet")
    assert isinstance(model, EchoModel)
    assert model.info.name == "quiet"


@shows("glue", "package examples", "package examples/echo-provider")
def test_the_examples_are_programs(capsys, monkeypatch):
    monkeypatch.setattr(registry, "_factories", {})
    for name in ("01_hello", "10_custom_provider"):
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        assert capsys.readouterr().out.strip()


@shows("glue", "providers.KeyAvailable")
def test_a_provider_says_whether_its_key_is_there_and_which_variable_to_set(monkeypatch):
    monkeypatch.delenv("NVIDIA_API_KEY", raising=False)

    def status():
        return next(each for each in list_provider_statuses() if each.name == "nvidia")

    assert (status().available, status().variables) == (False, ("NVIDIA_API_KEY",))
    assert "NVIDIA_API_KEY" in status().why
    monkeypatch.setenv("NVIDIA_API_KEY", "none")
    assert status().available


CHAT = b'data: {"choices":[{"delta":{"content":"Rain."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
GEMINI = (
    b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Rain."}]},"finishReason":"STOP"}],'
    b'"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}\n\n'
)
RESPONSES = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"m","output_index":0,'
    b'"content_index":0,"delta":"Rain."}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"r","status":"completed",'
    b'"output":[{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"Rain."}]}],'
    b'"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}}\n\n'
)


@shows("glue", "package providers/gemini", "package providers/nvidia", "package providers/openrouter")
@pytest.mark.parametrize(
    ("spec", "answer", "host", "header"),
    [
        ("gemini:gemini-3.1-pro-preview", GEMINI, "generativelanguage.googleapis.com", "x-goog-api-key"),
        ("nvidia:moonshotai/kimi-k2.6", CHAT, "integrate.api.nvidia.com", "authorization"),
        ("openrouter:openai/gpt-4o", CHAT, "openrouter.ai", "authorization"),
    ],
    ids=["gemini", "nvidia", "openrouter"],
)
async def test_providers_are_opened_by_name(spec, answer, host, header):
    transport = CannedTransport(answer)
    outcome = await Agent(open_model(spec, api_key="key-7", transport=transport)).run("Weather?")
    url, headers, body = transport.posted[0]
    assert outcome.text == "Rain."
    assert host in url
    assert "key-7" in headers[header]
    assert b"Weather?" in body


@shows("glue", "package providers/codex", "package providers/codex/auth")
async def test_the_login_of_the_codex_program_is_used(tmp_path, monkeypatch):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 9000}).encode()).decode().rstrip("=")
    tokens = {"access_token": f"e30.{claims}.sig", "refresh_token": "r", "account_id": "acct-1"}
    (tmp_path / "auth.json").write_text(json.dumps({"tokens": tokens}), encoding="utf-8")
    monkeypatch.delenv("PERDURE_CODEX_AUTH", raising=False)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    transport = CannedTransport(RESPONSES)
    outcome = await Agent(open_model("codex", transport=transport)).run("Weather?")
    url, headers, _ = transport.posted[0]
    assert outcome.text == "Rain."
    assert url == "https://chatgpt.com/backend-api/codex/responses"
    assert headers["authorization"] == f"Bearer {tokens['access_token']}"
    assert headers["chatgpt-account-id"] == "acct-1"
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="codex login"):
        open_model("codex")


TOOL_CALL = (
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"calculate",'
    b'"arguments":"{\\"expression\\": "}}]}}]}\n\n'
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"6 * 7\\"}"}}]},'
    b'"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
)


@shows("glue", "package providers/openaicompat", "package tools")
async def test_any_chat_completions_endpoint_streams_text_and_tool_calls(tmp_path):
    transport = CannedTransport(TOOL_CALL, CHAT)
    model = openai_compatible("http://127.0.0.1:9/v1", "some-model", api_key="key-7", transport=transport)
    outcome = await Agent(model, tools=basic_tools(tmp_path)).run("Calculate.")
    assert outcome.messages[2].tool_results[0].text == "42"
    assert outcome.text == "Rain."
    url, headers, _ = transport.posted[0]
    assert (url, headers["authorization"]) == ("http://127.0.0.1:9/v1/chat/completions", "Bearer key-7")
    sent = transport.bodies[1]["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool"]
    assert sent[2]["tool_call_id"] == "c1"
    assert "calculate" in [each["function"]["name"] for each in transport.bodies[0]["tools"]]


@shows("glue", "package tools")
async def test_ready_made_tools_are_given_to_an_agent(tmp_path):
    (tmp_path / "notes.txt").write_text("Rain.", encoding="utf-8")
    tools = basic_tools(tmp_path)
    reads = next(each.name for each in tools if "read" in each.name)
    model = ScriptedModel(call(reads, path="notes.txt"), "Rain.")
    outcome = await Agent(model, tools=tools).run("Read.")
    assert "Rain." in outcome.messages[2].tool_results[0].text
