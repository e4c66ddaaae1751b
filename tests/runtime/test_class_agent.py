"""Agents that are described as a class."""

from dataclasses import dataclass, field

import pytest
from msgspec import Struct

from perdure import Agent, ConfigError, Limits, PerdureError, ToolContext, agent_of, tool, tools_of
from perdure.engines import Step
from perdure.testing import ScriptedModel, call


class Quay:
    """You look after a quay.

    Be brief.
    """

    def __init__(self, name: str = "North") -> None:
        self.name_of_it = name

    @tool
    async def berths(self) -> str:
        """Which berths are free."""
        return f"{self.name_of_it}: 4"

    @tool
    @classmethod
    def kind(cls) -> str:
        """What it is."""
        return cls.__name__

    @tool
    @staticmethod
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    def plain(self) -> str:
        return "no tool"


class Harbour(Quay):
    model = "demo"
    name = "harbour-master"
    description = "Knows the berths."
    limits = Limits(max_turns=3)

    @tool(name="tow")
    def fetch(self, ship: str) -> str:
        """Fetch a ship."""
        return f"{ship} is in"

    @tool
    async def berths(self) -> str:
        """Which berths are free, all of them."""
        return f"{self.name_of_it}: 4 and 5"


def note(text: str) -> None:
    """Write something down."""


def names(thing: object) -> list[str]:
    return [each.name for each in tools_of(thing)]


def test_the_tools_of_an_object_are_in_the_order_of_definition():
    assert names(Quay()) == ["berths", "kind", "add"]
    assert names(Harbour()) == ["berths", "kind", "add", "tow"]
    assert names(object()) == []


async def test_each_tool_is_bound_to_its_object():
    harbour = Harbour("South")
    agent = Agent("demo", tools=tools_of(harbour))
    session = agent.session()
    assert (await session.call("berths", {})).text == "South: 4 and 5"
    assert (await session.call("kind", {})).text == "Harbour"
    assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
    assert (await session.call("tow", {"ship": "Sea Cat"})).text == "Sea Cat is in"


async def test_decorators_may_stand_in_either_order():
    class Mixed:
        @classmethod
        @tool
        def of_class(cls) -> str:
            """Tell the class."""
            return cls.__name__

        @staticmethod
        @tool
        def of_nobody() -> str:
            """Tell nothing."""
            return "nothing"

    session = Agent("demo", tools=tools_of(Mixed())).session()
    assert (await session.call("of_class", {})).text == "Mixed"
    assert (await session.call("of_nobody", {})).text == "nothing"


def test_a_tool_that_is_defined_again_as_something_else_is_gone():
    class Closed(Quay):
        berths = None  # type: ignore[assignment]

    assert names(Closed()) == ["kind", "add"]


def test_no_property_is_looked_at_and_what_an_object_holds_counts():
    class Lazy:
        def __init__(self) -> None:
            self.extra = tool(note, name="extra")

        @property
        def trap(self) -> str:
            raise AssertionError

        @tool
        def look(self) -> str:
            """Look."""
            return "there"

    assert names(Lazy()) == ["look", "extra"]


def test_an_object_with_slots_has_its_tools_too():
    class Slotted(Struct):
        berth: int

        @tool
        def where(self) -> int:
            """Where it lies."""
            return self.berth

    assert names(Slotted(4)) == ["where"]
    assert agent_of(Slotted(4), "demo").instructions == ""


def test_an_agent_is_made_of_the_attributes_of_an_object():
    agent = agent_of(Harbour())
    assert (agent.name, agent.description, agent.limits.max_turns) == ("harbour-master", "Knows the berths.", 3)
    assert agent.instructions == "You look after a quay.\n\nBe brief."
    assert [each.name for each in agent.tools] == ["berths", "kind", "add", "tow"]


def test_a_name_is_made_of_that_of_the_class():
    class HTTPHarbourMaster2:
        pass

    assert agent_of(HTTPHarbourMaster2(), "demo").name == "http_harbour_master2"
    assert agent_of(Quay(), "demo").name == "quay"


def test_options_win():
    agent = agent_of(Harbour(), name="other", instructions="Shout.", tools=[], model="demo")
    assert (agent.name, agent.instructions, agent.tools) == ("other", "Shout.", ())
    model = ScriptedModel("Hi")
    assert agent_of(Harbour(), model).model is model


def test_attributes_may_be_of_the_object_a_property_or_a_method():
    class Ship:
        def __init__(self, port: str) -> None:
            self.port = port
            self.model = "demo"
            self.tools = [tool(note, name="length")]

        @property
        def instructions(self) -> str:
            return f"You sail from {self.port}."

        def stop(self, step: Step) -> bool:
            return step.turn > 3

        @tool
        def engine(self) -> str:
            """How the engine does; no way to think."""
            return "well"

    ship = Ship("Oslo")
    agent = agent_of(ship)
    assert agent.instructions == "You sail from Oslo."
    assert agent.stop == ship.stop
    assert [each.name for each in agent.tools] == ["engine", "length"]


def test_words_that_a_dataclass_makes_up_are_no_instructions():
    @dataclass
    class Made:
        berth: int = 4

    @dataclass
    class Said:
        """You are a berth."""

        ships: list[str] = field(default_factory=list)

    assert agent_of(Made(), "demo").instructions == ""
    assert agent_of(Said(), "demo").instructions == "You are a berth."


async def test_such_an_agent_runs():
    class Ship:
        model = ScriptedModel(call("sail", port="Oslo"), "We are in Oslo.")

        def __init__(self) -> None:
            self.port = "Bergen"

        @tool
        async def sail(self, port: str, context: ToolContext[str]) -> str:
            """Sail somewhere."""
            self.port = port
            return f"{context.deps}: in {port}"

    ship = Ship()
    outcome = await agent_of(ship, deps="log").run("To Oslo!")
    assert (ship.port, outcome.text) == ("Oslo", "We are in Oslo.")
    assert outcome.messages[2].tool_results[0].text == "log: in Oslo"


def test_what_cannot_work_is_said():
    with pytest.raises(ConfigError, match=r"Quay has no model: set Quay.model, or use agent_of"):
        agent_of(Quay())
    with pytest.raises(ConfigError, match=r"agent_of\(Quay\): give an object of it, as in agent_of\(Quay\(\)\)"):
        agent_of(Quay, "demo")
    with pytest.raises(ConfigError, match=r"tools_of\(Quay\): give an object"):
        tools_of(Quay)
    with pytest.raises(ConfigError, match=r"agent_of\(…\) does not take 'colour': an agent takes model, name"):
        agent_of(Harbour(), colour="blue")

    class Wrong:
        tools = "all"

    with pytest.raises(ConfigError, match=r"Wrong.tools is 'all': make it a list of tools"):
        agent_of(Wrong(), "demo")

    class Twice(Quay):
        @tool(name="berths")
        def again(self) -> str:
            """The same name."""
            return ""

    with pytest.raises(PerdureError, match="berths"):
        agent_of(Twice(), "demo")
