"""The public modules, whose names are imported when they are first used."""

import importlib
import subprocess
import sys

import pytest

from scripts.exports import list_public_modules


@pytest.mark.parametrize("facade", list_public_modules())
def test_every_name_that_a_public_module_promises_is_there_and_no_other(facade):
    module = importlib.import_module(facade)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    assert dir(module) == module.__all__
    with pytest.raises(AttributeError, match=f"module '{facade}' has no attribute 'nothing_of_the_kind'"):
        module.nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize("facade", list_public_modules())
def test_importing_a_public_module_imports_nothing_behind_it(facade):
    code = f"import sys, {facade}; print([m for m in sys.modules if m.startswith('perdure._')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.strip() == "['perdure._facade']"
