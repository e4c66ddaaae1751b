"""Models are opened by name, or are what they are."""

import inspect
import subprocess
import sys
from typing import Any, cast

import pytest

from perdure import ConfigError
from perdure._models import registry
from perdure._models.local.demo_model import DemoModel
from perdure.models import model_info, open_model, providers, register
from perdure.testing import ScriptedModel


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch):
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))


@pytest.mark.parametrize("name", ["demo", "demo:", "demo:words", "demo/words", "Demo", "DEMO/words"])
def test_the_demonstration_model_is_opened_by_name(name):
    assert isinstance(open_model(name), DemoModel)


def test_a_model_is_itself():
    model = ScriptedModel("hi")
    assert open_model(model) is model


def test_a_registered_provider_opens_its_models_by_what_follows_the_first_colon_or_slash():
    opened = []

    def factory(name):
        opened.append(name)
        return ScriptedModel(name=name)

    register("mine", factory)
    assert model_info(open_model("mine:large:latest")).name == "large:latest"
    open_model("mine")
    open_model("MINE/large/latest:4b")
    assert opened == ["large:latest", "", "large/latest:4b"]
    assert {"demo", "mine"} < set(providers())
    assert providers() == sorted(providers())


def test_a_provider_in_use_is_replaced_only_on_purpose():
    with pytest.raises(ConfigError, match="replace=True"):
        register("demo", lambda _: ScriptedModel())
    with pytest.raises(ConfigError, match="replace=True"):
        register("OpenAI", lambda _: ScriptedModel())
    register("demo", lambda _: ScriptedModel(), replace=True)
    assert isinstance(open_model("demo"), ScriptedModel)


def test_options_go_with_names_of_the_catalogue_alone():
    register("mine", lambda _: ScriptedModel())
    with pytest.raises(ConfigError, match=r"open_model\('mine:large', api_key=…\): a registered provider"):
        open_model("mine:large", api_key="k")
    with pytest.raises(ConfigError, match="options need the name of a model"):
        open_model(ScriptedModel(), attempts=2)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("nobody:large", r"unknown model provider 'nobody' \(in 'nobody:large'\); there are .*openai, anthropic"),
        ("opnai:gpt-5", "did you mean 'openai'?"),
        ("meta-llama/Llama-3.3-70B", r"unknown model provider 'meta-llama'.*openai_compatible\(base_url, model\)"),
        ("", "unknown model provider ''"),
        (":words", "unknown model provider ''"),
        ("demo:genius", "no demonstration model 'genius'; use 'demo' or 'demo:words'"),
        (None, "None is not a model: give a name"),
        (42, "42 is not a model"),
        (b"demo", "b'demo' is not a model"),
        (DemoModel, "DemoModel'> is not a model"),
        (object(), "is not a model"),
    ],
)
def test_what_is_no_model_is_refused_with_advice(spec, complaint):
    with pytest.raises(ConfigError, match=complaint):
        open_model(spec)


def test_a_model_whose_stream_is_an_async_function_is_refused():
    class Hasty:
        async def stream(self, request: Any) -> Any:
            return ScriptedModel("Hello.").stream(request)

    with pytest.raises(ConfigError, match="as an async generator"):
        open_model(cast("Any", Hasty()))


def test_a_provider_that_opens_something_else_is_named():
    factory: Any = str
    register("odd", factory)
    with pytest.raises(ConfigError, match=r"'odd' opened 'odd:thing' as 'thing', which has no stream"):
        open_model("odd:thing")


@pytest.mark.parametrize(
    ("provider", "factory"),
    [
        ("", ScriptedModel),
        ("a:b", ScriptedModel),
        ("a/b", ScriptedModel),
        (" a", ScriptedModel),
        (None, ScriptedModel),
        ("a", "no function"),
    ],
)
def test_what_cannot_be_registered_is_refused(provider, factory):
    with pytest.raises(ConfigError, match=r"register\("):
        register(provider, factory)


def test_a_provider_is_imported_when_a_model_of_it_is_opened():
    code = (
        "import sys, perdure.models as m; loaded = lambda: 'perdure._models.local.demo_model' in sys.modules; "
        "print(loaded()); m.open_model('demo'); print(loaded())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.split() == ["False", "True"]


def test_neither_the_catalogue_nor_the_network_is_imported_before_a_model_is_opened():
    code = (
        "import sys, perdure.models; from perdure import Agent, tool; "
        "print([name for name in ('aiohttp', 'genai_prices', 'perdure._models.catalogue.providers', "
        "'perdure._models.builder') "
        "if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.strip() == "[]"


def test_a_provider_that_opens_its_models_later_is_refused_and_nothing_is_left_running():
    async def open_later(_name: str) -> Any:
        return ScriptedModel("Hello.")

    made: list[Any] = []

    def factory(name: str) -> Any:
        made.append(open_later(name))
        return made[-1]

    register("late", factory)
    with pytest.raises(ConfigError, match=r"the provider 'late' opened 'late:m' as <coroutine"):
        open_model("late:m")
    assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED
