"""The face of `perdure.testing`."""

import subprocess
import sys

import pytest

import perdure.testing


def test_every_name_it_promises_is_there():
    assert [name for name in perdure.testing.__all__ if getattr(perdure.testing, name, None) is None] == []
    assert dir(perdure.testing) == perdure.testing.__all__


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"has no attribute 'Script'; it has FakeClock, .*ScriptedModel"):
        perdure.testing.Script  # noqa: B018


def test_importing_it_imports_none_of_its_parts():
    code = "import sys, perdure.testing; print([m for m in sys.modules if m.startswith('perdure.testing.')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.strip() == "[]"
