"""Sessions that the runtime keeps for itself, such as the journals of schedules: nobody else opens or makes one."""

import json

import pytest

from perdure import Agent, ConfigError
from perdure._core.log.reserved_ids import find_reserved_name
from perdure._runtime.resume.resumer import SessionResumer
from perdure._runtime.resume.worker import ResumeWorker
from perdure._work.judging.evals.sessions import EvaluationRecord, EvaluationStore
from perdure.background import Schedule
from perdure.events import Custom
from perdure.mcp import ClientTokens, ServedAgent
from perdure.stores import Post, export_session, import_session, namespaced, open_store
from perdure.testing import ScriptedModel, replay
from perdure.tracing import trace_session
from tests.doubles import crashed

SPELLINGS = [
    *["schedules", "schedules/report", "Schedules/report", "SCHEDULES/REPORT"],
    *["acme/schedules", "acme/schedules/report", "acme/support/schedules/report"],
    *["./schedules/report", "schedules//report", "schedules/./report", "/schedules/report", "schedules/report/"],
    *["schedules\\report", "x/../schedules/report", "schedules/x/../report", " schedules /report"],
    *["%73chedules/report", "schedules%2Freport", "schedules%252freport", "%2573chedules/report"],
    *["\uff53chedules/report", "\u017fchedules/report", "schedules\uff0freport", "sche\u200bdules/report"],
    *["sche\u00addules/report", "schedules\u202e/report", "sche\x7fdules/report"],
    *["evaluation-e1", "Evaluation-e1", "acme/evaluation-e1", "evaluation%2De1"],
]
OTHERS = [
    *["report", "my schedules", "schedules-2026", "schedule/report", "schedules/a/b", "x/reschedules/y", "100%/s"],
    *["eval-e1", "re-evaluation", "re-evaluation-1", "evaluations/x", "schedulés/report", "évaluation-1", "%", "a%2fb"],
]


@pytest.fixture
def agent():
    return Agent(ScriptedModel("Yes.", repeat_last=True), store=open_store("memory:"))


@pytest.mark.parametrize("name", SPELLINGS, ids=ascii)
async def test_no_spelling_of_a_reserved_id_opens_or_makes_a_session(agent, name):
    with pytest.raises(ConfigError, match=r"reserved for the runtime: use `perdure (schedule|eval)`, or .* choose"):
        agent.session(name)
    session = agent.session("mine")
    await session.run("Hello")
    with pytest.raises(ConfigError, match="reserved"):
        await session.fork(name)
    document = await export_session(agent.store, "mine")
    for id_in_document, given in ((name, None), ("mine", name)):
        with pytest.raises(ConfigError, match="reserved"):
            await import_session(
                agent.store, {**document, "session_id": id_in_document}, session_id=given, trusted=True
            )
    assert [info.session_id for info in await agent.store.list()] == ["mine"]
    with pytest.raises(ConfigError, match=r"the runtime has its own sessions there|control characters"):
        Schedule(name="x", prompt="x", session=name)


@pytest.mark.parametrize("name", OTHERS, ids=ascii)
async def test_other_ids_that_resemble_them_are_free(agent, name):
    assert find_reserved_name(name) == ""
    assert (await agent.session(name).run("Hello")).status == "done"


async def test_what_is_stored_there_is_neither_read_exported_traced_replayed_nor_listed(agent):
    await crashed(agent.store, "schedules/report", Custom("perdure:schedule", {"input": "a secret of others"}))
    for reading in (export_session, trace_session):
        with pytest.raises(ConfigError, match="reserved"):
            await reading(agent.store, "schedules/report")
    with pytest.raises(ConfigError, match="reserved"):
        await replay(agent, "schedules/report")
    await agent.session("mine").run("Hello")
    assert [each.session_id for each in await agent.session("mine").forks()] == []


@pytest.mark.parametrize("name", ["schedules", "Schedules", "schedules "])
async def test_no_part_of_a_store_is_that_of_the_journals(agent, name):
    with pytest.raises(ConfigError, match="a part of a store cannot be called"):
        namespaced(agent.store, name)
    with pytest.raises(ConfigError, match="a part of a store cannot be called"):
        namespaced(namespaced(agent.store, "acme"), name)


async def test_a_tenant_reaches_neither_its_own_journals_nor_those_of_others(agent):
    acme = namespaced(agent.store, "acme")
    for name in ("schedules/report", "../schedules/report", "../other/schedules/report"):
        with pytest.raises(ConfigError, match="reserved"):
            agent.session(name, store=acme)


def test_clients_and_agents_of_an_mcp_server_have_no_names_that_lead_there(agent):
    with pytest.raises(ConfigError, match="a client cannot be called 'schedules'"):
        ClientTokens({"schedules": "x" * 40})
    with pytest.raises(ConfigError, match="the tool of an agent cannot be called 'Schedules'"):
        ServedAgent(agent=agent, name="Schedules")


async def test_a_worker_that_continues_sessions_leaves_them_alone(agent, caplog):
    await agent.store.post("schedules/report", Post("p", "follow_up", {"role": "user", "content": []}, 1.0))
    resumer = SessionResumer(agent, agent.store, {})
    worker = ResumeWorker(agent.store, resumer.attend, agent.clock)
    assert [outcome async for outcome in worker.run(once=True)] == []
    assert caplog.text == ""
    assert len(await agent.store.posts("schedules/report")) == 1


async def test_evaluations_read_and_write_their_own_records(agent):
    record = EvaluationRecord(evaluation_id="e1", dataset="quiz", agents=("a",), started_at=1.0)
    await EvaluationStore(agent.store).write(record)
    assert await EvaluationStore(agent.store).read("e1") == record


@pytest.fixture
def triggered(perdure):
    """A store in which a schedule was added and triggered, and a session called `mine`."""
    assert perdure("schedule", "add", "report", "--prompt", "Write it.").exit_code == 0
    assert perdure("schedule", "run-now", "report", "a secret of others", "--no-wait").exit_code == 0
    assert perdure("run", "-q", "-s", "mine", "Calculate 6 * 7").exit_code == 0


COMMANDS = [
    *[("run", "-s", "ID", "Hello"), ("resume", "ID"), ("steer", "ID", "Hello"), ("cancel", "ID"), ("questions", "ID")],
    *[
        ("answer", "ID", "yes"),
        ("inbox", "ID"),
        ("resolve", "ID", "i", "x"),
        ("trace", "ID"),
        ("files", "undo", "ID"),
        ("files", "redo", "ID"),
        ("files", "changes", "ID"),
    ],
    *[("replay", "ID"), ("sessions", "show", "ID"), ("sessions", "export", "ID"), ("sessions", "fork", "ID")],
    *[("sessions", "fork", "mine", "ID"), ("sessions", "rm", "ID", "--yes"), ("sessions", "rename", "ID", "x")],
    *[
        ("goal", "show", "ID"),
        ("goal", "stop", "ID"),
        ("goal", "resume", "ID"),
        ("permissions", "list", "-s", "ID"),
        ("permissions", "explain", "now", "{}", "-s", "ID"),
    ],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", ["schedules/report", "Schedules//report"])
def test_every_command_that_takes_a_session_refuses_them(perdure, triggered, command, name):
    result = perdure(*[each.replace("ID", name) for each in command])
    assert result.exit_code == 2, result.output
    assert "reserved for the runtime" in result.output
    assert "a secret of others" not in result.output
    (row,) = [json.loads(line) for line in perdure("schedule", "list", "--json").stdout.splitlines()]
    assert row["pending"] == 1


def test_lists_of_sessions_do_not_show_them(perdure, triggered):
    for command in (("list", "--all"), ("list",), ("list", "--prefix", "sched", "--all"), ("tree",)):
        assert "schedules" not in perdure("sessions", *command).output.replace("no session", "")
    assert "mine" in perdure("sessions", "list", "--all").stdout
