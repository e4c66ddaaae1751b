"""What all tests share: their plugins, and how hypothesis looks for counterexamples."""

import signal

import hypothesis
import pytest

from perdure.core import faults

pytest_plugins = ["pytester", "tests.needs", "tests.stores.postgres_server"]

# A slow machine is no counterexample. The rest is left to hypothesis, which repeats itself under CI.
hypothesis.settings.register_profile("perdure", deadline=None)
hypothesis.settings.load_profile("perdure")


# A shell starts what runs in its background with Ctrl-C ignored, `nohup` what it runs with hang-ups ignored; whatever
# a test starts, and sends such a signal, would ignore it as well, and the test would wait for ever. What a handler
# takes instead is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """When every run goes on from the log after each append, what no log keeps cannot be looked at."""
    for item in items:
        marker = item.get_closest_marker("in_memory")
        if faults.always_resume and marker is not None:
            item.add_marker(pytest.mark.skip(reason=f"no log keeps it: {marker.args[0]}"))
