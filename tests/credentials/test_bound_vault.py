"""Secrets that are for certain tools, and for certain origins."""

from typing import Any

import pytest

from perdure import Agent, ConfigError, ToolError, tool
from perdure._credentials.vault import check_secret_use, list_local_secret_names
from perdure.permissions import BoundVault, MemoryVault, SecretBinding, UrlTarget, allow_all, credentialed, first_of
from perdure.testing import ScriptedModel

KEY = "s3cr3t-value"
HARBOUR = "https://harbour.example"
VALUES = MemoryVault({"key": KEY, "other": "another-value"})
BOUND = BoundVault(VALUES, {"key": SecretBinding(tools=["fetch"], origins=[f"{HARBOUR}:443/"])})
given: list[str] = []


@tool(target=UrlTarget.of_argument("url"))
async def fetch(url: str, token: str = "{{key}}") -> str:
    """Fetch a page."""
    given.append(f"{url} {token}")
    return "ok"


@tool
async def post(token: str) -> str:
    """Post something."""
    given.append(token)
    return "ok"


async def call(used, vault, **arguments):
    given.clear()
    session = Agent(ScriptedModel(), tools=[used], vault=vault, permission=allow_all).session()
    return (await session.call(used.name, arguments)).text


async def test_a_secret_is_given_to_its_tool_for_its_origin():
    assert await call(fetch, BOUND, url=f"{HARBOUR}/berths", token="{{key}}") == "ok"
    assert given == [f"{HARBOUR}/berths {KEY}"]


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/",
        "http://harbour.example/",
        "https://harbour.example:8443/",
        "https://harbour.example.evil.example/",
        "https://harbour.example@evil.example/",
        "https://{{key}}.evil.example/",
        "nonsense",
    ],
)
async def test_a_secret_is_not_given_for_another_origin(url):
    assert "may not be sent" in await call(fetch, BOUND, url=url, token="{{key}}")
    assert given == []


async def test_a_secret_is_not_given_to_another_tool():
    assert "not for the tool 'post', but for fetch" in await call(post, BOUND, token="{{key}}")
    assert given == []


async def test_a_tool_without_a_url_as_its_target_cannot_prove_an_origin():
    vault = BoundVault(VALUES, {"key": SecretBinding(tools=["post"], origins=[HARBOUR])})
    assert "may not be sent where this call sends it" in await call(post, vault, token="{{key}}")


async def test_a_secret_without_origins_is_for_its_tools():
    vault = BoundVault(VALUES, {"key": SecretBinding(tools=["post"])})
    assert await call(post, vault, token="{{key}}") == "ok"
    assert given == [KEY]


async def test_a_secret_that_is_bound_to_nothing_is_not_there():
    assert "other" in await call(post, BOUND, token="{{other}}")
    assert (given, BOUND.names()) == ([], ["key"])


async def test_bindings_hold_among_other_vaults():
    for vault in (first_of(BOUND, VALUES), first_of(VALUES, BOUND), first_of(MemoryVault(), first_of(BOUND))):
        assert "not for the tool" in await call(post, vault, token="{{key}}")
    assert await call(post, first_of(BOUND, VALUES), token="{{other}}") == "ok"


async def test_bindings_hold_for_one_tool_with_credentials():
    given.clear()
    session = Agent(ScriptedModel(), tools=[credentialed(fetch, BOUND)]).session()
    assert "may not be sent" in (await session.call("fetch", {"url": "https://evil.example", "token": "{{key}}"})).text
    assert given == []


def test_secrets_that_are_bound_are_redacted_like_others():
    assert list_local_secret_names(BOUND) == ["key"]
    assert KEY not in repr(BOUND)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SecretBinding(tools="fetch"),
        lambda: SecretBinding(tools=[]),
        lambda: SecretBinding(tools=["fetch"], origins=HARBOUR),
        lambda: SecretBinding(tools=["fetch"], origins=[f"{HARBOUR}/path"]),
        lambda: SecretBinding(tools=["fetch"], origins=["harbour.example"]),
        lambda: BoundVault(VALUES, {"key": ["fetch"]}),  # type: ignore[dict-item]
        lambda: BoundVault(VALUES, {"a b": SecretBinding(tools=["fetch"])}),
        lambda: BoundVault({"key": KEY}, {}),  # type: ignore[arg-type]
    ],
)
def test_bindings_that_cannot_work_are_refused(make):
    with pytest.raises(ConfigError, match=r"give|name a credential"):
        make()


def test_a_binding_keeps_its_tools_and_its_origins_in_normal_form() -> None:
    tools = ["fetch"]
    binding = SecretBinding(tools=tools, origins=[f"{HARBOUR}:443/", "http://LOCALHOST:8080"])
    tools.append("post")
    assert binding.tools == ("fetch",)
    assert binding.origins == (HARBOUR, "http://localhost:8080")
    bindings = {"key": binding}
    vault = BoundVault(VALUES, bindings)
    bindings.clear()
    assert vault.bindings == {"key": binding}
    assert (vault.vault, vault.names()) == (VALUES, ["key"])
    assert (vault.resolve("key"), vault.resolve("other")) == (KEY, None)


@pytest.mark.parametrize(
    ("origins", "said"),
    [
        (HARBOUR, "give a list of origins"),
        ([f"{HARBOUR}/?a=b"], "give origins such as 'https://api.example.org'"),
        ([f"{HARBOUR}/path"], "give origins such as 'https://api.example.org'"),
        ([7], "give origins such as 'https://api.example.org'"),
    ],
)
def test_what_is_no_origin_is_refused(origins: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SecretBinding(tools=["fetch"], origins=origins)
    assert str(caught.value).endswith(f": {said}")


@pytest.mark.parametrize("tools", ["fetch", [], [7]])
def test_what_is_no_list_of_tools_is_refused(tools: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        SecretBinding(tools=tools)
    assert str(caught.value).endswith(": give a list of names of tools")


@pytest.mark.parametrize(
    ("tool_name", "target", "said"),
    [
        ("fetch", UrlTarget.of(f"{HARBOUR}/x"), None),
        ("post", UrlTarget.of(f"{HARBOUR}/x"), "the credential 'key' is not for the tool 'post', but for fetch"),
        (
            "fetch",
            UrlTarget.of("https://evil.example/x"),
            f"the credential 'key' may not be sent to https://evil.example, but to {HARBOUR}",
        ),
        (
            "fetch",
            "https://harbour.example",
            f"the credential 'key' may not be sent where this call sends it, but to {HARBOUR}",
        ),
    ],
)
def test_a_use_that_is_not_allowed_is_told_with_what_is(tool_name: str, target: object, said: str | None) -> None:
    for vault in (BOUND, first_of(MemoryVault(), BOUND)):
        try:
            check_secret_use(vault, "key", tool_name, target)
        except ToolError as error:
            assert str(error) == said  # noqa: PT017 - or none
        else:
            assert said is None
