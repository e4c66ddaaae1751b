"""What a function wants to be given is found out from the function, or refused by name."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import pytest

from perdure import ConfigError
from perdure._core.schema.signature import NO_DEFAULT, Parameter, read_signature

if TYPE_CHECKING:
    from collections import OrderedDict as OnlyForTheChecker

    OnlyDeps = dict

D = TypeVar("D")


def at_the_top(a: int): ...


class Context(Generic[D]):
    pass


class Place:
    pass


def weather(city: str, days: int = 3, *, place: Place | None = None) -> OnlyForTheChecker:
    """Look up the weather.

    Args:
        city: The city.
        place: Where.
    """
    raise NotImplementedError


def test_names_types_defaults_and_descriptions_are_found():
    signature = read_signature(weather)
    assert signature.name == "weather"
    assert signature.context is None
    assert signature.parameters == (
        Parameter("city", str, NO_DEFAULT, "The city."),
        Parameter("days", int, 3, ""),
        Parameter("place", Place | None, None, "Where."),
    )


def test_a_parameter_without_annotation_may_be_anything():
    assert read_signature(lambda value: value).parameters == (Parameter("value", Any),)


def test_annotated_stays_annotated():
    def count(number: Annotated[int, "how many"]):
        raise NotImplementedError

    assert read_signature(count).parameters[0].annotation == Annotated[int, "how many"]


class Kitchen:
    def __init__(self) -> None:
        """A kitchen."""

    def cook(self, dish: str, place: Place) -> None:
        """Cook.

        :param dish: What.
        """

    @classmethod
    def open(cls, hours: int) -> None: ...

    def __call__(self, dish: str) -> None:
        """Cook anything.

        :param dish: This.
        """


def test_methods_callables_and_partials_are_looked_into():
    expected = (Parameter("dish", str, description="What."), Parameter("place", Place))
    assert read_signature(Kitchen().cook).parameters == expected
    assert read_signature(Kitchen.cook, skip=("self", "cls")).parameters == expected
    assert read_signature(Kitchen.open).parameters == (Parameter("hours", int),)
    assert read_signature(Kitchen()).parameters == (Parameter("dish", str, description="This."),)
    assert read_signature(functools.partial(Kitchen().cook, place=Place())).parameters[0] == expected[0]


def test_a_wrapper_is_seen_through():
    @functools.wraps(weather)
    def wrapper(*args, **kwargs):
        raise NotImplementedError

    assert read_signature(wrapper) == read_signature(weather)


def test_types_of_the_enclosing_functions_are_found_while_they_run():
    class Outer:
        pass

    def inside():
        class Inner:
            pass

        class Tools:
            def use(self, outer: Outer, inner: list[Inner]):
                raise NotImplementedError

            found = read_signature(use, skip=("self",))

        return Inner, Tools.found

    inner, signature = inside()
    assert [each.annotation for each in signature.parameters] == [Outer, list.__class_getitem__(inner)]


def test_types_of_enclosing_functions_are_found_after_they_ran_if_the_function_uses_them():
    def inside():
        class Inner:
            pass

        def use(inner: Inner):
            return Inner, later

        if read_signature(use).parameters:  # when the closure has a cell without a value
            later = 1
        return use, Inner

    use, inner = inside()
    assert read_signature(use).parameters[0].annotation is inner


def test_a_name_that_cannot_be_found_is_named():
    def use(thing: list[OnlyForTheChecker]):
        raise NotImplementedError

    with pytest.raises(ConfigError, match=r"parameter 'thing' of .*use is annotated .* the name 'OnlyForTheChecker'"):
        read_signature(use)


def test_an_annotation_that_cannot_be_evaluated_is_shown():
    def use(thing):
        raise NotImplementedError

    use.__annotations__["thing"] = "1 +"
    with pytest.raises(ConfigError, match=r"parameter 'thing' of .*use is annotated '1 \+', which cannot be evaluated"):
        read_signature(use)


def star(*values: int): ...
def double_star(**values: int): ...
def positional(value: int, /): ...
def positional_with_default(value: int = 1, /): ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (star, r"parameter 'values' of star takes any number of values: use a list"),
        (double_star, r"parameter 'values' of double_star takes any keyword: name each parameter"),
        (positional, r"parameter 'value' of positional is positional only, .* remove the `/`"),
        (positional_with_default, r"parameter 'value' of positional_with_default is positional only"),
        (math.hypot, r"the parameters of hypot cannot be inspected .* wrap it in your own function|takes any number"),
        (math.sqrt, r"parameter 'x' of sqrt is positional only"),
        (5, r"the parameters of 5 cannot be inspected"),
        (min, r"the parameters of min cannot be inspected"),
    ],
)
def test_what_a_model_cannot_fill_in_is_refused(function, message):
    with pytest.raises(ConfigError, match=message):
        read_signature(function)


def plain_context(context: Context, city: str): ...
def generic_context(city: str, context: Context[int]): ...
def optional_context(city: str, context: Context[int] | None = None): ...
def annotated_context(city: str, *, context: Annotated[Context[int], "given"]): ...
def unknown_deps(city: str, context: Context[OnlyDeps]): ...


@pytest.mark.parametrize(
    "function", [plain_context, generic_context, optional_context, annotated_context, unknown_deps]
)
def test_the_context_is_not_for_the_model(function):
    signature = read_signature(function, context_type=Context)
    assert signature.context == "context"
    assert signature.parameters == (Parameter("city", str),)


@pytest.mark.parametrize("annotation", ["Context", "'Context'", "m.Context[Deps]", "'m.Context[Deps] | None'"])
def test_a_context_that_only_the_type_checker_knows_is_recognised(annotation):
    namespace: dict[str, Any] = {}
    exec(f"def use(context: {annotation}, city: str): ...", namespace)
    assert read_signature(namespace["use"], context_type=Context).context == "context"


def test_only_a_string_that_names_the_context_stands_for_it():
    namespace: dict[str, Any] = {}
    exec("def use(a: 'NoContext'): ...\ndef more(a: list['Nothing']): ...", namespace)
    for name in ("use", "more"):
        with pytest.raises(ConfigError, match="is not defined"):
            read_signature(namespace[name], context_type=Context)


def test_one_context_is_enough():
    def use(one: Context, two: Context[int]):
        raise NotImplementedError

    with pytest.raises(ConfigError, match="has two context parameters, 'one' and 'two'"):
        read_signature(use, context_type=Context)


def shop_context(context: Context[dict[str, int]], city: str): ...


def class_context(context: Annotated[Context[int], "the context"] | None, city: str): ...


def perhaps_none(context: Context[int | None], city: str): ...


def anything(context: Context[Any], city: str): ...


def of_any_kind(context: Context[D], city: str): ...


@pytest.mark.parametrize(
    ("function", "needed"),
    [
        (shop_context, "dict[str, int]"),
        (class_context, "int"),
        (plain_context, ""),
        (perhaps_none, ""),
        (anything, ""),
        (of_any_kind, ""),
        (unknown_deps, ""),
    ],
)
def test_the_deps_that_a_context_is_annotated_with_are_known_unless_none_would_do(function, needed):
    assert read_signature(function, context_type=Context).needed_deps == needed


def test_annotations_may_name_classes_of_the_body_of_the_class_and_of_every_enclosing_function():
    class Outer:
        pass

    def define():
        class Holder:
            class Inner:
                pass

            def function(self, one: Inner, two: Outer): ...

            signature = read_signature(function, skip=("self",))

        return Holder

    holder = define()
    assert [each.annotation for each in holder.signature.parameters] == [holder.Inner, Outer]


def test_frames_around_a_function_at_the_top_of_a_module_are_not_searched(monkeypatch):
    monkeypatch.setattr("perdure._core.schema.signature.operator.is_", pytest.fail)
    assert read_signature(at_the_top).parameters == (Parameter("a", int),)
