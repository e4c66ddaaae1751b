"""The list of models that an endpoint publishes, and the size of a window in it, under any of its names."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from perdure import AuthFailed
from perdure._io.http.transport import NetError
from perdure._models.endpoint.model_list import ListedModel, append_url_path, fetch_context_window, fetch_model_list
from perdure.models import FixedHeaders
from tests.models.canned import CannedResponse

URL = "https://host.example/v1"
NONE = CannedResponse(b"not found", "text/plain", 404)
KEY = FixedHeaders({"authorization": "Bearer k"})


class Lists:
    """A transport that answers GET requests by their address, and keeps what was asked."""

    def __init__(self, **answers: Any) -> None:
        self._answers = {
            name: each if isinstance(each, (CannedResponse, Exception)) else CannedResponse(msgspec.json.encode(each))
            for name, each in answers.items()
        }
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    @asynccontextmanager
    async def get(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[CannedResponse]:
        self.asked.append((url, headers))
        answer = self._answers.get(url.rpartition("/")[2], NONE)
        if isinstance(answer, Exception):
            raise answer
        yield answer


async def listed(answer: Any) -> list[ListedModel] | None:
    return await fetch_model_list(URL, KEY, Lists(models=answer))


@pytest.mark.parametrize(
    ("answer", "models"),
    [
        ({"data": [{"id": "a"}, {"name": "models/b"}, {"model": "c"}]}, ["a", "b", "c"]),
        ({"models": [{"name": "models/a"}, {"id": ""}, {}]}, ["a"]),
        ({"data": [{"id": "a"}], "models": [{"id": "b"}]}, ["a"]),
        ([{"id": "a"}], ["a"]),
        ({"data": []}, []),
    ],
)
async def test_a_list_is_read_in_whatever_form_it_comes(answer: Any, models: list[str]) -> None:
    assert await listed(answer) == [ListedModel(name) for name in models]


@pytest.mark.parametrize("answer", [{}, {"data": ["a"]}, "text", CannedResponse(b"<"), CannedResponse(b"\xff"), NONE])
async def test_what_is_no_list_is_none(answer: Any) -> None:
    assert await listed(answer) is None


@pytest.mark.parametrize(
    ("fields", "window"),
    [
        *[
            ({name: 4096}, 4096)
            for name in (
                "max_model_len",
                "loaded_context_length",
                "context_length",
                "context_window",
                "max_context_length",
                "max_context_tokens",
                "max_input_tokens",
                "inputTokenLimit",
                "n_ctx",
            )
        ],
        ({"max_context_length": 32_768, "loaded_context_length": 4096}, 4096),
        ({"meta": {"inner": {"n_ctx": 4096}}}, 4096),
        ({"a": {"x": 1}, "b": {"n_ctx": 4096}}, 4096),
        ({"context_length": True}, None),
        ({"context_length": "4096"}, None),
        ({"context_length": 255, "n_ctx": 256}, 256),
        ({"context_length": 255}, None),
        ({}, None),
    ],
)
async def test_a_window_is_found_under_any_of_its_names(fields: Any, window: int | None) -> None:
    assert await listed({"data": [{"id": "a", **fields}]}) == [ListedModel("a", window)]


async def test_a_list_is_looked_for_in_two_places_with_the_key() -> None:
    transport = Lists()
    assert await fetch_model_list("https://host.example/api?x=1", KEY, transport) is None
    headers = {"anthropic-version": "2023-06-01", "authorization": "Bearer k"}
    assert transport.asked == [
        ("https://host.example/api/models?x=1", headers),
        ("https://host.example/api/v1/models?x=1", headers),
    ]
    found = Lists(models={"data": []})
    assert await fetch_model_list(URL, KEY, found) == []
    assert len(found.asked) == 1


async def test_a_key_that_is_rejected_is_told_and_another_failure_is_no_list() -> None:
    refused = CannedResponse(b'{"error": {"message": "bad key"}}', "application/json", 401)
    with pytest.raises(AuthFailed, match="bad key"):
        await listed(refused)
    assert await listed(CannedResponse(b"{}", "application/json", 500)) is None
    with pytest.raises(NetError):
        await listed(NetError("gone"))


MANY = {"data": [{"id": "other", "n_ctx": 512}, {"id": "m", "n_ctx": 4096}]}
PROPS = {"default_generation_settings": {"n_ctx": 2048}}


@pytest.mark.parametrize(
    ("answers", "window"),
    [
        ({"models": MANY, "props": PROPS}, 4096),
        ({"models": {"data": [{"id": "m"}]}, "props": PROPS}, 2048),
        ({"props": PROPS}, 2048),
        ({"models": {"data": [{"id": "other", "n_ctx": 512}]}}, None),
        ({"props": [PROPS]}, None),
        ({"models": NetError("gone"), "props": PROPS}, None),
        ({"models": CannedResponse(b"{}", status=401)}, None),
        ({}, None),
    ],
)
async def test_the_window_of_a_model_is_in_the_list_or_in_the_properties_of_the_server(
    answers: Any, window: int | None
) -> None:
    assert await fetch_context_window(URL, "m", KEY, Lists(**answers)) == window


async def test_the_properties_of_a_server_are_not_below_its_version() -> None:
    transport = Lists(models={"data": []})
    await fetch_context_window(URL, "m", KEY, transport)
    assert [url for url, _ in transport.asked] == [f"{URL}/models", "https://host.example/props"]


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://a/v1", "/x", "https://a/v1/x"),
        ("https://a/v1?k=1", "/x", "https://a/v1/x?k=1"),
        ("https://a/v1?k=1", "/x?y=2", "https://a/v1/x?y=2&k=1"),
        ("https://a/v1", "/x?y=2", "https://a/v1/x?y=2"),
    ],
)
def test_a_path_is_appended_before_the_query(base: str, path: str, url: str) -> None:
    assert append_url_path(base, path) == url
