"""The face of `windlass.testing`."""

import subprocess
import sys

import pytest

import windlass.testing


def test_every_name_it_promises_is_there():
    assert [name for name in windlass.testing.__all__ if getattr(windlass.testing, name, None) is None] == []
    assert dir(windlass.testing) == windlass.testing.__all__


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"has no attribute 'Scripted'; it has FakeClock, .*ScriptedModel"):
        windlass.testing.Scripted  # noqa: B018


def test_importing_it_imports_none_of_its_parts():
    code = "import sys, windlass.testing; print([m for m in sys.modules if m.startswith('windlass.testing.')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.strip() == "[]"
