"""An agent out of `perdure.toml`."""

import inspect
import sys

import pytest

from perdure import Agent, BadConfig, ConfigError, Limits, Permissions, load_config
from perdure._core.run.spec import get_engine_name
from perdure.context import LongTermMemory, Role, TrustedFiles
from perdure.permissions import later
from perdure.testing import ScriptedModel
from perdure.tools import post_to_inbox

WHOLE = """\
model = "demo"
name = "mate"
description = "Helps on deck."
instructions_file = "instructions.md"
tools = ["perdure.tools:post_to_inbox"]
store = "sqlite:kept/sessions.db"
workdir = "deck"
project = true
skills = false
roles = "roles"
role = "reviewer"
interactive = false
engine = "reflect"

[limits]
max_turns = 7
allowed_tools = ["post_to_inbox"]

[settings]
temperature = 0.5
stop_sequences = ["END"]

[permissions]
allow = ["post_*"]
deny = [{ tool = "shell", target = "rm *" }]
ask = ["*"]
otherwise = "later"
expires_seconds = 60

[compaction]
at_tokens = 50000
strategy = "keep_recent"

[mcp]
files = [".mcp.json"]

[mcp.servers.charts]
command = "charts"
env = { TOKEN = "${CHART_TOKEN}" }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    ship = tmp_path / "ship"
    (ship / "deck").mkdir(parents=True)
    (ship / "roles").mkdir()
    (ship / "roles" / "reviewer.md").write_text("---\ndescription: Looks\n---\nLook twice.", encoding="utf-8")
    (ship / "instructions.md").write_text("Be brief.\r\n", encoding="utf-8", newline="")
    (ship / "AGENTS.md").write_text("Use metres.", encoding="utf-8")
    (ship / ".mcp.json").write_text('{"mcpServers": {"tides": {"url": "https://tides.example"}}}', encoding="utf-8")
    return ship


@pytest.fixture
def write(folder):
    def written(text, name="perdure.toml"):
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    return written


def test_all_that_a_file_says_is_read(write, folder):
    config = load_config(write(WHOLE), trusted=True)
    assert config.trusted
    assert config.folder == str(folder)
    assert config.workdir == str(folder / "deck")
    assert config.instructions == "Be brief.\n"
    assert config.roles == (Role("reviewer", "Look twice.", "Looks"),)
    assert config.problems == ()
    assert [server.name for server in config.mcp_servers({"CHART_TOKEN": "x"})] == ["charts", "tides"]


def test_an_agent_is_made_of_it(write, folder, monkeypatch):
    monkeypatch.setenv("CHART_TOKEN", "x")
    agent = load_config(write(WHOLE), trusted=True).agent()
    assert (agent.name, agent.description, agent.instructions) == ("mate", "Helps on deck.", "Be brief.\n")
    assert agent.tools == (post_to_inbox,)
    assert agent.limits == Limits(max_turns=7, allowed_tools=("post_to_inbox",))
    assert agent.settings.temperature == 0.5
    assert (agent.role, [role.name for role in agent.roles], agent.interactive) == ("reviewer", ["reviewer"], False)
    assert get_engine_name(agent.engine) == "reflect"
    assert agent.project is not None
    assert agent.project.workdir == str(folder / "deck")
    assert agent.compaction is not None
    assert agent.compaction.at_tokens == 50_000
    assert isinstance(agent.permission, Permissions)
    assert [str(rule) for rule in agent.permission.rules] == [
        "deny('shell', target='rm *')",
        "ask('*')",
        "allow('post_*')",
    ]
    assert agent.permission.handler is later
    assert agent.permission.expires_seconds == 60
    assert str(folder / "kept" / "sessions.db") in repr(
        vars(agent.store) if hasattr(agent.store, "__dict__") else agent.store
    )


def test_an_empty_file_is_an_agent_as_soon_as_it_has_a_model(write):
    config = load_config(write(""))
    with pytest.raises(BadConfig, match="there is no model"):
        config.agent()
    plain = Agent("demo")
    agent = config.agent(model="demo")
    for name in (
        "name",
        "instructions",
        "interactive",
        "engine",
        "tools",
        "limits",
        "settings",
        "permission",
        "project",
        "skills",
        "compaction",
    ):
        assert getattr(agent, name) == getattr(plain, name)


async def test_what_is_given_takes_the_place_of_what_the_file_says(write):
    config = load_config(write('model = "no such provider"\nname = "mate"\n'), trusted=True)
    agent = config.agent(model=ScriptedModel("Aye."), name="bosun")
    assert agent.name == "bosun"
    assert (await agent.run("Ready?")).text == "Aye."


def test_instructions_may_be_versions_of_a_prompt(write, folder):
    (folder / "prompts").mkdir()
    (folder / "prompts" / "v1.md").write_text("One.", encoding="utf-8")
    (folder / "prompts" / "v2.md").write_text("Two.\n\n", encoding="utf-8")
    text = '[prompts]\ndirectory = "prompts"\ndefault = "v1"\n'
    assert load_config(write(text)).instructions == "One.\n"
    assert load_config(write(text + 'version = "v2"\n')).instructions == "Two.\n"
    with pytest.raises(BadConfig, match=r":1: there is no version 'v3' .*; there are 'v1', 'v2'"):
        load_config(write(text + 'version = "v3"\n'))


def test_a_role_that_cannot_be_used_is_told(write, folder):
    (folder / "roles" / "empty.md").touch()
    config = load_config(write('roles = "roles"\n'))
    assert [role.name for role in config.roles] == ["reviewer"]
    assert "empty.md" in config.problems[0]


def test_folders_of_skills_are_looked_into(write, folder):
    skill = folder / "skills" / "knots"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: knots\ndescription: Ties knots.\n---\nTie.", encoding="utf-8")
    agent = load_config(write('model = "demo"\nskills = ["skills"]\n'), trusted=True).agent()
    assert agent.skills is not None
    assert agent.skills.names == ("knots",)
    with pytest.raises(BadConfig, match=r"perdure.toml:2: .*missing"):
        load_config(write('model = "demo"\nskills = ["missing"]\n'), trusted=True).agent()


def test_skills_of_the_project_stay_inert_until_they_are_trusted(write, folder):
    skill = folder / ".agents" / "skills" / "knots"
    skill.mkdir(parents=True)
    (folder / ".git").mkdir()
    (skill / "SKILL.md").write_text("---\nname: knots\ndescription: Ties knots.\n---\nTie.", encoding="utf-8")
    agent = load_config(write("skills = true\n")).agent(model="demo")
    assert agent.skills is not None
    assert "knots" not in agent.skills
    assert "knots" in [each.name for each in agent.skills.untrusted]


def test_what_goes_wrong_when_the_agent_is_made_has_its_line_too(write):
    for text, line in (
        ('\nmodel = "no such provider"\n', 2),
        (
            ('model = "demo"\ntools = [\n "perdure.tools:post_to_inbox",\n "no_such_module:x",\n]\n'),
            4,
        ),
        ('model = "demo"\n[compaction]\n\nmodel = "no such provider"\n', 4),
    ):
        with pytest.raises(BadConfig) as caught:
            load_config(write(text), trusted=True).agent()
        assert caught.value.faults[0].line == line


def test_two_servers_of_one_name_are_refused(write):
    with pytest.raises(BadConfig, match=r"perdure\.toml:2: there is a server 'tides' already"):
        load_config(write('[mcp]\nfiles = [".mcp.json"]\n[mcp.servers.tides]\ncommand = "x"\n'), trusted=True)


# -- trust -------------------------------------------------------------------------------------------------------------

RESTRICTED = {
    "tools": 'tools = ["os:system"]',
    "mcp.servers": '[mcp.servers.a]\ncommand = "x"',
    "mcp.files": '[mcp]\nfiles = [".mcp.json"]',
    "store": 'store = "sqlite:sessions.db"',
    "model": 'model = "https://elsewhere.example/v1#gpt"',
    "compaction.model": '[compaction]\nmodel = "https://elsewhere.example/v1#gpt"',
    "engine": 'engine = "autonomous"',
    "settings.extra_body": "[settings.extra_body]\nx = 1",
    "permissions.allow": '[permissions]\nallow = ["*"]',
    "skills": 'skills = ["skills"]',
    "extensions.imports": '[extensions]\nimports = ["a:b"]',
    "memory": '[memory]\nuser = "ann"',
    "vault": '[vault]\nenvironment = "SHIP_"',
    "instructions_file": 'instructions_file = "../secret"',
    "prompts.directory": '[prompts]\ndirectory = "/etc"\ndefault = "v1"',
    "roles": 'roles = "~"',
    "workdir": 'workdir = ".."',
}


@pytest.mark.parametrize("key", RESTRICTED)
def test_what_runs_redirects_or_allows_anything_needs_trust(write, folder, key, monkeypatch):
    (folder.parent / "secret").write_text("private", encoding="utf-8")
    with pytest.raises(BadConfig) as caught:
        load_config(write(RESTRICTED[key]))
    (fault,) = caught.value.faults
    assert fault.message.startswith(f"'{key}' ")
    assert "perdure trust" in fault.message
    assert fault.line


def test_a_link_does_not_lead_out_of_the_folder_without_trust(write, folder):
    (folder.parent / "secret").write_text("private", encoding="utf-8")
    (folder / "link.md").symlink_to("../secret")
    with pytest.raises(BadConfig, match="reads what lies outside"):
        load_config(write('instructions_file = "link.md"\n'))


def test_a_role_that_sends_conversations_elsewhere_needs_trust(write, folder):
    (folder / "roles" / "spy.md").write_text("---\nmodel: https://elsewhere.example/v1#x\n---\nSpy.", encoding="utf-8")
    with pytest.raises(BadConfig, match="roles"):
        load_config(write('roles = "roles"\n'))
    assert load_config(write('roles = "roles"\n'), trusted=True).roles


def test_without_trust_a_file_may_say_how_to_answer(write):
    text = 'project = true\nskills = true\nroles = "roles"\nengine = "react"\n'
    text += '[permissions]\ndeny = ["*"]\n[limits]\nmax_turns = 2\n'
    config = load_config(write(text))
    assert not config.trusted
    assert config.agent(model="demo").limits.max_turns == 2


def test_nothing_is_imported_by_reading(write, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "made_up_hostile.py").write_text("raise SystemExit(1)", encoding="utf-8")
    load_config(write('tools = ["made_up_hostile:x"]\n'), trusted=True)
    assert "made_up_hostile" not in sys.modules


def test_trust_is_bound_to_the_content(write, tmp_path):
    trusted = TrustedFiles(str(tmp_path / "trusted.json"))
    path = write('store = "sqlite:a.db"\n')
    trusted.trust(str(path), load_config(path, trusted=True).digest)
    assert load_config(path, trusted=trusted).trusted
    write('store = "sqlite:b.db"\n')
    with pytest.raises(BadConfig):
        load_config(path, trusted=trusted)


OWN_TOOL = """
from perdure import tool

@tool
async def depth(harbour: str) -> str:
    \"""The depth of a harbour.\"""
    return f"{harbour}: 12"
"""


def test_trust_covers_the_file_of_a_tool_and_what_was_read_is_imported(write, folder, tmp_path):
    trusted = TrustedFiles(str(tmp_path / "trusted.json"))
    (folder / "depths.py").write_text(OWN_TOOL, encoding="utf-8")
    path = write('model = "demo"\ntools = ["./depths.py:depth"]\n')
    with pytest.raises(BadConfig, match="'tools' imports code"):
        load_config(path)
    config = load_config(path, trusted=True)
    trusted.trust(str(path), config.digest, config.files)
    assert load_config(path, trusted=trusted).agent().toolbox.get("depth") is not None

    (folder / "depths.py").write_text("raise SystemExit(1)", encoding="utf-8")
    with pytest.raises(BadConfig, match=r"depths\.py' has changed since the file was read"):
        config.agent()
    with pytest.raises(BadConfig, match=r"changed since you trusted it: '.*depths\.py'"):
        load_config(path, trusted=trusted)


OWN_ENGINE = """
from perdure import Extension
from perdure.engines import react, register_engine


async def watchful(run):
    return await react(run)


register_engine("watchful", lambda: watchful)
extension = Extension(name="watch")
"""


def test_a_trusted_file_may_name_an_engine_that_its_imports_register(write, folder, monkeypatch):
    monkeypatch.setattr("perdure._engines.registry._factories", {})
    (folder / "own.py").write_text(OWN_ENGINE, encoding="utf-8")
    path = write('model = "demo"\nengine = "watchful"\n[extensions]\nimports = ["./own.py:extension"]\n')
    with pytest.raises(BadConfig, match="'engine' decides how often the model is asked"):
        load_config(path)
    assert get_engine_name(load_config(path, trusted=True).agent().engine) == "watchful"


def test_a_file_of_a_tool_that_is_missing_is_named_with_its_line(write):
    config = load_config(write('model = "demo"\ntools = ["./nowhere.py:depth"]\n'), trusted=True)
    with pytest.raises(BadConfig, match=r"perdure\.toml:2: .*nowhere\.py"):
        config.agent()


def test_a_file_of_servers_needs_trust_of_its_own(write, folder, tmp_path):
    trusted = TrustedFiles(str(tmp_path / "trusted.json"))
    path = write('[mcp]\nfiles = [".mcp.json"]\n')
    config = load_config(path, trusted=True)
    trusted.trust(str(path), config.digest)
    with pytest.raises(BadConfig, match=r"\.mcp\.json:1: these servers are not trusted yet"):
        load_config(path, trusted=trusted)
    trusted.trust(str(folder / ".mcp.json"), config.servers[1].source.digest)
    assert [server.name for server in load_config(path, trusted=trusted).mcp_servers()] == ["tides"]


def test_the_users_own_settings_are_the_users_own(tmp_path, folder):
    own = tmp_path / "settings" / "perdure"
    own.mkdir(parents=True)
    (own / "perdure.toml").write_text('store = "sqlite:sessions.db"\n', encoding="utf-8")
    assert load_config(own / "perdure.toml").trusted


def test_a_link_among_the_users_own_settings_is_where_it_leads(tmp_path, write):
    own = tmp_path / "settings" / "perdure"
    own.mkdir(parents=True)
    (own / "perdure.toml").symlink_to(write('store = "sqlite:sessions.db"\n'))
    with pytest.raises(BadConfig):
        load_config(own / "perdure.toml")


def test_an_unreadable_list_of_trust_is_an_error(write, tmp_path):
    (tmp_path / "trusted.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not used"):
        load_config(write(""), trusted=TrustedFiles(str(tmp_path / "trusted.json")))


# -- extensions, secrets and files in messages -------------------------------------------------------------------------

EQUIPPED = """\
model = "demo"
mentions = true

[extensions]
large_results = 8000
short_results = true
history = true
notebook = true
imports = ["perdure.tools:history"]

[vault]
environment = "SHIP_"
file = "secrets.json"
"""


async def test_an_agent_can_be_given_bundles_secrets_and_files(write, folder, monkeypatch):
    monkeypatch.setenv("SHIP_RADIO", "hush-hush-1")
    (folder / "secrets.json").write_text('{"engine": "hush-hush-2"}', encoding="utf-8")
    (folder / "secrets.json").chmod(0o600)
    text = EQUIPPED.replace('imports = ["perdure.tools:history"]\n', "")
    agent = load_config(write(text), trusted=True).agent()
    assert [each.name for each in agent.extensions] == ["large_results", "short_results", "history", "notebook"]
    assert agent.mentions is not None
    assert agent.vault is not None
    found = [agent.vault.resolve(name) for name in ("RADIO", "engine")]
    assert [await each if inspect.isawaitable(each) else each for each in found] == ["hush-hush-1", "hush-hush-2"]


async def test_an_agent_can_be_given_a_memory(write, folder):
    text = '[memory]\nfile = "memory.db"\nuser = "ann"\nentities = true\nepisodes = true'
    agent = load_config(write(f'model = "demo"\n{text}'), trusted=True).agent()
    names = [each.name for each in agent.extensions[0].tools]
    assert names == ["remember", "recall", "forget", "remember_entity", "remember_episode"]
    await agent.run("hello")
    assert (folder / "memory.db").exists()


@pytest.mark.packages("pydantic_monty")
def test_an_agent_can_be_given_tool_search_and_code_mode(write):
    text = 'model = "demo"\n[extensions]\ncode_mode = true\ntool_search = 5\n'
    text += 'imports = ["perdure.tools:history"]'
    agent = load_config(write(text), trusted=True).agent()
    assert [each.name for each in agent.extensions] == ["history", "tool_search", "code_mode"]
    agent = load_config(write('model = "demo"\n[extensions]\ntool_search = true'), trusted=True).agent()
    assert [each.name for each in agent.extensions] == ["tool_search"]


def test_an_extension_may_be_imported_or_made_by_a_function(write):
    agent = load_config(write('model = "demo"\n[extensions]\nimports = ["perdure.tools:history"]'), trusted=True)
    assert [each.name for each in agent.agent().extensions] == ["history"]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ('[extensions]\nimports = ["perdure._tools.extensions:hystory"]', 3, "did you mean 'history'"),
        ('[extensions]\nimports = ["perdure._core.values.checks:require_text"]', 3, "makes none"),
        ('[extensions]\nimports = ["perdure:__version__"]', 3, "no Extension"),
        ("[extensions]\nlarge_results = 5", 3, "max_characters=5"),
        ("[extensions]\ntool_search = -1", 3, "threshold=-1"),
        ("[vault]", 2, "needs a place"),
        ('engine = "plannr"', 2, r"no engine 'plannr': did you mean 'planner'\?.* known are autonomous, .*, reflect"),
    ],
)
def test_what_cannot_be_made_has_its_line(write, text, line, told):
    config = load_config(write(f'model = "demo"\n{text}\n'), trusted=True)
    with pytest.raises(BadConfig, match=told) as caught:
        config.agent()
    assert caught.value.faults[0].line == line


@pytest.mark.parametrize(
    ("store", "built"),
    [
        ("sqlite:kept/x.db", "sqlite:{folder}/kept/x.db"),
        ("file:kept", "file:{folder}/kept"),
        ("sqlite:/var/x.db", "sqlite:/var/x.db"),
        ("sqlite:", "sqlite:"),
        ("file:", "file:"),
        ("file://x", "file://x"),
        ("sqlite", "sqlite"),
        ("memory:", "memory:"),
        ("postgres:host=db", "postgres:host=db"),
        ("postgres://db/x", "postgres://db/x"),
    ],
)
def test_only_the_path_of_a_store_is_taken_from_the_folder_of_the_file(write, folder, store, built):
    config = load_config(write(f'store = "{store}"'), trusted=True)
    assert config.build_options(["store"]) == {"store": built.format(folder=folder)}


def test_without_a_store_sessions_are_kept_in_memory(write):
    assert load_config(write('name = "mate"'), trusted=True).build_options(["store"]) == {"store": "memory:"}


@pytest.mark.packages("mcp")
def test_the_servers_of_the_file_are_an_extension_between_imports_and_search(write):
    text = 'model = "demo"\n[extensions]\ntool_search = true\nimports = ["perdure.tools:history"]\n'
    servers = '[mcp.servers.charts]\ncommand = "charts"\n'
    agent = load_config(write(f"{text}{servers}"), trusted=True).agent()
    assert [each.name for each in agent.extensions] == ["history", "mcp", "tool_search"]
    agent = load_config(write(text), trusted=True).agent()
    assert [each.name for each in agent.extensions] == ["history", "tool_search"]


def test_memory_comes_before_what_is_imported(write):
    text = '[memory]\nfile = "m.db"\n[extensions]\nnotebook = true\nimports = ["perdure.tools:history"]'
    agent = load_config(write(f'model = "demo"\n{text}'), trusted=True).agent()
    assert [each.name for each in agent.extensions] == ["notebook", "memory", "history"]


def test_two_files_with_a_server_of_one_name_are_refused(write):
    write('{"mcpServers": {"tides": {"command": "x"}}}', "more.json")
    with pytest.raises(BadConfig, match=r"perdure\.toml:2: there is a server 'tides' already: rename one of the two"):
        load_config(write('[mcp]\nfiles = [".mcp.json", "more.json"]\n'), trusted=True)


def test_what_needs_trust_is_said_with_how_it_is_given(write, tmp_path):
    path = write('name = "mate"\ntools = ["os:system"]\n')
    advice = (
        f"read the file, then trust it with `perdure trust {path}`; "
        "for a file of your own, use load_config(…, trusted=True)"
    )
    for trusted in (False, lambda _: False, TrustedFiles(str(tmp_path / "trusted.json"))):
        with pytest.raises(BadConfig) as caught:
            load_config(path, trusted=trusted)
        (fault,) = caught.value.faults
        assert fault.line == 2
        assert fault.message.startswith("'tools' imports code")
        assert fault.message.endswith(f", and the file is not trusted: {advice}")


async def test_the_memory_is_closed_with_the_agent(write, monkeypatch):
    closed: list[LongTermMemory] = []
    close = LongTermMemory.aclose

    async def note_and_close(self: LongTermMemory) -> None:
        closed.append(self)
        await close(self)

    monkeypatch.setattr(LongTermMemory, "aclose", note_and_close)
    agent = load_config(write('model = "demo"\n[memory]\nfile = "m.db"'), trusted=True).agent()
    async with agent:
        await agent.run("hello")
        assert closed == []
    assert len(closed) == 1
