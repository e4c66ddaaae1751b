"""The process that supervises a command: what it makes of the ends of its children."""

import os
import signal

import pytest

from perdure.hosts import process_supervisor


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (0 << 8, 0),
        (1 << 8, 1),
        (255 << 8, 255),
        (int(signal.SIGHUP), 129),
        (int(signal.SIGKILL), 137),
        (int(signal.SIGTERM), 143),
    ],
)
def test_an_ended_child_has_the_exit_code_that_a_shell_would_give(monkeypatch, status, code):
    asked: list[tuple[int, int]] = []

    def wait(pid, options):
        asked.append((pid, options))
        return 7, status

    monkeypatch.setattr(os, "waitpid", wait)
    assert process_supervisor.reap_one() == (7, code)
    assert asked == [(-1, os.WNOHANG)]


def test_without_an_ended_child_there_is_none(monkeypatch):
    monkeypatch.setattr(os, "waitpid", lambda *_: (0, 0))
    assert process_supervisor.reap_one() is None


def test_without_any_child_there_is_none(monkeypatch):
    def wait(pid, options):
        raise ChildProcessError

    monkeypatch.setattr(os, "waitpid", wait)
    assert process_supervisor.reap_one() is None
