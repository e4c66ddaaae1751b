import pytest

from perdure import Text, ToolCall, Usage
from perdure._tracing.view.text import cut_line, format_disclosure, format_seconds, format_usage, format_usd
from perdure.events import ModelRequested, RunEnded, RunStarted, ToolStarted
from perdure.tracing import ContextItem, DisclosureStep, Tracer
from tests.tracing.sample_traces import Script, coding_session


def test_the_tree_has_turns_calls_retries_tokens_cost_and_times():
    assert coding_session().live().format_tree(width=200).splitlines() == [
        "session 0197d2c4ab12 · anthropic:claude-sonnet-5",
        (
            '└─ engineer "The test of the parser fails since yest…" · done · 24.64 s · 39,290 in (19,220 '
            "cached), 752 out · $0.0912"
        ),
        "   ├─ · skill_loaded: debugging, by model",
        '   ├─ turn 1 · 2.90 s · first after 1.30 s · 5,210 in, 96 out · $0.0209 · "I\'ll run the test first."',
        "   │  ├─ ! retry_scheduled: attempt 1 of 4, again in 0.4 s: RateLimited: 429: too many requests",
        (
            '   │  └─ ✗ bash {"command": "pytest -q tests/test_parser.py"} error · 2.40 s → FAILED '
            "tests/test_parser.py::test_nested_lists - IndexError…"
        ),
        '   │     └─ progress: 3 reports, the last {"lines":42}',
        (
            '   ├─ turn 2 · 2.10 s · first after 500 ms · 5,480 in (5,210 cached), 143 out · $0.0047 · "Two '
            'things at once."'
        ),
        (
            '   │  ├─ ✓ read {"path": "src/parser.py"} · 50 ms → def parse(tokens): stack = [] …def '
            "parse(tokens): stack = […"
        ),
        '   │  └─ ✓ investigate {"task": "git log"} · 1.90 s → Commit 9f3c2ab did it.',
        (
            '   │     └─ historian "Which commit touched src/parser.py last?" · done · 1.73 s · 2,360 in (1,120 '
            "cached), 79 out · $0.0052"
        ),
        "   │        ├─ turn 1 · 900 ms · first after 300 ms · 1,120 in, 38 out · $0.0039",
        (
            '   │        │  └─ ✓ git_log {"path": "src/parser.py", "limit": 5} · 80 ms → 9f3c2ab Flatten the '
            "token stack (Tue)"
        ),
        (
            "   │        └─ turn 2 · 700 ms · first after 200 ms · 1,240 in (1,120 cached), 41 out · $0.0013 · "
            '"Commit 9f3c2ab flattened the stack on Tuesday."'
        ),
        '   ├─ turn 3 · 2.30 s · first after 700 ms · 9,870 in, 118 out · $0.0387 · "Let me note that."',
        "   │  ├─ · tools_changed: +git_show",
        "   │  ├─ · view_changed: the prompt cache is missed: tools",
        (
            '   │  └─ ✗ write {"path": "/etc/hosts", "text": "…"} denied · 0 ms · denied: outside of the '
            "project → denied: outside of the project"
        ),
        (
            '   ├─ turn 4 · 3.10 s · first after 1.50 s · 10,240 in (9,870 cached), 171 out · $0.0069 · "The '
            'index is off by one."'
        ),
        "   │  ├─ ! error_raised: ProviderDown: 503 overloaded (in model)",
        "   │  ├─ ! failed_over: from claude-sonnet-5 to claude-opus-5: ProviderDown: 503 overloaded",
        '   │  └─ ✓ edit {"path": "src/parser.py", "old": "stack[-2]", "ne… · 30 ms → 1 replacement',
        "   ├─ turn 5 · 2.00 s · first after 400 ms · 3,020 in, 61 out · $0.0122",
        "   │  ├─ · compacted: 8 messages replaced by a summary, 2,100 tokens are sent now",
        "   │  ├─ · view_changed: the prompt cache is missed: compaction",
        '   │  └─ ✓ bash {"command": "pytest -q tests/test_parser.py"} · 1.70 s → 42 passed in 0.61s',
        (
            '   └─ turn 6 · 1.80 s · first after 700 ms · 3,110 in (3,020 cached), 84 out · $0.0025 · "Fixed: '
            '`parse` looked one level too deep in the stack since…"'
        ),
    ]
    cut = coding_session().live().format_tree(width=60).splitlines()
    assert max(map(len, cut)) == 60
    assert cut[3] == "   ├─ turn 1 · 2.90 s · first after 1.30 s · 5,210 in, 96 o…"


def test_the_tree_tells_how_a_run_failed_what_is_open_and_what_had_no_reply():
    script = Script("s9")
    script.begin("r1", "Go.", agent="worker")
    asked = [Text("I call."), ToolCall("c1", "look", "{}"), ToolCall("c2", "wait", "{}")]
    script.turn("r1", 1, asked, Usage(10, 5), wait=0.0)
    script.result("r1", "c1", "look", "a ship", 0.5)
    script.add(ToolStarted("c2", "wait", "read", "k", run_id="r1"))
    for attempt in (1, 2):
        script.add(ModelRequested(2, model="m", attempt=attempt, messages=3, run_id="r1"), 1.0)
    script.add(RunEnded("failed", "ProviderDown", error="no route\nto host", turns=2, run_id="r1"), 0.5)
    script.begin("r2", "Again.", agent="")
    script.add(RunEnded("cancelled", "cancelled", run_id="r2"), 0.25)
    script.begin("r3", "", agent="worker")
    assert script.live().format_tree(width=200).splitlines() == [
        "session s9 · m",
        '├─ worker "Go." · failed (ProviderDown) · 4.62 s ✗ no route to host',
        '│  ├─ turn 1 · 1.60 s · 10 in, 5 out · $0.0001 · "I call."',
        "│  │  ├─ ✓ look {} · 500 ms → a ship",
        "│  │  └─ … wait {}",
        "│  └─ turn 2 · no reply · 2 attempts",
        "├─ run · cancelled · 250 ms",
        "└─ worker · open · 0 ms · $0.0000",
    ]


def test_a_trajectory_has_each_reply_with_what_came_before_and_after_it():
    assert coding_session().live().format_trajectory().splitlines() == [
        "turn 1 (7.10 s · 5,210 in, 96 out · $0.0209)",
        "  [prompt] The test of the parser fails since yesterday. Find out why, and fix it.",
        "  I'll run the test first.",
        '  bash({"command": "pytest -q tests/test_parser.py"}) 2.40 s',
        "    error: FAILED tests/test_parser.py::test_nested_lists - IndexError: list index out of range 1 fa…",
        "turn 2 (3.88 s · 5,480 in (5,210 cached), 143 out · $0.0047)",
        "  Two things at once.",
        '  read({"path": "src/parser.py"}) 50 ms',
        "    ok: def parse(tokens): stack = [] …def parse(tokens): stack = [] …def parse(tokens): stack = …",
        '  investigate({"task": "git log"}) 1.90 s',
        "    ok: Commit 9f3c2ab did it.",
        "historian: turn 1 (980 ms · 1,120 in, 38 out · $0.0039)",
        "  [prompt] Which commit touched src/parser.py last?",
        '  git_log({"path": "src/parser.py", "limit": 5}) 80 ms',
        "    ok: 9f3c2ab Flatten the token stack (Tue)",
        "historian: turn 2 (700 ms · 1,240 in (1,120 cached), 41 out · $0.0013)",
        "  Commit 9f3c2ab flattened the stack on Tuesday.",
        "turn 3 (3.50 s · 9,870 in, 118 out · $0.0387)",
        "  Let me note that.",
        '  write({"path": "/etc/hosts", "text": "…"}) 0 ms',
        "    denied: denied: outside of the project",
        "turn 4 (3.13 s · 10,240 in (9,870 cached), 171 out · $0.0069)",
        "  The index is off by one.",
        '  edit({"path": "src/parser.py", "old": "stack[-2]", "new": "stack…) 30 ms',
        "    ok: 1 replacement",
        "turn 5 (3.70 s · 3,020 in, 61 out · $0.0122)",
        "  [summary of 8 messages] Summary: the parser indexed one level too deep; fixed in src/parser.py.",
        '  bash({"command": "pytest -q tests/test_parser.py"}) 1.70 s',
        "    ok: 42 passed in 0.61s",
        "turn 6 (1.80 s · 3,110 in (3,020 cached), 84 out · $0.0025)",
        "  Fixed: `parse` looked one level too deep in the stack since commit 9f3c2ab. All 42 tests pass.",
    ]


def test_a_disclosure_has_what_each_request_added():
    assert coding_session().live().format_disclosure().splitlines() == [
        "     0.020 turn 1: 1 messages (+1) · 5,210 tokens",
        "             + prompt: 71 characters",
        "     7.140 turn 2: 3 messages (+2) · 5,480 tokens",
        "             + reply: 82 characters",
        "             + result of bash: 104 characters",
        "     9.310 historian: turn 1: 1 messages (+1) · 1,120 tokens",
        "             + prompt: 40 characters",
        "    10.310 historian: turn 2: 3 messages (+2) · 1,240 tokens",
        "             + reply: 52 characters",
        "             + result of git_log: 37 characters",
        "    11.040 turn 3: 6 messages (+3) · 9,870 tokens",
        "             tools: +git_show",
        "             changed: tools",
        "             + reply: 96 characters",
        "             + result of read: 468 characters",
        "             + result of investigate: 22 characters",
        "    14.560 turn 4: 7 messages (+1) · 10,240 tokens",
        "             + reply: 66 characters",
        "             + result of write: 30 characters",
        "    19.110 turn 5: 3 messages (-4) · 3,020 tokens",
        "             changed: compaction",
        "             + reply: 102 characters",
        "             + result of edit: 13 characters",
        "             + summary of 8 messages: 71 characters",
        "    22.830 turn 6: 5 messages (+2) · 3,110 tokens",
        "             + reply: 57 characters",
        "             + result of bash: 18 characters",
    ]


def test_a_timeline_has_the_fields_of_each_entry_cut_to_a_length():
    lines = coding_session().live().format(max_value_length=12).splitlines()
    assert lines[4:8] == [
        (
            "     0.020 agent model_requested turn=1 model=claude-sonn… provider=anthropic "
            'settings={"temperatu… prefix=a-b messages=1 estimated_tokens=5210 price_usd=[3.0,15.0,0… run_id=r1'
        ),
        (
            "     0.420 model retry_scheduled attempt=1 max_attempts=4 delay_seconds=0.4 error=RateLimited "
            "message=429: too ma… run_id=r1"
        ),
        "     1.320 model first_delta run_id=r1",
        '     2.920 agent message_added message={"role":"as… run_id=r1',
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12 ms"),
        (1, "1.00 s"),
        (1.234, "1.23 s"),
        (60, "1 min 00 s"),
        (75, "1 min 15 s"),
        (3_600, "1 h 00 min"),
        (7_380, "2 h 03 min"),
    ],
)
def test_durations_are_readable(seconds, text):
    assert format_seconds(seconds) == text


def test_costs_and_tokens_are_readable():
    assert [format_usd(each) for each in (None, 0.00123, 1, 12.3)] == ["", "$0.0012", "$1.00", "$12.30"]
    assert format_usage(Usage()) == ""
    assert format_usage(Usage(1_200, 5, precision="estimated")) == "1,200 in, 5 out estimated"
    assert cut_line("a\n  b" + "c" * 100, 10) == "a bcccccc…"
    assert cut_line("a" + " " * 18 + "bc", 4) == "a b"
    assert [cut_line("a bc", most) for most in (0, 1, 3, 4)] == ["…", "…", "a …", "a bc"]


def test_a_line_as_wide_as_the_tree_is_whole_and_a_longer_one_is_cut():
    script = Script("x" * 12)
    assert [script.live().format_tree(width=width) for width in (21, 20, 19, 3, 1)] == [
        "session ?\n",
        "session ?\n",
        "session ?\n",
        "se…\n",
        "s…\n",
    ]
    script.begin("r", "Go.")
    whole = "session xxxxxxxxxxxx"
    assert [script.live().format_tree(width=width).splitlines()[0] for width in (21, 20, 19)] == [
        whole,
        whole,
        "session xxxxxxxxxx…",
    ]


def test_what_is_missing_and_what_no_call_has_started_is_told_in_the_tree():
    tracer = Tracer(limit=2)
    script = Script("s")
    script.begin("r", "Go.")
    script.add(RunStarted("helper", run_id="r/job", path="helper"), 1.0)
    for entry in script.entries:
        tracer.collect_event(entry)
    assert tracer.trace.format_tree().splitlines() == [
        "session ?",
        "! 2 entries are missing: the trace reached its limit",
        "└─ run · open · 0 ms · $0.0000",
        "   └─ helper · open · 0 ms · $0.0000",
    ]


def test_a_disclosure_tells_the_size_of_instructions_and_tools_that_go():
    item = ContextItem(0.0, "prompt", "user", "hi", 2)
    step = DisclosureStep(
        turn=1,
        run_id="r",
        path="",
        dt=1.5,
        messages=1,
        messages_delta=1,
        tokens=1_200,
        system="x" * 1_500,
        tools=("a",),
        added_tools=("a",),
        removed_tools=("b",),
        changes=("tools",),
        entered=(item,),
        cached_tokens=0,
    )
    assert format_disclosure([step]) == (
        "     1.500 turn 1: 1 messages (+1) · 1,200 tokens\n"
        "             system: 1,500 characters\n"
        "             tools: +a -b\n"
        "             changed: tools\n"
        "             + prompt: 2 characters\n"
    )
