"""Secrets in dumps of bytes, and in text with several encodings, one in the other."""

import base64
import gzip
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable

import pytest

from perdure import Agent, tool
from perdure.permissions import FixedSecretsRedactor, MemoryVault, credentialed
from perdure.testing import ScriptedModel, call

VALUES = {
    "token": "sk-live-4fT9xQ2mZp7LwB1r",
    "password": "p@ss:w/rd+9x8Q7w6&x",
    "unicode": "pässwörd-ж9x8Q7w6",
    "spaces": "correct horse battery x7Q9",
}
DUMPS = (
    "od", "od -An -tx1", "od -c", "od -An -c", "od -b", "od -tx1", "od -tx2", "od -tx4", "od -tx8", "od -x", "od -d",
    "od -t u1", "od -t x1z", "od -Ax -tx1", "hexdump", "hexdump -C", "hexdump -c", "hexdump -b", "hexdump -x", "xxd",
    "xxd -p", "xxd -b", "xxd -i", "xxd -c 8", "xxd -c 7", "xxd -g 1", "xxd -u", "xxd -e", "base64", "base64 -w 20",
    "base32", "rev",
)  # fmt: skip


def dump(command: str, data: bytes) -> str:
    words = command.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return subprocess.run(words, input=data, capture_output=True, check=True).stdout.decode()


@pytest.mark.parametrize("command", DUMPS)
@pytest.mark.parametrize("name", VALUES)
def test_a_dump_that_contains_a_secret_is_replaced(name, command):
    if command == "rev" and not VALUES[name].isascii():
        pytest.skip("rev is not for these characters in every locale")
    written = dump(command, f"key={VALUES[name]}\n".encode())
    shown = FixedSecretsRedactor(VALUES).redact_text(f"before\n{written}\nthen")
    assert f"{{{{{name}}}}}" in shown
    assert (shown[:7], shown[-5:]) == ("before\n", "\nthen")
    text = VALUES[name]
    for start in range(len(text) - 6):
        assert text[start : start + 6] not in shown


async def test_a_tool_that_dumps_its_secret_shows_the_model_a_placeholder():
    @tool(effect="read")
    async def look(key: str) -> str:
        """Look."""
        return f"{dump('od -c', key.encode())}{b64(b64(key.encode())).decode()}\n{key[::-1]}"

    vault = MemoryVault({"token": VALUES["token"]})
    agent = Agent(ScriptedModel(call("look", key="{{token}}"), "Done."), tools=[credentialed(look, vault)])
    result = (await agent.run("Look.")).new_messages[2].tool_results[0]
    assert result.text == "{{token}}\n{{token}}\n{{token}}"


def b64(data: bytes) -> bytes:
    return base64.b64encode(data)


LAYERS: dict[str, Callable[[bytes], bytes]] = {
    "base64 twice": lambda data: b64(b64(data)),
    "base64 three times": lambda data: b64(b64(b64(data))),
    "base64 in lines twice": lambda data: base64.encodebytes(base64.encodebytes(data * 3)),
    "base64 without padding twice": lambda data: b64(b64(data).rstrip(b"=")).rstrip(b"="),
    "URL-safe base64 twice": lambda data: base64.urlsafe_b64encode(base64.urlsafe_b64encode(data)),
    "base64 of hex": lambda data: b64(data.hex().encode()),
    "hex of base64": lambda data: b64(data).hex().encode(),
    "hex twice": lambda data: data.hex().encode().hex().encode(),
    "base32": base64.b32encode,
    "base32, lower case": lambda data: base64.b32encode(data).lower(),
    "base32 of base64": lambda data: base64.b32encode(b64(data)),
    "gzip in base64": lambda data: b64(gzip.compress(data)),
    "zlib in base64": lambda data: b64(zlib.compress(data)),
    "gzip in hex": lambda data: gzip.compress(data).hex().encode(),
    "backwards": lambda data: data.decode()[::-1].encode(),
    "base64 of it backwards": lambda data: b64(data.decode()[::-1].encode()),
    "base64 backwards": lambda data: b64(data)[::-1],
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_below_several_encodings_is_hidden(name, layer):
    written = LAYERS[layer](VALUES[name].encode()).decode()
    shown = FixedSecretsRedactor(VALUES).redact_text(f"before\n{written}\nthen")
    assert shown.replace("=", "").replace("\n", "") == f"before{{{{{name}}}}}then"
    assert written not in shown


@pytest.mark.parametrize(
    "text",
    [
        "0000000 666f 6f0a\n0000004\n",
        "the sum is 12345678 and 23456789, of 0x10 0x20 0x30 0x40\n  a   b   c\n",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b\nAuthor: Ann\n",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "A" * 500,
        "\x00" * 100,
        "----------------------------------------------------------------",
        f"gzip: {base64.b64encode(gzip.compress(bytes(1000))).decode()}",
        "H4sIAAAAAAAA broken",
    ],
)
def test_other_text_is_left_as_it_is(text):
    redactor = FixedSecretsRedactor(VALUES)
    assert redactor.redact_text(text) is text or redactor.redact_text(text) == text


def test_a_short_value_is_not_looked_for_in_other_text():
    text = base64.b64encode(base64.b64encode(b"a 4711 b")).decode()
    assert FixedSecretsRedactor({"pin": "4711"}).redact_text(f"{text} 1174") == f"{text} 1174"


@pytest.mark.parametrize(
    "text",
    [
        "a" * 400_000,
        base64.b64encode(bytes(range(256)) * 1200).decode(),
        base64.b64encode(gzip.compress(bytes(50_000_000))).decode(),
        "0000000 6b65 793d 736b 2d6c 6976 652d 3466 5439\n" * 8_000,
        "12 34 56 78 9a\n" * 20_000,
        "word " * 80_000,
        "=" * 300_000,
        "a:" * 150_000,
    ],
    ids=["one run", "base64", "a bomb", "a dump", "hex", "words", "padding", "pairs"],
)
def test_a_long_text_takes_a_bounded_time(text):
    redactor = FixedSecretsRedactor(VALUES)
    begun = time.process_time()
    redactor.redact_text(text)
    assert time.process_time() - begun < 5
