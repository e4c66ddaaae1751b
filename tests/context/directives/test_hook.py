"""Handlers of `/name`."""

import functools
import pickle
import threading
from typing import Any, cast

import pytest

from perdure.context.directives import Controls, Hook, HookContext, HookFailed, Rewrite, ShortCircuit, by_name
from perdure.core.error import ConfigError
from perdure.core.message import Image, Message, ToolCall, assistant, user

CONTEXT = HookContext("cost", "[/cost] now", "/cost now", "now", cast("Controls", None))
WRONG: Any = 3


async def test_a_handler_may_be_plain_or_async_or_an_object():
    class Costs:
        async def __call__(self, context):
            return Rewrite(context.arguments)

    async def answer(context):
        return ShortCircuit(context.name)

    assert await Hook("cost", Costs()).call(CONTEXT) == Rewrite("now")
    assert await Hook("cost", answer).call(CONTEXT) == ShortCircuit("cost")
    assert await Hook("cost", functools.partial(lambda function, context: function(context), answer)).call(
        CONTEXT
    ) == ShortCircuit("cost")
    assert await Hook("cost", lambda _: None).call(CONTEXT) is None


async def test_a_plain_handler_runs_on_a_thread():
    seen = []
    await Hook("cost", lambda _: seen.append(threading.current_thread())).call(CONTEXT)
    assert seen != [threading.current_thread()]


async def test_a_handler_that_raises_is_named():
    def fail(context):
        raise KeyError(context.name)

    with pytest.raises(
        HookFailed, match=r"the hook of /cost failed, and the message was not sent: KeyError: 'cost'"
    ) as e:
        await Hook("cost", fail).call(CONTEXT)
    assert e.value.name == "cost"
    assert isinstance(e.value.__cause__, KeyError)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


async def test_a_handler_that_returns_something_else_is_named():
    with pytest.raises(ConfigError, match=r"the hook of /cost returned 3: it has to return Rewrite"):
        await Hook("cost", lambda _: WRONG).call(CONTEXT)


@pytest.mark.parametrize("name", ["", "/cost", "1", "a b", "é", "-a", "a\n", 3, None])
def test_a_name_that_nobody_could_write_is_refused(name):
    with pytest.raises(ConfigError, match="Hook\\(name="):
        Hook(name, print)


def test_a_handler_has_to_be_a_function_and_a_description_text():
    with pytest.raises(ConfigError, match="give a function"):
        Hook("a", WRONG)
    with pytest.raises(ConfigError, match="give text"):
        Hook("a", print, description=WRONG)


def test_of_one_name_there_is_one_hook():
    one, other = Hook("a", print), Hook("b", print)
    assert by_name([one, other]) == {"a": one, "b": other}
    with pytest.raises(ConfigError, match="two hooks are called /a"):
        by_name([one, Hook("a", print)])
    with pytest.raises(ConfigError, match="give Hook"):
        by_name([WRONG])


@pytest.mark.parametrize("text", ["", " ", None, 3])
def test_a_rewrite_says_something(text):
    with pytest.raises(ConfigError, match="give some words"):
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
