import json
import shlex
import subprocess

import pytest

from perdure import ConfigError
from perdure.models import TappedRequest
from perdure.tracing import RawRequest, to_curl

BODY = {"model": "m", "messages": [{"role": "user", "content": 'it\'s `$HOME` \\ "x" $(id)'}]}


def test_a_body_alone_needs_a_url_and_gets_the_key_from_the_environment():
    command = to_curl(BODY, base_url="https://api.example.com/v1/", api_key_env="MY_KEY", stream=True)
    assert command.startswith("curl -N https://api.example.com/v1/chat/completions \\\n")
    assert "-H 'authorization: Bearer '\"${MY_KEY}\"" in command
    arguments = shlex.split(command)
    assert json.loads(arguments[-1]) == {**BODY, "stream": True}
    with pytest.raises(ConfigError, match="base_url"):
        to_curl(BODY)


def test_a_shell_passes_every_character_of_the_body_on():
    command = to_curl(BODY, base_url="http://127.0.0.1:9", pretty=False).replace("curl -N", "printf '%s\\n'")
    shown = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, env={"API_KEY": "k1"})
    lines = shown.stdout.splitlines()
    assert json.loads(lines[-1]) == BODY
    assert "authorization: Bearer k1" in lines


def test_a_request_of_a_trace_has_its_own_address_and_no_key():
    headers = {"x-api-key": "sk-secret-123456", "content-type": "application/json", "content-length": "9", "host": "x"}
    request = RawRequest(1, "POST", "https://user:pw@api.example.com/v1/messages?key=abcdefgh", headers, "not json")
    command = to_curl(request)
    assert "sk-secret" not in command
    assert "abcdefgh" not in command
    assert "pw@" not in command
    assert "'x-api-key: '\"${API_KEY}\"" in command
    assert "content-length" not in command
    assert command.endswith("--data-raw 'not json'")


def test_a_tapped_request_can_be_given_too():
    request = TappedRequest(1, "POST", "http://127.0.0.1/v1", {"authorization": "***"}, b'{"stream":true}')
    assert json.loads(shlex.split(to_curl(request, stream=False))[-1]) == {"stream": False}
    assert "Bearer" in to_curl(request)


@pytest.mark.parametrize("options", [{"api_key_env": "no spaces"}, {"api_key_env": "$(id)"}, {"path": 3}])
def test_options_that_cannot_be_used_are_named(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        to_curl(BODY, base_url="http://127.0.0.1", **options)


def test_anything_else_is_refused():
    with pytest.raises(ConfigError, match="request"):
        to_curl(3)  # type: ignore[arg-type]


def test_a_command_is_written_over_several_lines_with_everything_but_what_curl_adds_itself():
    headers = {"Authorization": "Bearer sk-secret-123456", "X-Trace": "a b", "User-Agent": "x", "Connection": "close"}
    request = RawRequest(1, "POST", "https://api.example.com/v1", headers, '{"a":[1]}')
    assert to_curl(request) == (
        "curl -N https://api.example.com/v1 \\\n"
        "  -H 'Authorization: Bearer '\"${API_KEY}\" \\\n"
        "  -H 'X-Trace: a b' \\\n"
        "  --data-raw '{\n"
        '  "a": [\n'
        "    1\n"
        "  ]\n"
        "}'"
    )
    assert to_curl(request, pretty=False).splitlines()[-1] == "  --data-raw '{\"a\":[1]}'"
    assert to_curl(request, pretty=False, stream=True).splitlines()[-1] == '  --data-raw \'{"a":[1],"stream":true}\''


def test_the_path_of_a_body_alone_can_be_another_and_a_body_that_is_no_object_stays():
    assert to_curl({}, base_url="http://127.0.0.1/v1", path="messages", pretty=False) == (
        "curl -N http://127.0.0.1/v1/messages \\\n"
        "  -H 'content-type: application/json' \\\n"
        "  -H 'authorization: Bearer '\"${API_KEY}\" \\\n"
        "  --data-raw '{}'"
    )
    assert to_curl(RawRequest(1, "POST", "http://127.0.0.1", {}, "[1]"), pretty=False, stream=True).endswith("'[1]'")


def test_a_refusal_names_the_value_and_what_to_give():
    with pytest.raises(ConfigError) as refused:
        to_curl(BODY, base_url="http://127.0.0.1", api_key_env="1KEY")
    assert str(refused.value) == ("to_curl(api_key_env='1KEY'): give the name of a variable, such as 'OPENAI_API_KEY'")


@pytest.mark.parametrize(
    ("changes", "never"),
    [
        ({"body": "@/etc/passwd"}, "--data-binary"),
        ({"url": "-K/etc/passwd"}, " -K"),
        ({"url": "--config=x"}, " --config"),
        ({"url": "file:///etc/passwd"}, " file:"),
        ({"headers": {"@/etc/passwd": "x"}}, "@/etc"),
        ({"headers": {"x": "a\r\nhost: evil"}}, "evil"),
        ({"headers": {"x\ny": "a"}}, "y"),
    ],
)
def test_nothing_in_a_trace_of_somebody_else_is_an_option_or_a_file(changes, never, tmp_path):
    """A person who tries the command sends what is shown: no file of theirs."""
    fields = {"url": "http://127.0.0.1:9/", "headers": {}, "body": "{}"} | changes
    command = to_curl(RawRequest(1, "POST", fields["url"], fields["headers"], fields["body"]))
    assert never not in command
    words = shlex.split(command)
    assert words[:2] == ["curl", "-N"]
    assert words[2].startswith("http://")
    assert words[-2:] == ["--data-raw", fields["body"]]
