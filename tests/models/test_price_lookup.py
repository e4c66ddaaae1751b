"""Prices come from a list that is installed, are asked for once, and never from the network."""

import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from perdure import ConfigError
from perdure._models.catalogue import prices as price_lookup
from perdure.models import Price, price_of, set_price

OFFLINE = """
import socket, sys, time
def refuse(*a, **k): raise AssertionError("the network was used")
socket.socket.connect = socket.create_connection = refuse
from perdure.models import price_of
print(price_of({provider!r}, {model!r}))
print("genai_prices" in sys.modules)
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(price_lookup, "_prices_set", {})
    price_lookup._look_up_price.cache_clear()
    yield
    price_lookup._look_up_price.cache_clear()


def kept_prices():
    return msgspec.json.decode(Path(price_lookup._get_cache_path()).read_bytes())["prices"]


def elsewhere(provider, model):
    code = OFFLINE.format(provider=provider, model=model)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_a_price_is_asked_of_the_list_once_and_then_comes_from_a_file(tmp_path):
    first = elsewhere("anthropic", "claude-sonnet-4-5")
    again = elsewhere("anthropic", "claude-sonnet-4-5")
    assert first == ["Price(input_usd=3.0, output_usd=15.0, cache_read_usd=0.3, cache_write_usd=3.75)", "True"]
    assert again == [first[0], "False"]
    assert (tmp_path / "perdure" / "prices.json").is_file()


def test_the_price_of_a_model_is_the_same_by_every_name_of_its_provider():
    assert price_of("gemini", "gemini-2.5-flash") == price_of("Google", "gemini-2.5-flash") is not None


def test_a_model_that_is_not_on_the_list_has_no_price_and_that_is_kept_too():
    assert price_of("openai", "gpt-of-tomorrow") is None
    assert kept_prices() == {"openai/gpt-of-tomorrow": None}


@pytest.mark.parametrize(("provider", "model"), [("nobody", "gpt-5"), ("mimo", "mimo-v2.5"), ("vllm", "gpt-5")])
def test_a_provider_without_a_list_has_no_prices(provider, model):
    assert price_of(provider, model) is None


def test_what_runs_on_a_machine_of_yours_costs_nothing_unless_it_is_passed_on():
    assert price_of("ollama", "qwen3:4b") == Price(input_usd=0.0, output_usd=0.0)
    assert price_of("ollama", "gpt-oss:120b-cloud") is None


def test_a_price_that_was_set_wins_and_none_takes_it_back():
    ours = Price(input_usd=1, output_usd=2)
    set_price("OpenAI", "gpt-5", ours)
    set_price("mimo", "mimo-v2.5", ours)
    assert price_of("openai", "gpt-5") == price_of("xiaomi", "mimo-v2.5") == ours
    set_price("openai", "gpt-5", None)
    assert price_of("openai", "gpt-5") is None


def test_a_price_for_a_provider_of_your_own_can_be_set():
    set_price("house", "large", Price(input_usd=1, output_usd=2))
    assert price_of("house", "large") == Price(input_usd=1, output_usd=2)


def test_what_is_no_price_is_refused():
    with pytest.raises(ConfigError, match=r"set_price\(…, 3\): give a Price"):
        set_price("openai", "gpt-5", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "written", [b"", b"{", b'{"version": 3}', b"\xff", b'{"prices": {"a": {"input_usd": -1, "output_usd": 1}}}']
)
def test_a_file_that_cannot_be_read_is_written_anew(written):
    path = Path(price_lookup._get_cache_path())
    path.parent.mkdir()
    path.write_bytes(written)
    assert price_of("openai", "gpt-of-tomorrow") is None
    assert kept_prices() == {"openai/gpt-of-tomorrow": None}


def test_answers_of_another_day_or_another_list_are_asked_for_again(monkeypatch):
    asked = []
    monkeypatch.setattr(price_lookup, "_ask_genai_prices", lambda *names: asked.append(names))
    version = price_lookup._get_genai_prices_version()
    for day in (1, 1, 2):
        price_lookup._look_up_price.cache_clear()
        price_lookup._look_up_price("openai", "gpt-5", day)
    monkeypatch.setattr(price_lookup, "_get_genai_prices_version", lambda: f"{version} newer")
    price_lookup._look_up_price.cache_clear()
    price_lookup._look_up_price("openai", "gpt-5", 2)
    assert len(asked) == 3


def test_a_folder_that_cannot_be_written_only_costs_time(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert price_of("openai", "gpt-of-tomorrow") is None


def test_without_the_list_no_price_is_known(monkeypatch):
    monkeypatch.setattr(price_lookup, "_get_genai_prices_version", str)
    assert price_of("openai", "gpt-5") is None


def test_without_the_package_of_prices_no_price_is_known_and_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda _: None)
    assert price_of("openai", "gpt-5") is None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda _: SimpleNamespace(origin=None))
    price_lookup._look_up_price.cache_clear()
    assert price_of("openai", "gpt-5") is None


def test_a_list_is_known_by_its_file_and_by_its_folder_where_it_has_none(monkeypatch, tmp_path):
    origin = str(tmp_path / "__init__.py")
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda _: SimpleNamespace(origin=origin))
    monkeypatch.setattr(price_lookup, "_ask_genai_prices", lambda *_: Price(input_usd=1, output_usd=2))
    assert price_of("openai", "gpt-5") == Price(input_usd=1, output_usd=2)
    assert msgspec.json.decode(Path(price_lookup._get_cache_path()).read_bytes())["version"] == origin
    (tmp_path / "data.py").write_bytes(b"12345")
    price_lookup._look_up_price.cache_clear()
    price_of("openai", "gpt-5")
    found = (tmp_path / "data.py").stat()
    kept = msgspec.json.decode(Path(price_lookup._get_cache_path()).read_bytes())
    assert kept["version"] == f"{origin} 5 {found.st_mtime_ns}"


def test_all_prices_of_a_day_are_kept_in_one_file_of_the_user_alone(monkeypatch, tmp_path):
    prices = {"gpt-5": Price(input_usd=1, output_usd=2), "gpt-6": None}
    monkeypatch.setattr(price_lookup, "_ask_genai_prices", lambda _, model: prices[model])
    assert {model: price_of("openai", model) for model in prices} == prices
    assert kept_prices() == {"openai/gpt-5": msgspec.to_builtins(prices["gpt-5"]), "openai/gpt-6": None}
    assert [each.name for each in (tmp_path / "perdure").iterdir()] == ["prices.json"]
    assert stat.S_IMODE((tmp_path / "perdure").stat().st_mode) == 0o700


def test_the_file_lies_with_other_caches(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert price_lookup._get_cache_path() == "/caches/perdure/prices.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/elsewhere")
    assert price_lookup._get_cache_path() == "/elsewhere/.cache/perdure/prices.json"
