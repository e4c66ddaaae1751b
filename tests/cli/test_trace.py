"""`perdure trace`: any stored session, and files of `perdure run --trace`."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure._cli.run.trace import RunTrace
from tests.cli.model_server import address_model, serve_model
from tests.tracing.sample_traces import coding_session


@pytest.fixture
def sampled(tmp_path):
    """A file with a trace in which everything happens."""
    path = tmp_path / "sample.jsonl"
    path.write_text(coding_session().live().to_jsonl(), encoding="utf-8")
    return str(path)


@pytest.mark.usefixtures("kept")
def test_a_stored_session_is_a_tree(perdure):
    result = perdure("trace", "alpha")
    assert (result.exit_code, result.stderr) == (0, "")
    first, run, turn, call, last = result.stdout.splitlines()
    assert first == "session alpha · demo:words"
    assert run.startswith('└─ agent "Calculate 6 * 7 for alpha" · done · ')
    assert turn.startswith("   ├─ turn 1 · ")
    assert '✓ calculate {"expression":"6 * 7"}' in call
    assert last.startswith("   └─ turn 2 · ")


@pytest.mark.usefixtures("kept")
def test_the_last_session_and_prefixes_can_be_named(perdure):
    assert perdure("trace", "--last").stdout.startswith("session album")
    assert perdure("trace", "albu").stdout.startswith("session album")


@pytest.mark.usefixtures("kept")
def test_json_and_lines_have_every_entry(perdure):
    document = json.loads(perdure("trace", "alpha", "--json").stdout)
    header, *lines = map(json.loads, perdure("trace", "alpha", "--jsonl").stdout.splitlines())
    assert (document["meta"]["session_id"], header["format"]) == ("alpha", "perdure-trace")
    assert document["entries"] == lines
    assert {each["data"]["kind"] for each in lines} >= {"run_started", "model_requested", "tool_finished", "run_ended"}


@pytest.mark.usefixtures("kept")
def test_a_page_is_written_for_its_owner_alone(perdure, tmp_path):
    result = perdure("trace", "alpha", "--html", "page.html", "--compare", "beta")
    assert (result.exit_code, result.stderr) == (0, "page.html is written; open it in a browser\n")
    path = tmp_path / "page.html"
    assert "Calculate 6 * 7 for beta" in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert perdure("trace", "alpha", "--html", "-").stdout.startswith("<!doctype html>")


def test_a_file_shows_retries_and_progress_too(perdure, sampled):
    shown = perdure("trace", sampled).stdout
    assert "! retry_scheduled: attempt 1 of 4" in shown
    assert "progress: 3 reports" in shown
    assert "error: FAILED" in perdure("trace", sampled, "--trajectory").stdout
    assert "+ result of bash" in perdure("trace", sampled, "--context").stdout
    assert "no raw requests" in perdure("trace", sampled, "--curl").stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name one session or file"),
        (["x", "--last"], "name one session or file"),
        (["x", "--json", "--jsonl"], "exclude each other"),
        (["x", "--compare", "y"], "--compare needs --html"),
        (["nope"], "there is no session 'nope'"),
        (["other.txt"], "this is no trace"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_line(perdure, tmp_path, arguments, told):
    (tmp_path / "other.txt").write_text("hello\n", encoding="utf-8")
    result = perdure("trace", *arguments)
    assert result.exit_code != 0
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_page_that_cannot_be_written_is_an_error(perdure, sampled):
    result = perdure("trace", sampled, "--html", "no/such/folder.html")
    assert (result.exit_code, "No such file" in result.stderr) == (74, True)


# -- perdure run --trace -----------------------------------------------------------------------------------------------


def test_a_run_writes_its_trace_as_lines_that_can_be_traced(perdure, tmp_path):
    assert perdure("run", "-q", "--trace", "run.jsonl", "Calculate 6 * 7").exit_code == 0
    kinds = [json.loads(line).get("data", {}).get("kind") for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert kinds[0] is None
    assert {"request", "first_delta", "tool_finished", "run_ended"} <= {*kinds}
    assert "calculate" in perdure("trace", "run.jsonl").stdout


@pytest.mark.parametrize(("name", "start"), [("run.html", "<!doctype html>"), ("run.json", '{"format"')])
def test_a_run_writes_its_trace_as_a_page_or_a_document(perdure, tmp_path, name, start):
    assert perdure("run", "-q", "--trace", name, "Calculate 6 * 7").exit_code == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_a_trace_that_cannot_be_written_stops_the_run_before_it_begins(perdure):
    result = perdure("run", "--trace", "no/such/run.jsonl", "Calculate 6 * 7")
    assert (result.exit_code, "check the folder" in result.stderr) == (2, True)
    assert "there is no session" in perdure("trace", "--last").stderr


@pytest.mark.parametrize("name", ["run.html", "run.jsonl"])
def test_a_trace_that_fails_later_is_a_warning(perdure, monkeypatch, name):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perdure._tracing.view.trace.Trace.to_html", fail)
    monkeypatch.setattr("perdure._tracing.collect.tracer._TraceFile._write_to_file", fail)
    result = perdure("run", "-q", "--trace", name, "Calculate 6 * 7")
    assert (result.exit_code, "warning: the trace" in result.stderr) == (0, True)


@pytest.mark.parametrize("name", ["run.jsonl", "run.html"])
def test_a_file_that_others_could_read_is_theirs_no_more(perdure, tmp_path, name):
    path = tmp_path / name
    path.write_text("old")
    path.chmod(0o644)
    assert perdure("run", "-q", "--trace", name, "Calculate 6 * 7").exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "old" not in path.read_text()[:10]


def test_the_trace_of_a_run_has_raw_requests_and_lines_of_responses_and_no_key(perdure, monkeypatch, tmp_path):
    with serve_model(lambda body: f"You sent {len(body['messages'])} messages.") as server:
        for name, value in address_model(server).items():
            monkeypatch.setenv(name, value)
        for path in ("run.jsonl", "run.html"):
            assert perdure("run", "-q", "--trace", path, "Say something.").exit_code == 0
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    raw = [each["data"] for each in lines if each.get("data", {}).get("kind", "").startswith("raw_")]
    assert [each["kind"] for each in raw][:3] == ["raw_request", "raw_answer", "raw_line"]
    assert json.loads(raw[0]["body"]) == server.received[0].json()
    assert raw[-1]["line"] == "data: [DONE]"
    curl = perdure("trace", "run.jsonl", "--curl").stdout
    assert f"{server.base_url}/v1/chat/completions" in curl
    assert "'authorization: Bearer '\"${API_KEY}\"" in curl
    assert server.received[0].headers["authorization"] == "Bearer key-of-the-test"
    assert "key-of-the-test" not in (tmp_path / "run.jsonl").read_text() + (tmp_path / "run.html").read_text() + curl


def test_a_file_of_a_trace_has_a_limit(perdure, sampled, monkeypatch):
    size = Path(sampled).stat().st_size
    monkeypatch.setattr("perdure._cli.sessions.trace._MOST_BYTES", size)
    assert perdure("trace", sampled).exit_code == 0
    monkeypatch.setattr("perdure._cli.sessions.trace._MOST_BYTES", size - 1)
    result = perdure("trace", sampled)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {sampled!r} has more than {size - 1:,} bytes; trace fewer runs into one")


class SlowWriter:
    """A tracer whose file could not take everything."""

    def __init__(self, *, is_complete: bool, dropped: int, failed: int) -> None:
        self.writer = SimpleNamespace(stats=SimpleNamespace(dropped=dropped, failed=failed))
        self._is_complete = is_complete

    def close(self) -> bool:
        return self._is_complete


@pytest.mark.parametrize(
    ("facts", "warnings"),
    [
        ({"is_complete": True, "dropped": 0, "failed": 0}, []),
        ({"is_complete": False, "dropped": 0, "failed": 0}, ["in 't.jsonl' is not complete: the disk is too slow"]),
        (
            {"is_complete": True, "dropped": 2, "failed": 3},
            ["in 't.jsonl' lacks 5 entries, which could not be written"],
        ),
    ],
)
async def test_what_a_trace_lacks_is_warned_about(tmp_path, monkeypatch, capsys, facts, warnings):
    monkeypatch.chdir(tmp_path)
    trace: Any = RunTrace("t.jsonl")
    async with trace:
        trace._tracer.close()
        trace._tracer = SlowWriter(**facts)
    assert capsys.readouterr().err.splitlines() == [f"warning: the trace {each}" for each in warnings]
