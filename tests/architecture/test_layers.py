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


@pytest.fixture
def package(tmp_path):
    """Writes a package `perdure` with these modules, core among them, and gives the folder it lies in."""

    def write(sources: dict[str, str]):
        for name, source in {"__init__": "", "core/__init__": "", "runtime/__init__": "", **sources}.items():
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
                "net/http_transport": "import perdure.core.run",
                "toolkits/web": "import perdure.net.pooled_http_transport",
                "models/demo_model": "import perdure.core.run",
                "runtime/agent_spec": "import perdure.toolkits.web, perdure.models.demo_model",
                "runtime/run_builder": "import perdure.runtime.agent_spec",
                "runtime/driver": "import perdure.runtime.run_builder",
                "runtime/session": "import perdure.runtime.driver",
                "runtime/subagents/as_tool": "import perdure.runtime.session",
                "runtime/agent": "import perdure.runtime.subagents.subagent_tool",
                "config": "import perdure.runtime.agent",
                "cli/main": "import perdure.config",
                "testing/scripted": "import perdure.cli.main",
            }
        )
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("core/run", "net/http_transport"),
        ("core/run", "models/demo_model"),
        ("net/http_transport", "stores/memory"),
        ("models/demo_model", "stores/memory"),
        ("models/demo_model", "runtime/agent"),
        ("runtime/session", "runtime/agent"),
        ("runtime/driver", "runtime/session"),
        ("runtime/run_builder", "runtime/driver"),
        ("runtime/driver", "runtime/subagents/crew"),
        ("runtime/session", "cli/main"),
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
    "perdure.cli.chat.input_history": "the history of typed prompts",
    "perdure.cli.completion": "the completion script of a shell",
    "perdure.cli.init": "files in a folder that the user names on the command line",
    "perdure.cli.run_and_resume": "a JSON Schema that the user names on the command line",
    "perdure.cli.mcp_serve": "the tokens that the user names on the command line",
    "perdure.cli.terminal_output": "the null device",
    "perdure.cli.run_trace": "a file that the user names on the command line",
    "perdure.cli.trace": "a file that the user names on the command line",
    "perdure.cli.sessions_transfer": "a file that the user names on the command line",
    "perdure.core.open_without_links": "what `perdure.files`, or a gate, has resolved and checked",
    "perdure.core.path_target": "the target that a gate has seen",
    "perdure.core.tool_worker_main": "the null device, in the place of standard input",
    "perdure.evaluating.report_page": "the parts of the page, which are in the package",
    "perdure.goals.goal_worktree": "the ignore file beside the worktrees of goals",
    "perdure.hosts.git_pack_index": "a copy of a pack of a repository, in a private folder",
    "perdure.hosts.git_private_copy": "a private copy of the data of a repository, in a folder of its own",
    "perdure.hosts.git_takeover": "locks and logs of a repository, below the open folders of its data",
    "perdure.hosts.local_git": "the entry of a work tree that it makes",
    "perdure.hosts.mount_check": "what the kernel says about mounts",
    "perdure.hosts.output_capture": "spool files, in a folder of its own",
    "perdure.hosts.private_folder": "temporary folders, to lock them and to see whether they are locked",
    "perdure.hosts.running_command": "a file without a name, with what a command is given",
    "perdure.hosts.runtime_file_covers": "empty files in the place of missing ones of the runtime, at resolved paths",
    "perdure.hosts.sandbox_placeholder_lock": "lock files, in a folder of its own",
    "perdure.hosts.process_tree": "what the kernel says about processes",
    "perdure.hosts.supervised_browser_program": "the pipe that its host has made",
    "perdure.hosts.chromium_process": "the pipe in the folder that it has made",
    "perdure.hosts.process_supervisor": "what the kernel says about processes, and the environment that its host wrote",
    "perdure.mcp.login.login_file": "the lock of those who refresh a login to an MCP server",
    "perdure.mcp_server.bounded_line_reader": "standard input, and the null device in its place",
    "perdure.mcp.pin_file": "the programs of servers, to hash them",
    "perdure.models.codex.login_file": "the login of another program",
    "perdure.models.vertex_environment": "the credentials of another program",
    "perdure.models.local.weights_file": "the weights that the user names",
    "perdure.models.price_lookup": "the cached list of prices",
    "perdure.models.profile_files": "the profiles of endpoints",
    "perdure.tracing.trace_page": "the parts of the page, which are in the package",
    "perdure.tracing.tracer": "a file that the program names",
    "perdure.tracing.web_page_parts": "the colours of pages, which are in the package",
}
"""Modules that open files of their own; everything that a project or a model names goes through `perdure.files`."""


PAST_THE_LIMITS = {
    "perdure.core.run",
    "perdure.core.model_without_limit_checks",
    "perdure.core.loop",
    "perdure.core.aside_model_requests",
    "perdure.context.compaction",
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
    """msgspec crashes if two threads are the first to use a type; `core/thread_safe_msgspec.py` prepares it."""
    found = {
        module.name
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.Attribute) and node.attr == "convert" and ast.unparse(node) == "msgspec.convert"
    }
    assert found == {"perdure.core.thread_safe_msgspec", "perdure.core.schema"}


def is_of_run(node: ast.Attribute) -> bool:
    """Whether this attribute is one of a run or of its spec, as far as the names tell."""
    return ast.unparse(node.value).split(".")[-1].removeprefix("_") in {"run", "spec"}


def test_files_that_others_name_are_opened_by_one_package():
    """Links, sizes and names that mean secrets are decided in `perdure.files`, and nowhere else."""
    found = {
        module.name for module in modules() for node in module.nodes if isinstance(node, ast.Call) and is_opening(node)
    }
    stores = {name for name in found if name.startswith(("perdure.stores.", "perdure.testing.", "perdure.files."))}
    strangers = found - stores - {*OWN_FILES} - {"perdure.toolkits.basic_tools"}  # `ConfinedTextFolder.read_text`
    assert sorted(strangers) == []
    assert sorted({*OWN_FILES} - found) == []


def is_opening(node: ast.Call) -> bool:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in OPENING_METHODS or ast.unparse(node.func) in OPENERS
    return isinstance(node.func, ast.Name) and node.func.id in OPENERS
