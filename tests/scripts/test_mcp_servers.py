"""scripts/mcp_servers.py: what is installed, and when it is installed anew."""

import pytest

from scripts import mcp_servers


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """The commands that are run, in a folder of the test."""
    run = []

    def note(command, folder):
        (folder / "python").mkdir(exist_ok=True)
        run.append(command)
        return True

    monkeypatch.setattr(mcp_servers, "FOLDER", tmp_path / ".parts")
    monkeypatch.setattr(mcp_servers, "run", note)
    return run


def test_every_version_is_pinned():
    assert all(each.rpartition("@")[2][0].isdigit() for each in mcp_servers.NODE_SERVERS)
    assert all("==" in each for each in mcp_servers.PYTHON_SERVERS)


def test_servers_of_npm_are_installed_once(commands, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert not mcp_servers.has_node_servers()
    mcp_servers.install_node_servers()
    assert mcp_servers.has_node_servers()
    assert set(mcp_servers.NODE_SERVERS) <= set(commands[0])
    monkeypatch.setattr(mcp_servers, "NODE_SERVERS", ("other@1",))
    assert not mcp_servers.has_node_servers()


def test_without_npm_nothing_is_installed(commands, monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda _: None)
    mcp_servers.install_node_servers()
    assert commands == []
    assert "npm is missing" in capsys.readouterr().out


@pytest.mark.parametrize("uv", ["/usr/bin/uv", None])
def test_servers_of_pypi_get_an_environment_of_their_own(commands, monkeypatch, uv):
    monkeypatch.setattr("shutil.which", lambda _: uv)
    mcp_servers.install_python_servers()
    assert mcp_servers.has_python_servers()
    assert "venv" in commands[0]
    assert set(mcp_servers.PYTHON_SERVERS) <= set(commands[1])


def test_a_command_that_fails_is_told(tmp_path, capsys):
    assert not mcp_servers.run(["sh", "-c", "echo broken >&2; exit 3"], tmp_path)
    assert not mcp_servers.run(["/no/such/program", "x"], tmp_path)
    assert mcp_servers.run(["true"], tmp_path)
    assert "broken" in capsys.readouterr().out
