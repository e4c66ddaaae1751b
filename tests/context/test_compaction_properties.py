"""Whatever is said, called and summed up, in whatever order: what the model is sent is valid, fits, and is stored."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure import ProviderDown, Text, ToolResult
from perdure._context.history.summary import read_summary_data
from perdure._context.history.tokens import estimate_message_tokens, estimate_messages_tokens, estimate_text_tokens
from perdure.context import Compaction, count_context_tokens
from perdure.engines import State
from perdure.events import Compacted, MessageAdded
from perdure.models import Request
from perdure.testing import Reply
from tests.context.conversation import Conversation, is_for_summary, model_of
from tests.doubles import of
from tests.transcript import assert_valid

WINDOW = 4_000

words = st.sampled_from(["line ", "船を係留 ", '{"a":1},', "def f():\n    return 1\n"])
a_result = st.tuples(words, st.integers(1, 1500)).map(lambda drawn: drawn[0] * drawn[1])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("calls"), st.lists(a_result, min_size=1, max_size=3)),
        st.tuples(st.just("says"), st.text(min_size=1, max_size=60).filter(str.strip)),
        st.tuples(st.just("answers"), st.text(min_size=1, max_size=200).filter(str.strip)),
        st.tuples(st.just("compact"), st.sampled_from(["manual", "agent", "overflow"])),
    ),
    max_size=25,
)
snapshots = st.lists(st.sampled_from(["## Goal\nMoor.", "huge " * 9000, "", None]), min_size=1, max_size=5)


def summarising(answers: list[str | None]) -> Any:
    """A model that can only sum up, and often enough cannot even do that."""
    turn = 0

    def answer(request: Request) -> Any:
        nonlocal turn
        assert is_for_summary(request)
        size = estimate_text_tokens(request.instructions) + estimate_messages_tokens(request.messages)
        assert size + (request.settings.max_output_tokens or 0) <= WINDOW
        turn += 1
        told = answers[turn % len(answers)]
        return ProviderDown("gone") if told is None else Reply(told)

    return model_of(answer, window=WINDOW, repeat_last=True)


class Story:
    """A conversation that is told as the loop would: upkeep before each request, and before calls."""

    def __init__(self, model: Any, compaction: Compaction) -> None:
        self.talk = Conversation(model)
        self.compaction = compaction
        self.paths: set[str] = set()

    async def tell(self, told: list[tuple[str, Any]]) -> None:
        run = self.run = await self.talk.begin()
        for what, value in told:
            match what:
                case "calls":
                    await self.prepare()
                    await self.work(value)
                case "says":
                    await self.talk.says(value, origin="steering")
                case "answers":
                    await self.prepare()
                    await self.talk.answers(value)
                case _:
                    before = estimate_messages_tokens(run.state.view)
                    if await self.compaction.compact(run, value):
                        assert estimate_messages_tokens(run.state.view) < before
            assert_valid(run.state.view)

    async def work(self, results: list[str]) -> None:
        names = [
            (f"read{place}", f'{{"path": "/{len(self.paths)}-{place}"}}', text) for place, text in enumerate(results)
        ]
        first = self.talk._calls
        await self.talk.calls(*names, settle=False)
        await self.compaction(self.run)
        assert_valid(self.run.state.view)
        for place, (name, arguments, text) in enumerate(names):
            self.paths.add(arguments[10:-2])
            await self.talk.finishes(ToolResult(f"c{first + place}", name, (Text(text),)))

    async def prepare(self) -> None:
        """As before a request: what is sent then fits, by a summary, or at last by leaving things out."""
        run = self.run
        await self.compaction(run)
        if count_context_tokens(run) > WINDOW:
            await self.compaction.compact(run, "overflow")
        assert count_context_tokens(run) <= WINDOW


@given(steps, snapshots, st.booleans())
async def test_the_view_is_valid_fits_and_can_be_read_back_whatever_happens(told, answers, by_count):
    compaction = Compaction(at_messages=10, at_turns=7) if by_count else Compaction(keep_recent_tokens=900)
    story = Story(summarising(answers), compaction)
    await story.tell(told)
    run, log = story.run, await story.talk.log()
    assert run.state.messages[0].text == "Please moor the boat."
    _assert_kept(run.state, of(log, MessageAdded))
    for event in of(log, Compacted):
        assert estimate_message_tokens(event.summary) < WINDOW / 2
        assert "Please moor the boat." in event.summary.text
    state = await story.talk.refolded()
    assert state.view == run.state.view
    assert state.messages == run.state.messages
    assert state.usage == run.state.usage
    compacted = run.state.transcript.compacted_count
    if compacted:
        noted = set(read_summary_data(run.state.view).files.read)
        early = {path for path in story.paths if any(path in line for line in _calls(run.state, compacted))}
        assert early <= noted


def _assert_kept(state: State, added: list[MessageAdded]) -> None:
    """The transcript has everything that was ever said."""
    said = [event.message for event in added]
    assert [message for message in state.messages if message.role != "tool"] == said


def _calls(state: State, upto: int) -> list[str]:
    return [f'"{call.arguments[10:-2]}"' for message in state.messages[:upto] for call in message.tool_calls]


async def test_a_thousand_turns_cost_no_more_each_than_the_first_ones():
    model = model_of(Reply("## Goal\nMoor."), window=WINDOW, repeat_last=True)
    story = Story(model, Compaction())
    await story.tell([("calls", ["line " * 50])] * 1000)
    run = story.run
    assert len(run.state.messages) == 2001
    assert len(run.state.view) < 60
    assert len(model.requests) < 200
    assert count_context_tokens(run) < WINDOW
