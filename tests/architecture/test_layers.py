"""Who may import whom: the contracts of pyproject.toml hold, and they catch what they are there to catch."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache

import pytest

from scripts.house import checkout as read
from scripts.house.imports import Import, Kind, build_graph, find_imports, largest_cycle
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
        ("_core/values/event", "_core/run/run"),
        ("_core/model/wrappers", "_core/tools/tool"),
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


def core_rooms() -> dict[str, int]:
    """The rooms of the kernel and the places of their layers, from top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = [each["layers"] for each in settings["tool"]["importlinter"]["contracts"] if each["id"] == "core"]
    return {room: place for place, layer in enumerate(layers) for room in re.findall(r"\w+", layer)}


def find_wrong_directions(found: Iterable[Import]) -> list[str]:
    """The imports between rooms of the kernel that do not go down."""
    rooms = core_rooms()
    wrong = []
    for each in found:
        for target in each.targets:
            above, below = (rooms.get(get_room(name)) for name in (each.importer, target))
            is_within = get_room(each.importer) == get_room(target)
            if above is not None and below is not None and not is_within and above >= below:
                wrong.append(f"{each.importer} -> {target} ({each.kind})")
    return sorted(wrong)


def get_room(module: str) -> str:
    """The room of the kernel that a module lies in; empty for any other module."""
    package, _, rest = module.partition("._core.")
    return rest.partition(".")[0] if package == "perdure" else ""


def test_rooms_of_the_kernel_import_only_rooms_below_them_not_even_for_type_checkers():
    assert find_wrong_directions(our_imports()) == []


@pytest.mark.parametrize("kind", ["module", "function", "typing"])
@pytest.mark.parametrize(
    ("importer", "target", "is_wrong"),
    [
        ("values.event", "run.run", True),
        ("tools.worker.process", "run.run", True),
        ("watch", "model.protocol", True),
        ("run.run", "values.event", False),
        ("log.fold", "log.status", False),
        ("run.spec", "watch", False),
    ],
)
def test_an_import_between_rooms_is_wrong_unless_it_goes_down(importer, target, is_wrong, kind):
    found = find_wrong_directions([Import(f"perdure._core.{importer}", kind, frozenset({f"perdure._core.{target}"}))])
    assert bool(found) == is_wrong


def test_no_module_imports_itself_through_others_not_even_inside_a_function():
    assert find_cycle("module", "function") == []


def test_at_most_eight_modules_import_one_another_for_type_checkers():
    assert len(cycle := find_cycle("module", "function", "typing")) <= 8, cycle


def find_cycle(*kinds: Kind) -> list[str]:
    """The modules of the largest cycle of imports of these kinds."""
    return largest_cycle(build_graph([each.name for each in modules()], [i for i in our_imports() if i.kind in kinds]))


@cache
def our_imports() -> list[Import]:
    """Every import in the package of what is in it, those for type checkers included."""
    parsed = [read.Module(each.name, each.path, "", each.tree, ()) for each in modules()]
    own = {each.name for each in parsed}
    return [found for each in parsed for found in find_imports(each, own)]


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
