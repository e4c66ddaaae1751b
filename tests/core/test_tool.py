"""Tools: made of functions and methods, given what they ask for, and kept in a box by name."""

import asyncio
import functools
import inspect
import re
import sys
import threading
from types import SimpleNamespace
from typing import Annotated, Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Agent, ConfigError, Invalid, Status, Tool, Toolbox, ToolContext, ToolOutput, tool
from perdure._core.log.redaction import RelatedRunsRedaction
from perdure.events import ToolProgress
from perdure.models import ToolSpec
from perdure.testing import Recorder, ScriptedModel, call
from perdure.tools import tool_from_schema
from tests.core import isolated_tools

NO_CONTEXT: ToolContext[Any] = ToolContext(cast("Any", None), "c", "t")
"""What a tool is given that asks for no context."""


async def carry_out(tool, /, **arguments):
    """Call a tool as the loop does: parse what a model wrote, then make the one call."""
    return await tool.call(tool.parameters.parse(arguments), NO_CONTEXT)


@tool
async def weather(city: Annotated[str, "where"], days: int = 1) -> str:
    """Today's weather for a city.

    Args:
        days: how far ahead
    """
    return f"{city} in {days}: rain"


async def rain(city: str) -> str:
    """A function that is no tool yet."""
    return f"rain in {city}"


# -- made of functions -------------------------------------------------------------------------------------------------


def test_a_tool_takes_its_name_description_and_parameters_from_its_function():
    assert weather.spec == ToolSpec(
        "weather",
        "Today's weather for a city.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where"},
                "days": {"type": "integer", "description": "how far ahead", "default": 1},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    )
    assert repr(weather) == "Tool('weather')"


def test_what_the_function_does_not_say_can_be_said():
    @tool(name="forecast", description="What will be.", effect="read", parallel=False, prompt="Ask for one city.")
    def anything() -> str:
        """Not this."""
        return ""

    assert (anything.name, anything.description) == ("forecast", "What will be.")
    assert (anything.effect, anything.parallel, anything.prompt) == ("read", False, "Ask for one city.")
    assert tool(rain, name="other").name == "other"
    assert tool()(rain).name == "rain"


def test_a_tool_without_a_docstring_has_no_description():
    @tool
    def silent() -> None: ...

    assert silent.description == ""


def test_the_defaults_are_the_careful_ones():
    assert (weather.effect, weather.permission, weather.retries) == ("at_most_once", False, 0)
    assert (weather.parallel, weather.abortable, weather.terminate, weather.timeout_seconds) == (
        True,
        True,
        False,
        None,
    )


async def test_an_async_function_runs_on_the_event_loop():
    @tool
    async def where() -> int:
        return threading.get_ident()

    assert await carry_out(where) == threading.get_ident()


async def test_a_plain_function_runs_on_a_thread():
    @tool
    def where() -> int:
        return threading.get_ident()

    assert await carry_out(where) != threading.get_ident()


async def test_what_a_plain_function_leaves_to_be_awaited_is_awaited():
    @functools.wraps(rain)
    def wrapped(*args, **kwargs):
        return rain(*args, **kwargs)

    assert await carry_out(tool(wrapped), city="Oslo") == "rain in Oslo"
    late = tool_from_schema("late", "", {}, lambda _: asyncio.sleep(0, "later"))
    assert await carry_out(late) == "later"


async def test_a_tool_can_still_be_called_as_the_function_that_it_was():
    @tool
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    assert await weather("Oslo", days=2) == "Oslo in 2: rain"


async def test_arguments_are_checked_and_converted_before_the_function_sees_them():
    @tool
    def add(a: int, b: int = 5) -> int:
        return a + b

    assert await carry_out(add, a="1") == 6
    with pytest.raises(Invalid, match="a"):
        add.parameters.parse({"a": "one"})


def test_a_wrapper_with_a_docstring_of_its_own_is_described_by_it():
    def find(city: str) -> str:
        """Find a city.

        Args:
            city: its name
        """
        return city

    @functools.wraps(find)
    def wrapped(*args, **kwargs):
        return find(*args, **kwargs)

    wrapped.__doc__ = "Find a city, slowly."
    made = tool(wrapped)
    assert made.description == "Find a city, slowly."
    assert made.parameters.json_schema["properties"]["city"]["description"] == "its name"


def test_parameters_of_the_same_type_have_schemas_of_their_own():
    @tool
    def first(count: int) -> int:
        """Count.

        Args:
            count: how many apples
        """
        return count

    @tool
    def second(count: int = 3) -> int:
        """Count."""
        return count

    first.parameters.json_schema["properties"]["count"]["maximum"] = 1
    assert first.parameters.json_schema["properties"]["count"] == {
        "type": "integer",
        "description": "how many apples",
        "maximum": 1,
    }
    assert second.parameters.json_schema["properties"]["count"] == {"type": "integer", "default": 3}


async def test_a_partial_function_is_a_tool_of_what_it_leaves_open():
    def power(base: int, exponent: int) -> int:
        """Raise to a power.

        Args:
            base: what is raised
        """
        return base**exponent

    square = tool(functools.partial(power, exponent=2))
    assert (square.name, square.description) == ("power", "Raise to a power.")
    assert await carry_out(square, base=3) == 9

    async def later(a: int, b: int) -> int:
        return a + b

    assert await carry_out(tool(functools.partial(later, b=1)), a=1) == 2


class Counter:
    """Counts."""

    def __call__(self, step: int) -> tuple[int, int]:
        return step + 1, threading.get_ident()


class AsyncCounter:
    """Counts."""

    async def __call__(self, step: int) -> tuple[int, int]:
        return step + 1, threading.get_ident()


@pytest.mark.parametrize(("counter", "on_the_loop"), [(Counter(), False), (AsyncCounter(), True)])
async def test_an_object_that_can_be_called_is_a_tool_if_it_is_given_a_name(counter, on_the_loop):
    count = tool(counter, name="count")
    assert (count.description, list(count.spec.parameters["properties"])) == ("Counts.", ["step"])
    counted, thread = await carry_out(count, step=1)
    assert counted == 2
    assert (thread == threading.get_ident()) is on_the_loop
    with pytest.raises(ConfigError, match=r"a tool cannot be called ''.*as in @tool\(name="):
        tool(counter)


async def yields_later():
    yield 1


def yields():
    yield 1


@pytest.mark.parametrize("value", [5, "shell", None, Tool, object(), dict], ids=repr)
def test_what_is_no_function_cannot_be_a_tool(value):
    with pytest.raises(ConfigError, match="cannot be a tool: give a function or a method, plain or async"):
        tool()(value)
    with pytest.raises(ConfigError, match="cannot be a tool: give a function or a method, plain or async"):
        tool_from_schema("name", "", {}, value)


@pytest.mark.parametrize("value", [yields, yields_later])
def test_a_tool_returns_and_does_not_yield(value):
    with pytest.raises(ConfigError, match=r"yields, and a tool returns: .* report progress with ToolContext\.emit"):
        tool(value)


def test_a_tool_is_not_made_of_a_tool():
    with pytest.raises(ConfigError, match=r"Tool\('weather'\) is a tool already"):
        tool(weather)


@pytest.mark.parametrize("name", ["", "a b", "naïve", "x" * 65, "fs.read", "<lambda>", "a\n", 5], ids=repr)
def test_a_name_that_providers_refuse_is_refused(name):
    with pytest.raises(ConfigError, match=r"a tool cannot be called .*: use 1 to 64 letters, digits, '_' or '-'"):
        msgspec.structs.replace(weather, name=name)


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_every_name_that_providers_take_is_taken(name):
    assert tool(rain, name=name).name == name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect": "reads"}, r"effect='reads': use 'read', 'idempotent', 'at_most_once', 'ask'"),
        ({"timeout_seconds": 0}, r"timeout_seconds=0: give a number above zero"),
        ({"timeout_seconds": float("nan")}, r"timeout_seconds=nan"),
        ({"timeout_seconds": "5"}, r"timeout_seconds='5'"),
        ({"retries": -1}, r"retries=-1: give a whole number"),
        ({"retries": 1.5}, r"retries=1\.5"),
        ({"permission": "always"}, r"permission='always': give True, False, or a plain function of the arguments"),
    ],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_refused_where_it_is_written(options, message):
    with pytest.raises(ConfigError, match=f"tool 'rain' cannot have {message}"):
        tool(rain, **options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("effects", "did you mean 'effect'?"),
        ("colour", "its options are name, description, effect, permission"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_one_that_was_meant(name, message):
    options: Any = {name: "read"}
    told = re.escape(f"@tool({name}=…): there is no option {name!r}: {message}")
    with pytest.raises(ConfigError, match=told):
        tool(rain, **options)
    with pytest.raises(ConfigError, match=told):
        tool_from_schema("rain", "Rain.", {}, lambda _: "", **options)


def test_permission_may_depend_on_the_arguments():
    careful = tool(rain, permission=lambda arguments: arguments["city"] == "Oslo", action="look")
    assert callable(careful.permission)
    assert (careful.permission({"city": "Oslo"}), careful.action) == (True, "look")


# -- what a call is about ----------------------------------------------------------------------------------------------


def write(text: str, path: str = "out.txt", mode: int | None = None) -> None:
    """Write a file."""


def get_path_target(tool, **arguments):
    assert tool.target is not None
    return tool.target(arguments)


def test_a_target_may_be_named_as_the_argument_that_it_is():
    assert get_path_target(tool(write, target="path"), text="a", path="a.txt") == "a.txt"


def test_the_target_of_a_call_that_leaves_it_to_the_default_is_the_default():
    assert get_path_target(tool(write, target="path"), text="a") == "out.txt"
    assert get_path_target(tool(write, target="mode"), text="a") == ""
    assert get_path_target(tool(write, target="mode"), mode=7) == "7"


def test_a_target_may_be_a_function_of_the_arguments():
    assert get_path_target(tool(write, target=lambda arguments: f"file:{arguments['path']}"), path="a") == "file:a"
    assert tool(write, target=None).target is None


def test_a_target_that_is_no_argument_is_refused():
    with pytest.raises(
        ConfigError, match=r"target='pth' is not a parameter of the tool; there is 'text', 'path', 'mode'"
    ):
        tool(write, target="pth")


def test_the_target_of_a_raw_schema_is_looked_for_as_far_as_it_tells():
    described = {"properties": {"url": {"type": "string"}}}
    assert get_path_target(tool_from_schema("get", "", described, len, target="url"), url="a") == "a"
    assert get_path_target(tool_from_schema("get", "", {}, len, target="url"), url="a") == "a"
    with pytest.raises(ConfigError, match="target='uri'"):
        tool_from_schema("get", "", described, len, target="uri")


# -- made of methods ---------------------------------------------------------------------------------------------------


class Shelf:
    """Something with methods of every kind that are tools."""

    kind = "shelf"
    borrowed = weather

    def __init__(self, owner):
        self.owner = owner

    @tool
    async def find(self, title: str) -> str:
        """Find a book."""
        return f"{title} of {self.owner}"

    @tool(effect="read")
    def count(self, title: str, context: ToolContext[None]) -> tuple[str, ToolContext[None]]:
        return f"{title} x {self.owner}", context

    @tool
    @classmethod
    def describe(cls, verbose: bool = False) -> str:
        """What it is."""
        return f"a {cls.kind}{'!' * verbose}"

    @tool
    @staticmethod
    async def add(a: int, b: int) -> int:
        return a + b

    @staticmethod
    @tool
    def subtract(a: int, b: int) -> int:
        return a - b

    @classmethod
    @tool
    def upside_down(cls) -> str:
        return ""

    def plain(self, title: str) -> str:
        return f"{title} of {self.owner}"

    @classmethod
    def plain_of_class(cls, title: str) -> str:
        return f"{title} of {cls.kind}"


class TallShelf(Shelf):
    kind = "tall shelf"


async def test_a_method_is_a_tool_bound_to_its_object():
    ada, bob = Shelf("Ada"), Shelf("Bob")
    assert await carry_out(ada.find, title="Emma") == "Emma of Ada"
    assert await carry_out(bob.find, title="Emma") == "Emma of Bob"
    assert await ada.find("Emma") == "Emma of Ada"
    assert list(ada.find.spec.parameters["properties"]) == ["title"]
    assert (ada.find.name, ada.find.description) == ("find", "Find a book.")


async def test_a_method_may_ask_for_the_context_too():
    context: Any = NO_CONTEXT
    count = Shelf("Ada").count
    assert await count.call({"title": "Emma"}, context) == ("Emma x Ada", context)
    assert count.effect == "read"


async def test_a_method_without_an_object_is_not_bound():
    assert Shelf.find.receiver == "self"
    assert await Shelf.find(Shelf("Ada"), "Emma") == "Emma of Ada"
    with pytest.raises(ConfigError, match=r"tool 'find' is an unbound method: .* as in `thing\.find`"):
        Toolbox([Shelf.find])


async def test_a_class_method_is_bound_to_the_class_from_which_it_is_taken():
    assert await carry_out(Shelf.describe) == "a shelf"
    assert await carry_out(TallShelf("Ada").describe, verbose=True) == "a tall shelf!"
    function: Any = Shelf.describe
    assert function() == "a shelf"
    assert list(Shelf.describe.spec.parameters["properties"]) == ["verbose"]


async def test_a_static_method_is_a_tool_as_it_is():
    for add in (Shelf.add, Shelf("Ada").add):
        assert await carry_out(add, a=1, b=2) == 3
    for subtract in (Shelf.subtract, Shelf("Ada").subtract):
        assert await carry_out(subtract, a=1, b=2) == -1


async def test_a_method_that_was_bound_before_is_a_tool():
    assert await carry_out(tool(Shelf("Ada").plain), title="Emma") == "Emma of Ada"
    assert await carry_out(tool(TallShelf.plain_of_class), title="Emma") == "Emma of tall shelf"


async def test_a_tool_that_is_an_attribute_of_a_class_is_not_taken_for_a_method():
    borrowed: Any = Shelf("Ada").borrowed
    assert borrowed is weather
    assert await carry_out(borrowed, city="Oslo") == "Oslo in 1: rain"


def test_a_class_method_that_was_made_a_tool_too_early_is_told_apart():
    made = inspect.getattr_static(Shelf, "upside_down").__get__(None, Shelf)
    if isinstance(made, Tool):  # before Python 3.13
        assert Toolbox([made]).get("upside_down") is made
        return
    with pytest.raises(ConfigError, match="write @tool above @classmethod, not below it"):
        Toolbox([made])


# -- made of a raw schema ----------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def test_a_raw_schema_and_a_function_of_a_dict_are_a_tool():
    async def look(arguments):
        return f"rain in {arguments['city']}"

    made = tool_from_schema("weather", "The weather.", SCHEMA, look, effect="read")
    assert made.spec == ToolSpec("weather", "The weather.", SCHEMA)
    assert made.effect == "read"
    assert await carry_out(made, city="Oslo") == "rain in Oslo"
    with pytest.raises(Invalid, match="city"):
        made.parameters.parse({})


async def test_a_function_of_two_parameters_is_given_the_context():
    context: Any = NO_CONTEXT
    for function in (lambda arguments, context: (arguments, context), _with_context):
        made = tool_from_schema("weather", "", SCHEMA, function)
        assert await made.call({"city": "Oslo"}, context) == ({"city": "Oslo"}, context)


async def _with_context(arguments, context):
    return arguments, context


async def test_a_function_that_does_not_tell_its_parameters_is_given_the_arguments_alone():
    assert await carry_out(tool_from_schema("largest", "", {}, max), a=1, b=2) == "b"


def test_a_tool_that_was_not_made_of_a_function_cannot_be_called_like_one():
    made = tool_from_schema("weather", "", SCHEMA, len)
    with pytest.raises(ConfigError, match=r"was not made from a function: call it through an agent or `session\.call`"):
        made(city="Oslo")


def test_a_raw_schema_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="not a JSON Schema"):
        tool_from_schema("weather", "", {"type": "object", "properties": {"city": {"type": "towns"}}}, len)


# -- the context -------------------------------------------------------------------------------------------------------


class Deps:
    unit = "degrees"


@tool
async def tell(context: ToolContext[Deps], city: str) -> dict[str, Any]:
    """Everything that the context knows."""
    context.emit({"asked": city})
    context.state["seen"] = [*context.state.get("seen", []), city]
    return {
        "call_id": context.call_id,
        "name": context.name,
        "key": context.idempotency_key,
        "unit": context.deps.unit,
        "session_id": context.session_id,
        "run_id": context.run_id,
        "turn": context.turn,
        "seen": context.state["seen"],
        "cancelled": context.cancelled,
    }


async def test_the_context_is_not_the_models_to_fill_in():
    assert tell.context_parameter == "context"
    assert list(tell.spec.parameters["properties"]) == ["city"]


async def test_a_tool_is_given_the_context_of_its_call():
    recorder = Recorder()
    model = ScriptedModel(call("tell", city="Oslo"), call("tell", city="Rome"), "done")
    agent: Agent[Deps] = Agent(model, tools=[tell], deps=Deps(), watchers=[recorder])
    outcome = await agent.session("trip").run("Go")
    told = msgspec.json.decode(outcome.messages[4].tool_results[0].text)
    assert told == {
        "call_id": "call_2",
        "name": "tell",
        "key": f"trip/{outcome.run_id}/call_2",
        "unit": "degrees",
        "session_id": "trip",
        "run_id": outcome.run_id,
        "turn": 2,
        "seen": ["Oslo", "Rome"],
        "cancelled": False,
    }
    progress = [(event.call_id, event.name, event.data) for event in recorder.of(ToolProgress)]
    assert progress == [("call_1", "tell", {"asked": "Oslo"}), ("call_2", "tell", {"asked": "Rome"})]


async def test_progress_can_be_told_from_a_thread():
    @tool
    def slow(context: ToolContext[None]) -> str:
        context.emit("half way")
        return "done"

    recorder = Recorder()
    agent: Agent[None] = Agent(ScriptedModel(call("slow"), "done"), tools=[slow], watchers=[recorder])
    await agent.run("Go")
    assert [event.data for event in recorder.of(ToolProgress)] == ["half way"]


async def test_a_tool_may_offer_more_tools_from_the_next_turn_on():
    @tool
    async def teach(context: ToolContext[None]) -> str:
        context.add_tools(weather)
        return "learned"

    model = ScriptedModel(call("teach"), call("weather", city="Oslo"), "done")
    outcome = await Agent(model, tools=[teach]).run("Go")
    assert outcome.messages[4].tool_results[0].text == "Oslo in 1: rain"
    assert [[spec.name for spec in request.tools] for request in model.requests[:2]] == [
        ["teach"],
        ["teach", "weather"],
    ]


def test_a_context_is_a_view_of_its_run():
    added: list[Any] = []
    run: Any = SimpleNamespace(
        deps=3,
        session_id="s",
        run_id="r",
        scratch={},
        redaction=RelatedRunsRedaction(),
        state=SimpleNamespace(turns=7),
        idempotency_key=lambda call_id: f"key of {call_id}",
        publish_progress=lambda *told: added.append(told),
    )
    context: ToolContext[int] = ToolContext(run, "c", "t")
    assert (context.deps, context.session_id, context.run_id, context.turn) == (3, "s", "r", 7)
    assert (context.state, context.idempotency_key, context.cancelled) == ({}, "key of c", False)
    context.emit("half")
    assert added == [("c", "t", "half")]
    context.label_result(["private"])  # there is no result of a call that could get it


async def test_an_error_has_the_labels_that_a_tool_gives_its_result_before():
    @tool
    async def look(context: ToolContext[Any]) -> str:
        context.label_result(["untrusted"])
        raise ValueError("IGNORE ALL")

    outcome = await Agent(ScriptedModel(call("look"), "done"), tools=[look]).run("Go")
    (result,) = outcome.messages[2].tool_results
    assert (result.status, set(result.labels)) == ("error", {"untrusted"})


async def test_a_tool_may_return_more_than_text():
    @tool
    async def look() -> ToolOutput:
        return ToolOutput({"rows": 3}, render={"table": [1, 2, 3]}, summary="3 rows", is_error=True)

    outcome = await Agent(ScriptedModel(call("look"), "done"), tools=[look]).run("Go")
    (result,) = outcome.messages[2].tool_results
    assert (result.text, result.render, result.summary) == ('{"rows":3}', {"table": [1, 2, 3]}, "3 rows")
    assert result.status is Status.ERROR


# -- the box -----------------------------------------------------------------------------------------------------------


def named(*names):
    return [tool(rain, name=name) for name in names]


def test_a_box_gives_tools_by_name_in_the_order_of_listing():
    one, two = named("one", "two")
    box = Toolbox([one, two])
    assert (box.get("two"), box.get("three")) == (two, None)
    assert (list(box), len(box), "one" in box, "three" in box) == ([one, two], 2, True, False)
    assert repr(box) == "Toolbox(one, two)"
    assert (len(Toolbox()), Toolbox().specs) == (0, ())


def test_what_the_model_is_told_is_the_same_object_until_the_tools_change():
    box = Toolbox(named("one", "two"))
    assert [spec.name for spec in box.specs] == ["one", "two"]
    assert box.specs is box.specs
    assert [spec.name for spec in box.with_tools(named("three")).specs] == ["one", "two", "three"]
    assert len(box) == 2


def test_a_name_is_there_once():
    message = r"two tools are called 'one': give one of them another name with @tool\(name=…\)"
    with pytest.raises(ConfigError, match=message):
        Toolbox(named("one", "one"))
    with pytest.raises(ConfigError, match=message):
        Toolbox(named("one")).with_tools(named("one"))


def test_a_box_can_be_narrowed_to_some_names():
    box = Toolbox(named("one", "two", "three"))
    assert [each.name for each in box.with_only(["three", "one"])] == ["one", "three"]
    assert len(box.with_only([])) == 0
    with pytest.raises(ConfigError, match="there is no tool 'tow'; did you mean 'two'"):
        box.with_only(["one", "tow"])


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([len], r"<built-in function len> is not a tool yet: mark it with @tool"),
        (["shell"], r"'shell' is not a tool: use @tool on a function, or tool_from_schema\(…\)"),
        ([None], r"None is not a tool: use @tool on a function"),
        (weather, r"tools=Tool\('weather'\): give a list of tools"),
        (None, r"tools=None: give a list of tools"),
    ],
    ids=str,
)
def test_what_is_no_tool_does_not_get_into_the_box(tools, message):
    with pytest.raises(ConfigError, match=message):
        Toolbox(tools)


# -- names that are nearly right ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("read_fil", "did you mean 'read_file' or 'ReadImage'? available: read_file, ReadImage, shell"),
        ("READ_FILE", "did you mean 'read_file' or 'ReadImage'? available: read_file, ReadImage, shell"),
        ("readimage", "did you mean 'ReadImage' or 'read_file'? available: read_file, ReadImage, shell"),
        ("sell", "did you mean 'shell'? available: read_file, ReadImage, shell"),
        ("bash", "available: read_file, ReadImage, shell"),
        ("", "available: read_file, ReadImage, shell"),
    ],
)
def test_a_wrong_name_is_answered_with_the_near_and_the_available_ones(name, advice):
    assert Toolbox(named("read_file", "ReadImage", "shell")).suggest_names(name) == advice


def test_where_there_are_no_tools_there_is_no_advice():
    assert Toolbox().suggest_names("shell") == "there are no tools"


@given(st.text(max_size=30), st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True), unique=True, max_size=5))
def test_advice_names_every_tool_there_is(name, names):
    advice = Toolbox(named(*names)).suggest_names(name)
    assert all(each in advice for each in names)


def test_a_tool_whose_schema_could_take_too_long_to_check_is_refused_with_the_reason():
    definitions: dict[str, Any] = {
        f"l{level}": {"allOf": [{"$ref": f"#/$defs/l{level + 1}"}] * 10} for level in range(6)
    }
    parameters = {"properties": {"a": {"$ref": "#/$defs/l0"}}, "$defs": {**definitions, "l6": {"type": "string"}}}
    with pytest.raises(ConfigError, match="would take more than 10000 checks; write it with fewer parts or references"):
        tool_from_schema("hostile", "", parameters, lambda _: None)


# -- where a tool comes from -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "run_as", "path", "source"),
    [
        ("shop.tools", None, None, "shop.tools"),
        ("__main__", None, "/srv/bot.py", "bot"),
        ("__mp_main__", None, "/srv/bot.py", "bot"),
        ("__main__", "desk.bot", "/srv/desk/bot.py", "desk.bot"),
        ("__main__", "desk.__main__", "/srv/desk/__main__.py", "desk.__main__"),
        ("__main__", None, "/srv/my-bot.py", "__main__"),
        ("__main__", None, None, "__main__"),
        ("__mp_main__", None, None, "__main__"),
    ],
)
def test_the_source_of_a_tool_in_the_program_that_is_run_is_that_of_an_import(
    monkeypatch, module, run_as, path, source
):
    main = SimpleNamespace(__spec__=None if run_as is None else SimpleNamespace(name=run_as), __file__=path)
    monkeypatch.setitem(sys.modules, module, main)

    async def act() -> str:
        """Act."""
        return ""

    act.__module__, act.__qualname__ = module, "act"
    assert tool(act).source == f"{source}:act"


# -- tools that are made while the program runs ------------------------------------------------------------------------


def test_a_tool_is_made_of_a_method_that_needs_no_instance():
    def add(a: int, b: int) -> int:
        return a + b

    assert tool(staticmethod(add)).name == "add"


async def test_a_function_of_a_module_is_made_a_tool_of_a_worker_process():
    assert isolated_tools.add.function is not None
    made = tool(isolate=True, effect="read")(isolated_tools.add.function)
    outcome = await asyncio.wait_for(Agent(ScriptedModel(call("add", a=2, b=3), "Done."), tools=[made]).run("Go."), 50)
    assert [each.text for message in outcome.messages for each in message.tool_results] == ["5"]


def test_the_labels_of_a_tool_are_checked_and_kept_once():
    @tool(labels=["untrusted", "private", "untrusted"])
    async def look() -> str:
        """Looks."""
        return ""

    assert look.labels == ("untrusted", "private")
    for wrong in ("untrusted", [""], ["a\nb"], ["x" * 1_000], [5]):
        with pytest.raises(ConfigError) as caught:
            msgspec.structs.replace(look, labels=wrong)
        assert str(caught.value) == f"labels={wrong!r}: give a list of short words, such as ['untrusted']"


def test_a_name_may_have_64_characters_and_no_more():
    assert tool(rain, name="x" * 64).name == "x" * 64
    with pytest.raises(ConfigError):
        tool(rain, name="x" * 65)


@pytest.mark.parametrize("options", [{"timeout_seconds": 0.001}, {"timeout_seconds": None}, {"retries": 0}], ids=str)
def test_options_at_the_end_of_their_range_are_taken(options):
    made = tool(rain, **options)
    assert {name: getattr(made, name) for name in options} == options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"timeout_seconds": 0}, "timeout_seconds=0: give a number above zero, or None to wait for ever"),
        ({"timeout_seconds": "1"}, "timeout_seconds='1': give a number above zero, or None to wait for ever"),
        ({"retries": -1}, "retries=-1: give a whole number, 0 for none"),
        ({"retries": 0.5}, "retries=0.5: give a whole number, 0 for none"),
        ({"permission": "yes"}, "permission='yes': give True, False, or a plain function of the arguments"),
    ],
)
def test_options_beyond_their_range_are_refused(options, problem):
    with pytest.raises(ConfigError) as caught:
        tool(rain, **options)
    assert str(caught.value) == f"tool 'rain' cannot have {problem}"
