"""What the tests of the command line share."""

import click.testing
import pytest

from tests.cli.process import Shell
from windlass.cli.main import program


@pytest.fixture
def shell(tmp_path):
    """Runs the command as a process of its own."""
    return Shell(tmp_path)


@pytest.fixture
def windlass(tmp_path, monkeypatch):
    """Runs the command inside this process: `windlass("run", "…").output`."""
    monkeypatch.setenv("WINDLASS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WINDLASS_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin=None) -> click.testing.Result:
        return click.testing.CliRunner().invoke(program, arguments, input=stdin)

    return run
