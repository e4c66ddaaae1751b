"""Handlers of `/name`."""

import functools
import pickle
import threading
from typing import Any, cast

import pytest

from perdure import CommandContext, ConfigError, Image, Message, SessionControls, ToolCall, assistant, user
from perdure._context.directives.commands import index_commands
from perdure.context import Command, CommandFailed, Rewrite, ShortCircuit

CONTEXT = CommandContext("cost", "[/cost] now", "/cost now", "now", cast("SessionControls", None))
WRONG: Any = 3


async def test_a_handler_may_be_plain_or_async_or_an_object():
    class Costs:
        async def __call__(self, context):
            return Rewrite(context.arguments)

    async def answer(context):
        return ShortCircuit(context.name)

    assert await Command("cost", Costs()).call_handler(CONTEXT) == Rewrite("now")
    assert await Command("cost", answer).call_handler(CONTEXT) == ShortCircuit("cost")
    assert await Command("cost", functools.partial(lambda function, context: function(context), answer)).call_handler(
        CONTEXT
    ) == ShortCircuit("cost")
    assert await Command("cost", lambda _: None).call_handler(CONTEXT) is None


async def test_a_plain_handler_runs_on_a_thread():
    seen = []
    await Command("cost", lambda _: seen.append(threading.current_thread())).call_handler(CONTEXT)
    assert seen != [threading.current_thread()]


async def test_a_handler_that_raises_is_named():
    def fail(context):
        raise KeyError(context.name)

    with pytest.raises(
        CommandFailed, match=r"the command /cost failed, and the message was not sent: KeyError: 'cost'"
    ) as e:
        await Command("cost", fail).call_handler(CONTEXT)
    assert e.value.name == "cost"
    assert isinstance(e.value.__cause__, KeyError)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


async def test_a_handler_that_returns_something_else_is_named():
    with pytest.raises(ConfigError, match=r"the command /cost returned 3: it has to return Rewrite"):
        await Command("cost", lambda _: WRONG).call_handler(CONTEXT)


@pytest.mark.parametrize("name", ["", "/cost", "1", "a b", "é", "-a", "a\n", 3, None])
def test_a_name_that_nobody_could_write_is_refused(name):
    with pytest.raises(ConfigError, match="Command\\(name="):
        Command(name, print)


def test_a_handler_has_to_be_a_function_and_a_description_text():
    with pytest.raises(ConfigError, match="give a function"):
        Command("a", WRONG)
    with pytest.raises(ConfigError, match="give text"):
        Command("a", print, description=WRONG)


def test_of_one_name_there_is_one_hook():
    one, other = Command("a", print), Command("b", print)
    assert index_commands([one, other]) == {"a": one, "b": other}
    with pytest.raises(ConfigError, match="two commands are named /a"):
        index_commands([one, Command("a", print)])
    with pytest.raises(ConfigError, match="give Command"):
        index_commands([WRONG])


@pytest.mark.parametrize("text", ["", " ", None, 3])
def test_a_rewrite_says_something(text):
    with pytest.raises(ConfigError, match="give non-empty text"):
        Rewrite(text)


def test_an_answer_is_words_or_what_a_model_might_have_said():
    assert ShortCircuit("Four.").message == Message("assistant", assistant("Four.").parts, origin="hook")
    assert ShortCircuit("\ud800").message.text == "\ufffd"
    whole = assistant(["See: ", Image(url="x")])
    assert ShortCircuit(whole).message is whole


@pytest.mark.parametrize(
    "answer", ["", " ", None, 3, user("I"), assistant([ToolCall("1", "a")]), assistant([]), assistant(" ")]
)
def test_anything_else_is_no_answer(answer):
    with pytest.raises(ConfigError, match=r"ShortCircuit\(answer="):
        ShortCircuit(answer)
