"""A system program that is run for a tool: its streams, its limits, and its end with all that it started."""

import os
import sys

import pytest

from perdure import ToolError
from perdure._io.processes.program import ProgramOutput, run_program

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a shell")


def run(script: str, *, cwd: str = "/", max_seconds: float = 20, max_bytes: int = 1_000, **options) -> ProgramOutput:
    return run_program(
        ["/bin/sh", "-c", script],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "FIRST": "a=b"},
        max_seconds=max_seconds,
        max_bytes=max_bytes,
        **options,
    )


def test_a_program_runs_in_a_folder_with_the_given_variables_and_input(tmp_path):
    script = 'pwd; echo "$FIRST"; cat; echo problem >&2; exit 3'
    output = f"{tmp_path}\na=b\ngiven".encode()
    assert run(script, cwd=str(tmp_path), given=b"given") == ProgramOutput(output, b"problem\n", 3)
    assert run("cat; echo $HOME") == ProgramOutput(b"\n", b"", 0)


def test_a_program_inherits_the_given_files_and_is_in_a_session_of_its_own(tmp_path):
    (tmp_path / "file").write_text("seen")
    with (tmp_path / "file").open() as file:
        assert run(f"cat /dev/fd/{file.fileno()}", descriptors=[file.fileno()]).stdout == b"seen"
        assert run(f"cat /dev/fd/{file.fileno()}").exit_code != 0
    if sys.platform == "linux":
        assert run("test $(cut -d' ' -f6 /proc/$$/stat) = $$ && echo leads").stdout == b"leads\n"


@pytest.mark.parametrize(("size", "is_truncated"), [(10, False), (11, True)])
def test_output_is_read_up_to_its_limit(size, is_truncated):
    output = run(f"printf %{size}s x", max_bytes=10)
    assert (len(output.stdout), output.is_truncated) == (10, is_truncated)


def test_a_program_that_writes_too_much_is_stopped():
    output = run("while true; do echo x; done", max_bytes=10)
    assert output == ProgramOutput(b"x\n" * 5, output.stderr, -9, is_truncated=True)


def test_a_program_that_takes_too_long_is_stopped_with_what_it_started():
    with pytest.raises(ToolError) as raised:
        run("sleep 60 & sleep 60; echo over", max_seconds=0.05)
    assert str(raised.value) == "it was stopped after 0.05 seconds: ask for less, such as one folder or file"


def test_problems_are_read_up_to_64_kilobytes_and_the_rest_does_not_stop_the_program():
    output = run("head -c 300000 /dev/zero >&2; echo over")
    assert (output.stdout, len(output.stderr), output.exit_code) == (b"over\n", 64 * 1024, 0)


def test_a_program_need_not_read_its_input():
    assert run("echo done", given=b"x" * 1_000_000) == ProgramOutput(b"done\n", b"", 0)


def test_a_program_that_cannot_be_started_is_an_error_for_the_model(tmp_path):
    name = str(tmp_path / "none")
    with pytest.raises(ToolError) as raised:
        run_program([name], cwd="/", env={}, max_seconds=1, max_bytes=1)
    assert str(raised.value) == f"{name!r} cannot be started: [Errno 2] No such file or directory: {name!r}"
