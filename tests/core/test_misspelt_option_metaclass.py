"""Structs that programs build from keyword arguments: what they refuse says which class, and what was meant."""

import importlib
import inspect
import pkgutil
import pydoc
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct, convert, field
from msgspec.structs import replace

import perdure
from perdure import Agent, ConfigError, Extension, Limits, Middleware, Settings
from perdure._core.values.checks import StrictOptionsMeta, UnresolvedSignatureMeta
from perdure.context import Compaction, Role, Skill
from perdure.models import Price
from perdure.permissions import Verdict
from perdure.testing import ScriptedModel

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.mark.parametrize(
    ("build", "option", "meant"),
    [
        (Agent, "toolz", "tools"),
        (Agent, "Instructions", "instructions"),
        (Limits, "max_turn", "max_turns"),
        (Settings, "max_tokens", "max_output_tokens"),
        (Verdict, "allowed", "allow"),
        (Compaction, "keep_recent_token", "keep_recent_tokens"),
        (Extension, "tool", "tools"),
        (Middleware, "turns", "turn"),
        (Price, "inputs", "input_usd"),
        (Role, "instruction", "instructions"),
        (Skill, "discription", "description"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_class_and_the_option_that_was_meant(build, option, meant):
    given = [ScriptedModel()] if build is Agent else []
    with pytest.raises(ConfigError) as refused:
        build(*given, **{option: 1})
    name = build.__name__
    assert str(refused.value) == f"{name}({option}=…): there is no option {option!r}: did you mean {meant!r}?"


def test_an_option_that_is_like_no_other_is_refused_with_the_options_there_are():
    options: Any = {"colour": "red"}
    with pytest.raises(ConfigError, match=r"^Limits\(colour=…\): .* 'colour': its options are max_turns, "):
        Limits(**options)


def test_a_missing_option_and_one_without_its_name_are_refused_with_the_options_there_are():
    build: Any = Agent
    with pytest.raises(ConfigError, match=r"Agent\(…\): Missing required argument 'model'; its options are model, "):
        build()
    with pytest.raises(ConfigError, match=r"Agent\(…\): Extra positional arguments provided; its options are "):
        build("demo", [])


class Part(Struct, frozen=True, metaclass=StrictOptionsMeta):
    """A part whose own check fails."""

    number: int = 0

    def __post_init__(self) -> None:
        if self.number > 1:
            raise TypeError("more than one")


def test_errors_of_checks_and_everything_else_stay_as_they_are():
    with pytest.raises(TypeError, match="more than one"):
        Part(number=2)
    assert replace(Part(1), number=0) == convert({}, Part) == Part()


# -- what people see at a prompt ---------------------------------------------------------------------------------------

PACKAGES = ("perdure", *[f"perdure.{each.name}" for each in pkgutil.iter_modules(perdure.__path__)])


@pytest.mark.parametrize("package", [name for name in PACKAGES if "._" not in name])
def test_every_exported_name_has_help_and_what_can_be_called_a_signature(package):
    module = importlib.import_module(package)
    names = [name for name in getattr(module, "__all__", ()) if not name.startswith("_")]
    for name in names:
        exported = getattr(module, name)
        if not inspect.isclass(exported) and not inspect.isfunction(exported):
            continue  # an alias of types, or a value
        assert pydoc.render_doc(exported), name
        try:
            inspect.signature(exported)
        except ValueError:  # an error with the constructor of its base in C has none in any program
            assert inspect.isclass(exported), name
            assert issubclass(exported, Exception | dict | str), name


class _Bill(Struct, kw_only=True, metaclass=UnresolvedSignatureMeta):
    rows: list[str] = field(default_factory=list)
    name: str


class _Price(_Bill, kw_only=False, metaclass=UnresolvedSignatureMeta):
    amount: "Decimal"
    currency: "str | None" = None


def test_annotations_that_only_type_checkers_know_are_shown_as_they_were_written():
    shown = inspect.signature(_Price).parameters
    assert [*shown] == ["amount", "currency", "rows", "name"]
    assert (shown["amount"].annotation, shown["amount"].default) == ("Decimal", inspect.Parameter.empty)
    assert (shown["currency"].annotation, shown["currency"].default) == ("str | None", None)
    assert (shown["rows"].annotation, shown["name"].default) == (list[str], inspect.Parameter.empty)
    assert shown["rows"].default is not inspect.Parameter.empty
    assert [name for name in shown if shown[name].kind is inspect.Parameter.KEYWORD_ONLY] == ["rows", "name"]
    assert inspect.signature(_Bill).parameters["rows"].annotation == list[str]
    with pytest.raises(TypeError):
        inspect.signature(_Price).bind("1", rows=[], colour="red")
