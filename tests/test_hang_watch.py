"""The watch that prints where a test hangs."""

import faulthandler
import time

from tests.hang_watch import AGAIN_SECONDS, HUNG_SECONDS, HangWatch


def test_it_is_started_anew_at_most_every_few_seconds_and_ended_with_the_session(monkeypatch):
    done: list[object] = []
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        faulthandler, "dump_traceback_later", lambda seconds, file: done.append((now[0], seconds, file))
    )
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: done.append("ended"))
    watch = HangWatch(stderr=7)
    for passed in (0.0, 0.1, AGAIN_SECONDS - 0.2, 0.1, 1.0):
        now[0] += passed
        watch.pytest_runtest_logstart()
    watch.pytest_sessionfinish()
    assert done == [(1_000.0, HUNG_SECONDS, 7), (1_000.0 + AGAIN_SECONDS, HUNG_SECONDS, 7), "ended"]


def test_the_tests_are_watched(request):
    assert any(isinstance(plugin, HangWatch) for plugin in request.config.pluginmanager.get_plugins())
