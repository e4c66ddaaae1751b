"""What gates, rules, hooks, people and the log see of a call's arguments: what the function gets, defaults included."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from perdure import Agent, Permissions, allow, ask, tool
from perdure._core.schema.definitions import add_schema_defaults
from perdure._core.tools.arguments import MAX_LOGGED_LENGTH, build_checked_arguments, describe_adjusted_arguments
from perdure.events import PermissionDecided, QuestionAsked, ToolStarted
from perdure.permissions import Verdict
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import Skip, around, before, tool_from_schema

PAY_SCHEMA = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "default": 500},
        "to": {"$ref": "#/$defs/Account"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Account"}},
        "note": {"anyOf": [{"$ref": "#/$defs/Account"}, {"type": "null"}], "default": None},
    },
    "$defs": {
        "Account": {
            "type": "object",
            "properties": {"bank": {"type": "string", "default": "evil"}, "owner": {"type": "string"}},
        }
    },
}


@dataclass
class Account:
    bank: str = "evil"
    tags: list[str] = field(default_factory=lambda: ["new"])


class Terse(msgspec.Struct, omit_defaults=True):
    amount: int = 500


class Hidden(pydantic.BaseModel):
    amount: int = pydantic.Field(default=500, exclude=True, alias="sum")


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    to: str = pydantic.Field(default="", alias="recipient")


@attrs.define
class Plain:
    amount: int = 500


def make_pay(**options: Any) -> Any:
    paid: list[int] = []

    @tool(**options)
    def pay(amount: int = 500) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return pay, paid


async def list_requests(checked_tool: Any, **arguments: Any) -> list[dict[str, Any]]:
    """The arguments that a gate sees of one call."""
    seen: list[dict[str, Any]] = []

    async def gate(requests: Any) -> list[Verdict]:
        seen.extend([dict(each.arguments) for each in requests])
        return [Verdict(allow=True)] * len(requests)

    await Agent(
        ScriptedModel(call(checked_tool.name, **arguments), "Done."), tools=[checked_tool], permission=gate
    ).run("Go.")
    return seen


async def run_call(checked_tool: Any, gate: Any = None, **arguments: Any) -> Any:
    agent = Agent(ScriptedModel(call(checked_tool.name, **arguments), "Done."), tools=[checked_tool], permission=gate)
    return await agent.run("Go.")


async def test_a_permission_function_sees_the_default_of_an_argument_that_was_left_out():
    pay, paid = make_pay(permission=lambda a: a.get("amount", 0) > 3)
    await run_call(pay, Permissions())
    await run_call(pay)
    assert paid == []
    await run_call(pay, amount=2)
    assert paid == [2]


async def test_a_permission_function_sees_the_default_that_a_raw_schema_declares():
    ran: list[dict[str, Any]] = []
    pay = tool_from_schema("pay", "Pay.", PAY_SCHEMA, ran.append, permission=lambda a: a.get("amount", 0) > 3)
    await run_call(pay, Permissions())
    assert ran == []
    await run_call(pay, Permissions(), amount=2)
    assert ran == [{"amount": 2}]  # the function gets what was written


async def test_a_gate_sees_defaults_conversions_and_the_fields_of_models():
    @tool
    def buy(  # noqa: PLR0917
        many: int,
        to: Account,
        terse: Terse,
        hidden: Hidden,
        plain: Plain,
        path: Path = Path("x"),
        marks: frozenset[int] = frozenset({2, 1}),
        mode: object = print,
    ) -> None:
        """Buy."""

    (seen,) = await list_requests(buy, many="7", to={}, terse={}, hidden={}, plain={})
    assert seen == {
        "many": 7,
        "to": {"bank": "evil", "tags": ["new"]},
        "terse": {"amount": 500},
        "hidden": {"amount": 500},
        "plain": {"amount": 500},
        "path": "x",
        "marks": [1, 2],
        "mode": seen["mode"],
    }
    assert "print" in seen["mode"]


async def test_what_is_given_beside_the_fields_of_a_model_hides_none_of_them():
    seen: list[Any] = []
    paid: list[str] = []

    @tool(permission=True)
    def pay(order: Open) -> str:
        """Pay."""
        paid.append(order.to)
        return "paid"

    def decide(requests: Any) -> list[Verdict]:
        seen.extend([dict(each.arguments["order"]) for each in requests])
        return [Verdict(allow=True)] * len(requests)

    orders = [{"recipient": "evil", "to": "ann"}, {"recipient": "ann", "note": "x"}]
    model = ScriptedModel(*[call("pay", order=each) for each in orders], "Done.")
    await Agent(model, tools=[pay], permission=decide).run("Go.")
    assert paid == ["evil", "ann"]
    assert seen == [{"to": "evil", "__pydantic_extra__": {"to": "ann"}}, {"to": "ann", "note": "x"}]


async def test_null_for_an_argument_that_cannot_be_null_is_seen_as_its_default():
    pay, paid = make_pay()
    assert await list_requests(pay, amount=None) == [{"amount": 500}]
    assert paid == [500]


async def test_a_gate_sees_the_defaults_of_a_raw_schema_wherever_they_are_nested():
    ran: list[dict[str, Any]] = []
    pay = tool_from_schema("pay", "Pay.", PAY_SCHEMA, ran.append)
    (seen,) = await list_requests(pay, to={"owner": "ann"}, lines=[{}, {"bank": "good"}], note={})
    assert seen == {
        "amount": 500,
        "to": {"bank": "evil", "owner": "ann"},
        "lines": [{"bank": "evil"}, {"bank": "good"}],
        "note": {"bank": "evil"},
    }
    assert ran == [{"to": {"owner": "ann"}, "lines": [{}, {"bank": "good"}], "note": {}}]


WIRE = {"type": "object", "properties": {"kind": {"const": "wire"}, "amount": {"default": 500}}, "required": ["kind"]}


@pytest.mark.parametrize(
    "card",
    [
        {"properties": {"kind": {"const": "card"}, "amount": {"default": 1}}},
        {"properties": {"kind": {"enum": ["card", "cash"]}, "amount": {"default": 1}}},
        {"properties": {"kind": {"type": "integer"}, "amount": {"default": 1}}},
        {"properties": {"kind": {}, "number": {}, "amount": {"default": 1}}, "required": ["kind", "number"]},
        {"properties": {"amount": {"default": 1}}, "additionalProperties": False},
        {"$ref": "#/$defs/Card", "properties": {"amount": {"default": 1}}},
        False,
    ],
)
@pytest.mark.parametrize("choice", ["oneOf", "anyOf"])
async def test_a_gate_sees_the_default_of_the_form_that_the_arguments_have(choice: str, card: Any):
    schema = {
        "type": "object",
        "properties": {"payment": {choice: [card, WIRE]}},
        "$defs": {"Card": {"type": ["object", "null"], "properties": {"kind": {"const": True}}}},
    }
    pay = tool_from_schema("pay", "Pay.", schema, lambda _: "paid")
    (seen,) = await list_requests(pay, payment={"kind": "wire"})
    assert seen == {"payment": {"kind": "wire", "amount": 500}}


async def test_a_gate_sees_defaults_of_items_in_a_fixed_place_and_of_properties_with_any_name():
    def paid(amount: int) -> dict[str, Any]:
        return {"type": "object", "properties": {"amount": {"default": amount}}}

    schema = {
        "type": "object",
        "properties": {"pair": {"type": "array", "prefixItems": [paid(1), paid(2)], "items": paid(3)}},
        "additionalProperties": paid(4),
    }
    pay = tool_from_schema("pay", "Pay.", schema, lambda _: "paid")
    (seen,) = await list_requests(pay, pair=[{}, {}, {}], other={})
    assert seen == {"pair": [{"amount": 1}, {"amount": 2}, {"amount": 3}], "other": {"amount": 4}}


async def test_the_question_the_decision_and_the_log_show_the_defaults_and_the_reply_what_the_model_wrote():
    pay, paid = make_pay(permission=True)
    store = open_store("memory:")
    asked: list[Any] = []

    def answer(requests: Any) -> list[Verdict]:
        asked.extend(requests)
        return [Verdict(allow=True)] * len(requests)

    agent = Agent(ScriptedModel(call("pay"), "Done."), tools=[pay], permission=Permissions(handler=answer), store=store)
    session = agent.session("s")
    events = [entry.event for entry in (await session.run("Go.")).entries]
    (question,) = [each for each in events if isinstance(each, QuestionAsked)]
    (decided,) = [each for each in events if isinstance(each, PermissionDecided)]
    (started,) = [each for each in events if isinstance(each, ToolStarted)]
    assert asked[0].arguments == {"amount": 500}
    assert "500" in msgspec.json.encode(question).decode()
    assert decided.target == '{"amount":500}'
    assert started.adjusted_arguments == '{"amount":500}'
    (message,) = [each for each in await session.messages() if each.tool_calls]
    assert message.tool_calls[0].arguments == "{}"
    assert paid == [500]


async def test_the_log_shows_what_a_call_without_permission_gets_if_it_does_more_than_read():
    for effect, expected in (("at_most_once", '{"amount":500}'), ("read", "")):
        pay, _ = make_pay(effect=effect)
        outcome = await run_call(pay)
        (started,) = [entry.event for entry in outcome.entries if isinstance(entry.event, ToolStarted)]
        assert started.adjusted_arguments == expected
        outcome = await run_call(pay, amount=1)
        (started,) = [entry.event for entry in outcome.entries if isinstance(entry.event, ToolStarted)]
        assert started.adjusted_arguments == ""


async def test_an_approval_of_exactly_these_arguments_does_not_count_when_the_default_is_another():
    def make(default: int) -> Any:
        @tool(permission=True)
        def pay(amount: int = default) -> str:
            """Pay."""
            return "paid"

        return pay

    asked: list[Any] = []

    def answer(requests: Any) -> list[Verdict]:
        asked.extend(requests)
        return [Verdict(allow=True, scope="session")] * len(requests)

    store, gate = open_store("memory:"), Permissions(handler=answer)
    for default in (5, 5, 5000):
        agent = Agent(ScriptedModel(call("pay"), "Done."), tools=[make(default)], permission=gate, store=store)
        await agent.session("s").run("Go.")
    assert [each.arguments for each in asked] == [{"amount": 5}, {"amount": 5000}]


async def test_a_value_that_a_default_factory_makes_is_the_one_that_was_checked_and_does_not_change_the_approval():
    numbers = itertools.count()

    @dataclass
    class Order:
        item: str
        number: int = field(default_factory=lambda: next(numbers))

    got: list[int] = []

    @tool(permission=True)
    def order(order: Order) -> str:
        """Order."""
        got.append(order.number)
        return "ordered"

    seen: list[Any] = []

    def answer(requests: Any) -> list[Verdict]:
        seen.extend(requests)
        return [Verdict(allow=True)] * len(requests)

    for _ in range(2):
        await run_call(order, Permissions(handler=answer), order={"item": "tea"})
    assert [each.arguments["order"]["number"] for each in seen] == got
    assert got[0] != got[1]
    assert seen[0].arguments_hash == seen[1].arguments_hash


async def test_a_generated_value_that_cannot_be_read_back_is_made_once_more_for_the_call():
    numbers = itertools.count()

    class Order(pydantic.BaseModel):
        number: int = pydantic.Field(default_factory=lambda: next(numbers), alias="no")

    got: list[int] = []

    @tool(permission=True)
    def order(order: Order, again: bool) -> str:
        """Order."""
        got.append(order.number)
        return "ordered"

    await run_call(order, Permissions(allow("*")), order={}, again=True)
    assert len(got) == 1


async def test_a_call_whose_generated_value_is_no_valid_argument_keeps_what_was_written():
    numbers = itertools.count()

    class Order(msgspec.Struct, forbid_unknown_fields=True):
        number: Any = msgspec.field(default_factory=lambda: next(numbers))

    @tool(permission=True)
    def order(order: Order, token: pydantic.SecretStr) -> str:
        """Order."""
        return token.get_secret_value()

    class Strict(pydantic.BaseModel, extra="forbid"):
        number: int = pydantic.Field(default_factory=lambda: next(numbers), alias="no")

    @tool(permission=True)
    def strict(order: Strict) -> str:
        """Order."""
        return "ordered"

    outcome = await run_call(order, Permissions(allow("*")), order={}, token="sesame")
    assert outcome.messages[2].tool_results[0].text == "sesame"
    outcome = await run_call(strict, Permissions(allow("*")), order={})
    assert outcome.messages[2].tool_results[0].text == "ordered"


async def test_hooks_and_wrappers_see_defaults_and_what_they_leave_alone_stays_as_written():
    pay, paid = make_pay()
    seen: list[Any] = []

    def refuse_large(_call: Any, arguments: dict[str, Any]) -> Skip | None:
        seen.append(arguments)
        return Skip("too much") if arguments.get("amount", 0) > 3 else None

    await run_call(before(pay, refuse_large))
    await run_call(before(pay, refuse_large), amount="7")
    assert paid == []
    assert seen == [{"amount": 500}, {"amount": 7}]

    def wrap(call_next: Any, arguments: dict[str, Any], _context: Any) -> Any:
        seen.append(dict(arguments))
        return call_next()

    await run_call(around(pay, wrap))
    await run_call(around(pay, wrap), Permissions(allow("*")))
    assert seen[2:] == [{"amount": 500}] * 2
    assert paid == [500, 500]


async def test_a_hook_that_passes_on_what_it_was_shown_does_not_turn_defaults_into_arguments():
    ran: list[dict[str, Any]] = []
    pay = tool_from_schema("pay", "Pay.", PAY_SCHEMA, ran.append)
    await run_call(before(pay, lambda _call, a: {**a, "to": {"owner": "bob"}}), lines=[{}])
    assert ran == [{"lines": [{}], "to": {"owner": "bob"}}]


async def test_a_target_function_sees_defaults():
    @tool(permission=True, target=lambda a: f"account {a['amount']}")
    def pay(amount: int = 500) -> str:
        """Pay."""
        return "paid"

    seen: list[str] = []

    def answer(requests: Any) -> list[Verdict]:
        seen.extend([each.target for each in requests])
        return [Verdict(allow=False)] * len(requests)

    await run_call(pay, Permissions(ask("*"), handler=answer))
    assert seen == ["account 500"]


async def test_explain_sees_defaults():
    pay, _ = make_pay(permission=lambda a: a.get("amount", 0) > 3)
    agent = Agent(ScriptedModel(), tools=[pay], permission=Permissions(), store=open_store("memory:"))
    assert (await agent.session("s").explain("pay", {})).verdict == "deny"
    assert (await agent.session("s").explain("pay", {"amount": 1})).verdict == "allow"


def test_the_log_repeats_only_what_differs_and_nothing_long():
    long = ["x" * MAX_LOGGED_LENGTH]
    written, checked = {"a": 1, "b": {"c": 1}}, {"a": 1, "b": {"c": 1, "d": 2}, "e": 3}
    assert describe_adjusted_arguments(written, checked) == '{"b":{"d":2},"e":3}'
    assert describe_adjusted_arguments({}, {"a": long}) == f'{{"a":"<{MAX_LOGGED_LENGTH + 4} characters>"}}'


def test_a_default_that_contains_itself_is_shown_as_far_as_it_can_be():
    loop: list[Any] = []
    loop.append(loop)

    @tool
    def look(at: Any = loop, keys: Any = None, rest: Any = None) -> None:
        """Look."""

    shown = build_checked_arguments(look, {}, {"keys": {1: "a"}, "rest": (1, 2)})
    assert shown["keys"] == {"1": "a"}
    assert shown["rest"] == [1, 2]
    assert "cut" in str(shown["at"]) or "cycle" in str(shown["at"])


def test_defaults_of_a_schema_that_refers_to_itself_end():
    schema = {
        "type": "object",
        "properties": {"next": {"$ref": "#", "default": {}}, "odd": {"$ref": "#/no/where"}, "far": {"$ref": "x:y"}},
        "anyOf": [{"$ref": "#"}, True, {"properties": {"other": {"default": 1}}}],
    }
    filled = add_schema_defaults(schema, {"odd": 1, "far": {"a": 1}})
    assert filled["other"] == 1
    assert filled["next"]["next"]["other"] == 1


def test_a_schema_of_a_hostile_server_does_not_keep_the_event_loop_busy():
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {f"p{n}": {"$ref": "#", "default": {}} for n in range(50)},
    }
    filled = add_schema_defaults(schema, {})
    assert len(filled) == 50


async def test_two_secrets_that_look_the_same_masked_are_two_approvals():
    got: list[str] = []

    @tool(permission=True)
    def log_in(password: pydantic.SecretStr, others: list[pydantic.SecretStr]) -> str:
        """Log in."""
        got.append(password.get_secret_value())
        return "in"

    store, asked = open_store("memory:"), []

    def answer(requests: Any) -> list[Verdict]:
        asked.extend(requests)
        return [Verdict(allow=True, scope="session")] * len(requests)

    gate = Permissions(handler=answer)
    for password, other in (("a", "b"), ("b", "b"), ("a", "a"), ("a", "b")):
        model = ScriptedModel(call("log_in", password=password, others=[other]), "Done.")
        await Agent(model, tools=[log_in], permission=gate, store=store).session("s").run("Go.")
    assert got == ["a", "b", "a", "a"]
    assert len(asked) == 3


def test_an_object_that_cannot_be_inspected_is_shown_as_what_it_is():
    class Odd:
        __dataclass_fields__ = ("a",)

        @property
        def a(self) -> int:
            raise OSError("gone")

        def __repr__(self) -> str:
            return "Odd()"

    @tool
    def look(at: Any = None, lines: Any = None, named: Any = None) -> None:
        """Look."""

    class Named(msgspec.Struct, tag="named"):
        line: int = 1

    shown = build_checked_arguments(look, {"lines": [1]}, {"at": Odd(), "lines": [1, 2], "named": Named()})
    assert "Odd" in str(shown["at"])
    assert shown["lines"] == [1, 2]
    assert shown["named"] == {"type": "named", "line": 1}
