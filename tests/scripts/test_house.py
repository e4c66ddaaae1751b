"""scripts/house: what each figure counts, on small trees that are made up, and once on this checkout."""

from pathlib import Path
from textwrap import dedent

import pytest

from scripts.house import imports, members, pages, sizes, steps, suite, uses
from scripts.house.__main__ import main, measure
from scripts.house.checkout import read_checkout
from scripts.house.figure import Figure, format_names, format_table

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def tree(tmp_path):
    """Write a checkout from its files, and return it as it was read; modules are named from `src/perdure` on."""

    def write(files):
        for name, text in {"src/perdure/__init__.py": "", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), encoding="utf-8")
        return read_checkout(tmp_path)

    return write


def modules(texts):
    return {f"src/perdure/{name}": text for name, text in texts.items()}


def figures(part, checkout):
    return {figure.name: figure for figure in part.figures(checkout)}


def now(part, checkout, name):
    return figures(part, checkout)[name].now


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_blanks_comments_and_docstrings_also_below_fields_are_no_code(tree):
    checkout = tree(
        modules(
            {
                "x.py": '''\
                """What it is.

                And more.
                """

                # why
                LIMIT = 3  # how many
                """Of what."""


                def text():
                    """What it does."""
                    return """
                    a

                    b"""
                '''
            }
        )
    )
    assert now(sizes, checkout, "code lines") == "5"


def test_a_package_without_code_has_sizes_too(tree):
    found = figures(sizes, tree({}))
    assert found["code lines"].now == "0"
    assert found["lines of a function: p50 / p95 / max"].now == "0 / 0 / 0"
    assert found["lines of loop.py"].now == "no loop.py"


def test_the_fullest_and_the_deepest_folder_are_found(tree):
    checkout = tree(modules({"a/b/c/x.py": "", "a/x.py": "", "a/y.py": "", "a/__init__.py": ""}))
    found = figures(sizes, checkout)
    assert (found["modules"].now, found["files in the fullest folder"].now) == ("5", "3")
    assert found["files in the fullest folder"].names[0] == "3 perdure/a"
    assert (found["depth of folders"].now, found["depth of folders"].names) == ("3", ["a/b/c"])


def test_a_function_is_counted_from_its_decorator_to_its_last_line(tree):
    long = "@cached\nasync def long():\n" + "    pass\n" * 100
    found = figures(sizes, tree(modules({"x.py": f"{long}\n\ndef short():\n    pass\n"})))
    assert found["lines of a function: p50 / p95 / max"].now == "52 / 97 / 102"
    assert found["functions over 100 lines"].names == ["102 perdure.x.long"]


def test_the_words_of_a_module_are_those_of_its_own_name(tree):
    checkout = tree(
        modules({"a_b_c_d.py": "", "_a_b_c.py": "", "one_two/three_four.py": "", "e_f_g_h/__init__.py": ""})
    )
    found = figures(sizes, checkout)["module names of four words or more"]
    assert sorted(found.names) == ["perdure.a_b_c_d", "perdure.e_f_g_h"]


def test_the_loop_is_found_wherever_it_is_with_its_blank_lines(tree):
    checkout = tree(modules({"_core/run/loop.py": "a = 1\n\n\nb = 2\n", "io/loop.py": "a = 1\n"}))
    assert now(sizes, checkout, "lines of loop.py") == "4"


# -- imports -----------------------------------------------------------------------------------------------------------


def cycles(checkout):
    found = figures(imports, checkout)
    return [len(found[name].names) for name, _, _ in imports.CYCLES]


def test_a_cycle_counts_with_the_kinds_of_imports_that_close_it(tree):
    checkout = tree(
        modules(
            {
                "a.py": "from .b import x",
                "b.py": "from perdure.c import x",
                "c.py": "def late():\n    import perdure.a",
                "d.py": "from .a import x",
                "a2.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .d import x\n",
                "d2.py": "from . import a2\n",
            }
        )
    )
    assert cycles(checkout) == [0, 3, 3]


def test_an_import_for_type_checkers_closes_a_cycle_of_its_own_kind(tree):
    checkout = tree(
        modules(
            {
                "a.py": "import typing\nif typing.TYPE_CHECKING:\n    from .b import x\nelse:\n    from .c import x\n",
                "b.py": "from .a import x",
                "c.py": "",
            }
        )
    )
    assert cycles(checkout) == [0, 0, 2]
    assert figures(imports, checkout)["largest import cycle, with type checking"].names == ["perdure.a", "perdure.b"]


def test_a_module_that_is_imported_by_name_from_its_package_is_an_import_of_that_module_alone(tree):
    checkout = tree(modules({"p/__init__.py": "from .a import x", "p/a.py": "from . import b", "p/b.py": "x = 1"}))
    assert cycles(checkout) == [0, 0, 0]


def test_a_name_that_is_imported_from_a_package_is_an_import_of_its_init(tree):
    checkout = tree(modules({"p/__init__.py": "from .a import x", "p/a.py": "def f():\n    from perdure.p import y\n"}))
    assert cycles(checkout) == [0, 2, 2]


def test_an_import_of_several_levels_up_and_of_a_package_in_full_are_resolved(tree):
    checkout = tree(modules({"a.py": "import perdure.p.q.b", "p/q/b.py": "from ...a import x"}))
    assert cycles(checkout) == [2, 2, 2]


def test_separate_cycles_are_not_one(tree):
    checkout = tree(
        modules(
            {
                "a.py": "from . import b, c",
                "b.py": "from . import a",
                "c.py": "from . import d",
                "d.py": "from . import e",
                "e.py": "from . import c",
            }
        )
    )
    assert figures(imports, checkout)["largest import cycle"].names == ["perdure.c", "perdure.d", "perdure.e"]


def test_a_long_chain_of_imports_does_not_exhaust_the_stack():
    chain = {str(number): [str(number + 1)] for number in range(5_000)}
    assert imports.largest_cycle({**chain, "5000": []}) == []
    assert len(imports.largest_cycle({**chain, "5000": ["0"]})) == 5_001


def test_own_imports_inside_functions_are_counted_by_statement(tree):
    text = """
        import json
        from .b import x

        class C:
            from .b import y

            def late(self):
                import json
                from .b import x, y
                from perdure import b

        def typed():
            if TYPE_CHECKING:
                from .b import x
        """
    found = figures(imports, tree(modules({"a.py": text, "b.py": ""})))["own imports inside functions"]
    assert (found.now, found.names) == ("2", ["2 perdure.a"])


def test_modules_that_one_other_alone_imports_are_a_share_of_those_that_are_no_folder(tree):
    checkout = tree(
        modules(
            {
                "a.py": "from .b import x\ndef f():\n    from .b import y\n    from .c import z",
                "b.py": "",
                "c.py": "from .b import x",
                "p/__init__.py": "",
                "d.py": "from perdure import p",
            }
        )
    )
    found = figures(imports, checkout)["modules that one other alone imports"]
    assert (found.now, found.names) == ("25 % (1 of 4)", ["perdure.c by perdure.a"])


# -- uses --------------------------------------------------------------------------------------------------------------


def test_a_function_is_used_in_one_place_if_its_name_occurs_once_besides_its_definition(tree):
    checkout = tree(
        modules(
            {
                "a.py": """
                    class C:
                        def __enter__(self):
                            return self.once()

                        def once(self): ...

                    def unused(): ...

                    def twice(): ...

                    def moved(): ...

                    names = [twice, twice, "unused"]
                    names.__enter__
                    """,
                "b.py": "from .a import moved\nmoved()\n",
            }
        )
    )
    found = figures(uses, checkout)["functions used in one place"]
    assert (found.now, found.names) == ("20 % (1 of 5)", ["perdure.a.once"])


# -- members -----------------------------------------------------------------------------------------------------------


def test_members_are_methods_properties_and_fields_also_those_of_our_classes_above(tree):
    checkout = tree(
        modules(
            {
                "a.py": """
                    from library import Struct
                    from .b import Base as Above, Mixin

                    class Run(Above[int], Mixin, Struct):
                        __slots__ = ("slot", "_hidden")
                        limit: int = 3

                        def __init__(self):
                            self.count, self._private = 0, 1
                            other.count_of_others = 2

                        @property
                        def state(self): ...

                        async def go(self): ...

                        if True:
                            def where(self): ...
                    """,
                "b.py": """
                    class Base:
                        def above(self): ...
                        def go(self): ...
                    """,
                "c.py": "class Mixin:\n    mixed = 1\nclass Struct:\n    theirs = 1\n",
            }
        )
    )
    found = figures(members, checkout)["public members of Run"]
    assert found.names == ["above", "count", "go", "limit", "mixed", "slot", "state", "where"]


def test_of_several_classes_with_one_name_the_widest_is_meant(tree):
    wide = "class State:\n    a = 1\n    b = 2\n"
    checkout = tree(modules({"a.py": wide, "b.py": "class SessionState:\n    row = 1\n"}))
    assert now(members, checkout, "public members of SessionState") == "2"
    assert now(members, checkout, "public members of Session") == "no such class"


def test_options_are_the_parameters_of_the_constructor(tree):
    text = """
        class Options(TypedDict):
            store: str
            name: str

        class Agent:
            limit: int = 3

            def __init__(self, model, /, *, tools=(), _own=None, **options: Unpack[Options]): ...
        """
    found = figures(members, tree(modules({"a.py": text})))["options of Agent"]
    assert found.names == ["model", "name", "store", "tools"]


def test_without_a_constructor_options_are_the_fields_that_an_object_is_made_with(tree):
    text = """
        class Spec:
            model: str
            kind: ClassVar[str] = "agent"

        class Agent(Spec, Generic[D]):
            tools: tuple = ()
            computed: int = field(init=False)
            _own: int = 0

            def run(self): ...
        """
    found = figures(members, tree(modules({"a.py": text})))["options of Agent"]
    assert found.names == ["model", "tools"]


# -- pages and tests ---------------------------------------------------------------------------------------------------

PAGE = """\
# Agents

## class Agent

`from perdure import Agent`

```py
## class Commented
from perdure.shown import x
```

### Agent.run

## tool

`from perdure.tools import tool`

## Words

Text with `import perdure.said`, but not from perdure.text import anything.

## Two words
"""


def test_a_documented_name_has_a_heading_that_says_what_it_is_or_where_it_is_imported_from(tree):
    found = figures(pages, tree({"docs/reference/agents.md": PAGE}))["documented names"]
    assert found.names == ["perdure.Agent", "perdure.tools.tool"]


def test_import_paths_are_those_in_the_code_of_pages_and_examples(tree):
    checkout = tree(
        {
            "docs/reference/agents.md": PAGE,
            "docs/how-to/x.md": "```python\n>>> from perdure.how import (\n```\n",
            "examples/evals/one.py": "import perdure.mine, json\nfrom perdure import Agent\n",
        }
    )
    found = figures(pages, checkout)
    outside = ["perdure", "perdure.how", "perdure.mine"]
    assert found["  of these outside docs/reference"].names == outside
    paths = found["import paths in docs and examples"].names
    assert paths == sorted([*outside, "perdure.said", "perdure.shown", "perdure.tools"])


def test_names_that_tests_import_are_inner_unless_they_come_through_the_front_door(tree):
    test = """
        import perdure
        from perdure import Agent
        from perdure.testing import call
        from perdure.core import loop
        from perdure.core.loop import react
        import perdure.core.loop
        """
    checkout = tree(
        {
            **modules({"core/__init__.py": "", "core/loop.py": ""}),
            "tests/test_a.py": test,
            "tests/core/test_b.py": "from perdure.core.loop import react\n",
        }
    )
    found = figures(suite, checkout)
    assert found["lines of tests"].now == "8"
    assert found["inner modules that tests import"].names == ["perdure.core.loop"]
    assert found["inner names that tests import"].now == "2 (4 times)"


# -- steps -------------------------------------------------------------------------------------------------------------

MADE_UP = {
    "__init__.py": "from . import events\nfrom .agent import Agent\n",
    "events.py": "class Custom:\n    def __init__(self, name, data): ...\n",
    "testing.py": "class ScriptedModel:\n    def __init__(self, text): ...\n",
    "agent.py": """
        import threading
        from .stores.log import Store

        def helper(n): return n
        def work(): return [n for n in map(lambda n: helper(n), range(3))]

        class Outcome:
            def unwrap(self): ...

        class Run:
            def __init__(self, store): self.store = store
            def outcome(self, status): return Outcome()
            async def emit(self, event, *, sync):
                if not self.store.append_now():
                    self.store.append()

        class Session:
            def __init__(self, agent): self.agent = agent
            async def run(self, prompt): return await self.agent.engine(Run(self.agent.store))

        class Agent:
            def __init__(self, model, engine=None, store=""):
                self.engine, self.store = engine, Store()
            def session(self, name): return Session(self)
            def run_sync(self, prompt):
                from .late import answer
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
                return answer()
        """,
    "late.py": """
        from .agent import Outcome

        def setup(): ...
        def answer(): return Outcome()

        setup()
        """,
    "stores/log.py": """
        import os, tempfile, time
        from ..codec import encode

        class Store:
            def append_now(self): return False
            def append(self):
                encode()
                began = time.perf_counter()
                with tempfile.TemporaryFile() as file:
                    os.fsync(file.fileno())
                self.quick() if time.perf_counter() - began < 0.002 else self.append_slowly()
            def append_slowly(self): ...
            def quick(self): ...
            async def aclose(self): ...
        """,
    "codec.py": "def encode(): ...\n",
}


def test_an_append_passes_what_works_for_the_store_and_counts_how_often_it_was_asked(tree):
    found = steps.run_probe(tree(modules(MADE_UP)).root, "append")
    assert found.below == [
        "codec.py:encode",
        "stores/log.py:Store.append",
        "stores/log.py:Store.append_now",
        "stores/log.py:Store.append_slowly",
    ]
    assert set(found.functions) - set(found.below) == {"agent.py:Run.emit", "events.py:Custom.__init__"}
    assert found.attempts == 2


def test_a_run_passes_functions_on_all_threads_but_no_comprehension_and_nothing_of_an_import(tree):
    found = steps.run_probe(tree(modules(MADE_UP)).root, "run", "model")
    assert found.functions == [
        "agent.py:Agent.run_sync",
        "agent.py:helper",
        "agent.py:work",
        "agent.py:work.<locals>.<lambda>",
        "late.py:answer",
    ]


def test_a_checkout_that_cannot_be_imported_is_not_measured_and_the_last_line_of_its_error_says_why(tree):
    checkout = tree(modules({"__init__.py": "raise RuntimeError('broken ' + 'x' * 100)"}))
    found = list(steps.figures(checkout.root))
    assert [figure.name for figure in found] == ["synced append on SQLite", "first run_sync over HTTP"]
    assert found[0].now.startswith("not measured: RuntimeError: broken xxx")
    assert len(found[0].now) < 100


def test_what_runs_is_the_source_of_the_checkout_and_no_other(tmp_path):
    (tmp_path / "src").mkdir()
    with pytest.raises(steps.NotMeasured, match=r"it would be that of|No module named"):
        steps.run_probe(tmp_path, "run", "demo")


def test_this_checkout_can_be_measured():
    found = {figure.name: figure for figure in steps.figures(ROOT)}
    append, run = found["synced append on SQLite: functions"], found["first run_sync over HTTP: functions"]
    assert any(":SqliteStore.append" in name for name in append.names)
    assert int(found["  attempts"].now) >= 1
    assert any(":Agent.run_sync" in name for name in run.names)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_has_a_column_for_what_is_and_one_for_what_should_be():
    table = format_table([Figure("modules", "640", "<= 640"), Figure("names", "7")])
    assert table.splitlines() == [
        "figure  | now | goal",
        "--------+-----+-------",
        "modules | 640 | <= 640",
        "names   | 7   |",
    ]


def test_names_are_listed_below_figures_that_have_some():
    assert format_names([Figure("modules", "1", "", ["a", "b"]), Figure("lines", "2")]) == "\nmodules:\n  a\n  b"


def test_every_static_figure_of_a_checkout_is_printed(tree, capsys):
    checkout = tree(modules({"a.py": "def f():\n    return 1\n"}))
    assert main([str(checkout.root), "--static", "--names"]) == 0
    printed = capsys.readouterr().out
    for figure in measure(checkout.root, is_static=True):
        assert figure.name in printed


def test_a_folder_that_is_no_checkout_is_refused(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "has no src/perdure" in capsys.readouterr().err
