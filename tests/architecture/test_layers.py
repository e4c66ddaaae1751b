"""Who may import whom: the contracts of pyproject.toml hold, and they catch what they are there to catch."""

import ast
import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.architecture.source import ROOT, Module, modules

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


PACKAGES = dict.fromkeys(["_core/__init__", "_runtime/agent/__init__", "_runtime/session/__init__"], "")
"""The packages that a contract is about, which must exist."""


@pytest.fixture
def package(tmp_path):
    """Writes a package `perdure` with these modules, the kernel among them, and gives the folder it lies in."""

    def write(sources: dict[str, str]):
        for name, source in {"__init__": "", **PACKAGES, **sources}.items():
            path = tmp_path / "perdure" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in path.relative_to(tmp_path).parents[:-1]:
                (tmp_path / folder / "__init__.py").touch()
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
                "_core/run/run": "",
                "_io/http/pooled": "import perdure._core.run.run",
                "_tools/web/tools": "import perdure._io.http.pooled",
                "_models/local/demo": "import perdure._core.run.run",
                "_runtime/agent/spec": "import perdure._models.local.demo",
                "_runtime/agent/build": "import perdure._runtime.agent.spec, perdure._tools.web.tools",
                "_runtime/session/driver": "import perdure._runtime.agent.build",
                "_runtime/session/session": "import perdure._runtime.session.driver",
                "_runtime/subagents/tool": "import perdure._runtime.session.session",
                "_runtime/agent/agent": "import perdure._runtime.subagents.tool",
                "_config/load": "import perdure._runtime.agent.agent",
                "_cli/main": "import perdure._config.load",
                "_testing/model": "import perdure._cli.main",
                "testing": "import perdure._testing.model",
            }
        )
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("_core/run/run", "_io/http/pooled"),
        ("_core/run/run", "_models/local/demo"),
        ("_io/http/pooled", "_stores/memory"),
        ("_models/local/demo", "_stores/memory"),
        ("_models/local/demo", "_runtime/agent/agent"),
        ("_runtime/agent/build", "_runtime/agent/agent"),
        ("_runtime/agent/spec", "_runtime/agent/build"),
        ("_runtime/session/driver", "_runtime/session/session"),
        ("_runtime/session/channel", "_runtime/session/driver"),
        ("_runtime/session/session", "_cli/main"),
        ("_cli/main", "_testing/model"),
        ("_stores/memory", "stores"),
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


def test_every_layer_exists():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        for container in contract["containers"]:
            folder = ROOT / "src" / container.replace(".", "/")
            named = set(re.findall(r"\w+", " ".join(contract["layers"])))
            assert sorted(each for each in named if not list(folder.glob(f"{each}*"))) == []


def test_no_module_imports_itself_through_others_not_even_inside_a_function():
    every = modules()
    known = {module.name for module in every}
    imports = {module.name: imported_by(module, known) for module in every}
    assert sorted(name for name in imports if name in reachable(name, imports)) == []


def imported_by(module: Module, known: set[str]) -> set[str]:
    """The modules of ours that a module imports, anywhere but for type checkers alone."""
    found: set[str] = set()
    for node in list_imports(module):
        if isinstance(node, ast.ImportFrom):
            package = module.name if module.path.stem == "__init__" else module.name.rpartition(".")[0]
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            found |= {f"{source}.{each.name}" if f"{source}.{each.name}" in known else source for each in node.names}
        else:
            found |= {each.name for each in node.names}
    return {each for each in found & known if not f"{module.name}.".startswith(f"{each}.")}


def list_imports(module: Module) -> list[ast.Import | ast.ImportFrom]:
    """Its imports, without those for type checkers alone."""
    conditions = [node for node in module.nodes if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    left_out = {node for condition in conditions for statement in condition.body for node in ast.walk(statement)}
    return [node for node in module.nodes if isinstance(node, ast.Import | ast.ImportFrom) and node not in left_out]


def reachable(name: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = [*imports[name]]
    while pending:
        each = pending.pop()
        if each not in found:
            found.add(each)
            pending += imports[each]
    return found


def test_nothing_in_the_package_imports_its_public_face():
    """`from perdure import Agent` inside the package would slip past the layers: it names none of them."""
    importers = [
        module.place
        for module in modules()
        for node in module.nodes
        if (isinstance(node, ast.Import) and any(alias.name == "perdure" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "perdure")
    ]
    assert importers == []


OPENERS = frozenset({"open", "os.open", "io.open", "os.fdopen", "open_code"})
OPENING_METHODS = frozenset({"read_text", "read_bytes", "write_text", "write_bytes"})
OWN_FILES = {
    "perdure._cli.chat.completion": "the history of typed prompts",
    "perdure._cli.services.completion": "the completion script of a shell",
    "perdure._cli.run.init": "files in a folder that the user names on the command line",
    "perdure._cli.run.command": "a JSON Schema that the user names on the command line",
    "perdure._cli.services.mcp_serve": "the tokens that the user names on the command line",
    "perdure._cli.terminal.output": "the null device",
    "perdure._cli.run.trace": "a file that the user names on the command line",
    "perdure._cli.sessions.trace": "a file that the user names on the command line",
    "perdure._cli.sessions.transfer": "a file that the user names on the command line",
    "perdure._core.permission.targets.path": "what `perdure._io.files`, or a gate, has resolved and checked",
    "perdure._core.tools.worker.main": "the null device, in the place of standard input",
    "perdure._work.judging.evals.page": "the parts of the page, which are in the package",
    "perdure._work.goals.worktree": "the ignore file beside the worktrees of goals",
    "perdure._tools.git.pack_index": "a copy of a pack of a repository, in a private folder",
    "perdure._tools.git.private_copy": "a private copy of the data of a repository, in a folder of its own",
    "perdure._tools.git.takeover": "locks and logs of a repository, below the open folders of its data",
    "perdure._tools.git.local": "the entry of a work tree that it makes",
    "perdure._tools.sandbox.mount_check": "what the kernel says about mounts",
    "perdure._tools.shell.output": "spool files, in a folder of its own",
    "perdure._io.processes.private_folder": "temporary folders, to lock them and to see whether they are locked",
    "perdure._tools.shell.command": "a file without a name, with what a command is given",
    "perdure._tools.sandbox.covers": "empty files in the place of missing ones of the runtime, at resolved paths",
    "perdure._tools.shell.placeholders": "lock files, in a folder of its own",
    "perdure._io.processes.tree": "what the kernel says about processes",
    "perdure._tools.browser.supervised": "the pipe that its host has made",
    "perdure._tools.browser.chromium": "the pipe in the folder that it has made",
    "perdure._io.processes.supervisor": "what the kernel says about processes, and the environment that its host wrote",
    "perdure._mcp.login.file": "the lock of those who refresh a login to an MCP server",
    "perdure._mcp.server.stdio": "standard input, and the null device in its place",
    "perdure._mcp.pins": "the programs of servers, to hash them",
    "perdure._models.wires.codex": "the login of another program",
    "perdure._models.wires.google_environment": "the credentials of another program",
    "perdure._models.local.weights": "the weights that the user names",
    "perdure._models.catalogue.prices": "the cached list of prices",
    "perdure._models.catalogue.saved_profiles": "the profiles of endpoints",
    "perdure._tracing.view.page": "the parts of the page, which are in the package",
    "perdure._tracing.collect.tracer": "a file that the program names",
    "perdure._tracing.view.page_parts": "the colours of pages, which are in the package",
}
"""Modules that open files of their own; everything that a project or a model names goes through `perdure._io.files`."""


PAST_THE_LIMITS = {
    "perdure._core.run.run",
    "perdure._core.run.requests",
    "perdure._core.run.turn",
    "perdure._context.history.compaction",
}
"""The modules that ask the model of a run past its limits and its log, and check, store and count by themselves."""


def test_the_model_of_a_run_is_asked_through_its_limits():
    """`run.model` checks limits, stores and counts; what is below it is not for engines, ours or anybody's."""
    found = {
        module.name
        for module in modules()
        for node in module.nodes
        if (isinstance(node, ast.Name) and node.id == "get_model_without_limit_checks")
        or (isinstance(node, ast.Attribute) and node.attr in {"_model", "_get_unlimited_model"} and is_of_run(node))
    }
    assert found == PAST_THE_LIMITS


def test_values_are_converted_where_types_are_prepared_for_several_threads():
    """msgspec crashes if two threads are the first to use a type; `_core/values/jsonable.py` prepares it."""
    found = {
        module.name
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.Attribute) and node.attr == "convert" and ast.unparse(node) == "msgspec.convert"
    }
    assert found == {"perdure._core.values.jsonable", "perdure._core.schema.parameters"}


def is_of_run(node: ast.Attribute) -> bool:
    """Whether this attribute is one of a run or of its spec, as far as the names tell."""
    return ast.unparse(node.value).split(".")[-1].removeprefix("_") in {"run", "spec"}


def test_files_that_others_name_are_opened_by_one_package():
    """Links, sizes and names that mean secrets are decided in `perdure._io.files`, and nowhere else."""
    found = {
        module.name for module in modules() for node in module.nodes if isinstance(node, ast.Call) and is_opening(node)
    }
    own = ("perdure._stores.", "perdure._testing.", "perdure._io.files.", "perdure._io.home.")
    stores = {name for name in found if name.startswith(own)}
    strangers = found - stores - {*OWN_FILES} - {"perdure._tools.basic"}  # `ConfinedTextFolder.read_text`
    assert sorted(strangers) == []
    assert sorted({*OWN_FILES} - found) == []


def is_opening(node: ast.Call) -> bool:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in OPENING_METHODS or ast.unparse(node.func) in OPENERS
    return isinstance(node.func, ast.Name) and node.func.id in OPENERS
