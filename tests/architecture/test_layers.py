"""Who may import whom: the contracts of pyproject.toml hold, and they catch what they are there to catch."""

import ast
import os
import subprocess
import sys

import pytest

from tests.architecture.source import ROOT, modules

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"


def lint(python_path) -> subprocess.CompletedProcess:
    """Hold the package `perdure` of a folder against our contracts, in a process that knows no other."""
    return subprocess.run(
        [sys.executable, "-c", LINT, str(ROOT / "pyproject.toml")],
        env={**os.environ, "PYTHONPATH": str(python_path)},
        cwd=python_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.fixture
def package(tmp_path):
    """Writes a package `perdure` with these modules, core among them, and gives the folder it lies in."""

    def write(sources: dict[str, str]):
        for name, source in {"__init__": "", "core/__init__": "", **sources}.items():
            path = tmp_path / "perdure" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(source, encoding="utf-8")
        return tmp_path

    return write


def test_our_modules_keep_to_their_layers():
    result = lint(ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_allowed_directions_are_allowed(package):
    result = lint(
        package(
            {
                "core/run": "",
                "net/http": "import perdure.core.run",
                "toolkits/web": "import perdure.net.http",
                "models/demo": "import perdure.core.run",
                "hosts/local": "import perdure.toolkits.web, perdure.core.run",
                "session": "import perdure.hosts.local, perdure.models.demo",
                "agent": "import perdure.session",
                "daemon/app": "import perdure.agent",
                "cli/main": "import perdure.daemon.app",
                "testing/scripted": "import perdure.cli.main",
            }
        )
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("core/run", "net/http"),
        ("core/run", "models/demo"),
        ("net/http", "stores/memory"),
        ("models/demo", "stores/memory"),
        ("models/demo", "agent"),
        ("hosts/local", "models/demo"),
        ("toolkits/fs", "hosts/local"),
        ("session", "cli/main"),
        ("channels/slack", "daemon/app"),
        ("cli/main", "testing/scripted"),
    ],
)
def test_a_wrong_direction_is_refused(package, importer, imported):
    folder = package({imported: "", importer: f"import perdure.{imported.replace('/', '.')}"})
    result = lint(folder)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout


def test_a_module_without_a_place_in_the_layers_is_refused(package):
    result = lint(package({"sundries": ""}))
    assert result.returncode == 1, result.stdout + result.stderr
    assert "sundries" in result.stdout


def test_nothing_in_the_package_imports_its_public_face():
    """`from perdure import Agent` inside the package would slip past the layers: it names none of them."""
    importers = [
        module.place
        for module in modules()
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Import) and any(alias.name == "perdure" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "perdure")
    ]
    assert importers == []
