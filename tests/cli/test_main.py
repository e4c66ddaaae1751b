"""The command itself: what it says about itself, and what becomes of errors."""

import os
import subprocess

import pytest

from perdure import __version__
from perdure._cli import main
from perdure._cli.terminal.output import OutputFailed
from tests.cli.process import PERDURE, STAND_INS
from tests.test_start import cpu_ms


@pytest.fixture
def shell(cold_shell):
    """The command as users start it: its start is what these tests are about."""
    return cold_shell


ASYNCIO_SHARE = 2.0
ROUNDS = 5


def test_it_tells_its_version(shell):
    result = shell.run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"perdure {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_it_tells_what_it_can_do(perdure, arguments):
    result = perdure(*arguments)
    assert result.exit_code == 0
    assert all(command in result.stdout for command in ("run", "resume", "sessions", "doctor"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["walk"], 2, "no such command 'walk'; see 'perdure --help'"),
        (["run", "--xyzzy"], 2, "no such option '--xyzzy'; see 'perdure run --help'"),
        (["run", "one", "two"], 2, "got unexpected extra argument (two); see 'perdure run --help'"),
        (["run", "a\0b"], 2, "argument 2, 'a\\x00b', is not UTF-8 text; pass it through standard input"),
        (["run", "\udcff"], 2, "argument 2, '\\udcff', is not UTF-8 text; pass it through standard input"),
        (["run", "--max-turns", "0", "hi"], 2, "invalid value for '--max-turns'"),
        (["run", "--model", "nobody:x", "hi"], 2, "unknown model provider 'nobody'"),
        (["run", "--store", "cloud:x", "hi"], 2, "there is no store called 'cloud:x'"),
        (["run", "--session", " ", "hi"], 2, "a session cannot be called ' '"),
        (["run", "--resume", "hi"], 2, "--resume needs a session"),
        (["run", ""], 2, "the prompt is empty"),
        (["resume", "nobody"], 66, "there is no session 'nobody' in sqlite:"),
        (["sessions", "show", "nobody"], 66, "there is no session 'nobody' in sqlite:"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(perdure, arguments, code, message):
    result = perdure(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_bytes_that_are_no_text_are_refused(shell):
    result = shell.run("run", b"caf\xe9")
    assert result.returncode == 2
    assert result.stderr == "error: argument 2, 'caf\\udce9', is not UTF-8 text; pass it through standard input\n"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            ZeroDivisionError("\x1b[0m"),
            70,
            "error: unexpected error; please report it: ZeroDivisionError: ␛[0m (",
        ),
        (PermissionError(13, "Permission denied", "x"), 74, "error: [Errno 13] Permission denied: 'x'; check the disk"),
        (OutputFailed(OSError(28, "No space left")), 74, "error: standard output cannot be written: No space left; "),
        (OutputFailed(BrokenPipeError(32, "Broken pipe")), 141, ""),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_nothing_that_is_raised_becomes_a_traceback(capsys, monkeypatch, error, code, message):
    monkeypatch.delenv("PERDURE_DEBUG", raising=False)

    def work():
        raise error

    assert main.run_and_report_error(work) == code
    assert capsys.readouterr().err.startswith(message)


def test_a_traceback_is_shown_to_those_who_ask_for_it(shell):
    result = shell.run("resume", "nobody", environment={"PERDURE_DEBUG": "1"})
    assert result.returncode == 1
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_it_works_with_streams_that_are_closed(shell, closed):
    script = f'exec "$@" {closed}'
    result = shell.run("run", "--session", "s", "Calculate 6 * 7", program=("sh", "-c", script, "sh", *PERDURE))
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    assert "42" in shell.run("sessions", "show", "s").stdout


@pytest.mark.parametrize(
    "environment",
    [{"LANG": "C"}, {"LC_ALL": "C", "TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}, {"COLUMNS": "1"}, {"COLUMNS": "x"}],
)
def test_it_works_wherever_it_is_run(shell, environment):
    result = shell.run("run", "Calculate 6 * 7, s'il vous plaît", environment=environment)
    assert result.returncode == 0
    assert "42" in result.stdout
    listed = shell.run("sessions", "list", environment=environment)
    assert "vous pla" in listed.stdout


def test_a_reader_who_has_seen_enough_is_no_error(shell):
    with shell.started("run", "--model", "odd:endless", "--session", "cut", "go", program=STAND_INS) as process:
        assert process.stdout.readline() == b"more and more\n"
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""
    assert '"status":"cancelled"' in shell.run("sessions", "show", "cut", "--json").stdout


def test_help_that_nobody_reads_is_no_error(shell):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as output:
        done = subprocess.run(
            [*PERDURE, "--help"], stdout=output, stderr=subprocess.PIPE, env=shell.environment, timeout=30, check=False
        )
    assert done.stderr == b""


def test_a_full_disk_is_told(shell):
    result = shell.run("run", "Calculate 6 * 7", program=("sh", "-c", 'exec "$@" >/dev/full', "sh", *PERDURE))
    assert result.returncode == 74
    assert "error: standard output cannot be written: No space left on device; check where it goes" in result.stderr


@pytest.mark.budget
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_it_starts_in_little_more_time_than_asyncio(option):
    quiet = "import os, sys; os.dup2(os.open(os.devnull, os.O_WRONLY), 1)"
    code = f"{quiet}; sys.argv = ['perdure', {option!r}]; from perdure._cli.main import main; main()"
    rounds = [(cpu_ms("pass"), cpu_ms("import asyncio"), cpu_ms(code)) for _ in range(ROUNDS)]
    bare, asyncio, started = (min(times) for times in zip(*rounds, strict=True))
    ratio = (started - bare) / (asyncio - bare)
    assert ratio <= ASYNCIO_SHARE, f"{started - bare:.0f} ms over bare Python, {ratio:.2f} times asyncio's"


def test_with_debug_an_error_is_raised_as_it_is(monkeypatch):
    monkeypatch.setenv("PERDURE_DEBUG", "1")

    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main.run_and_report_error(work)


@pytest.mark.parametrize(("returned", "code"), [(3, 3), (0, 0), (None, 0), ("x", 0)])
def test_what_a_command_returns_is_its_exit_code_if_it_is_a_number(returned, code):
    assert main.run_and_report_error(lambda: returned) == code
