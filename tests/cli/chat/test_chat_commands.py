"""What the argument of a chat command can be completed to."""

from types import SimpleNamespace

import pytest

from perdure.cli.chat import chat_commands
from perdure.cli.chat.chat_commands import ChatCommands


@pytest.mark.parametrize(
    ("command", "completions"),
    [
        ("model", ["acme:small", "local"]),
        ("role", ["scout", "writer"]),
        ("permissions", ["revoke"]),
        ("help", []),
        ("", []),
    ],
)
def test_arguments_are_what_there_is_to_choose_from(monkeypatch, command, completions):
    statuses = [
        SimpleNamespace(name="acme", default_model="small", available=True),
        SimpleNamespace(name="other", default_model="large", available=False),
        SimpleNamespace(name="local", default_model="", available=True),
    ]
    monkeypatch.setattr(chat_commands, "list_provider_statuses", lambda: statuses)
    roles = [SimpleNamespace(name="scout"), SimpleNamespace(name="writer")]
    commands = ChatCommands.__new__(ChatCommands)
    commands._chat = SimpleNamespace(agent=SimpleNamespace(all_roles=lambda: roles))
    assert commands.list_arguments(command) == completions
