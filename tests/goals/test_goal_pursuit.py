"""Goals: a maker and a checker in fresh sessions, until every item is done with evidence, or a limit is reached."""

import asyncio
import json
from typing import Any

import pytest

from perdure import Agent, Budget, ConfigError, ProviderDown, SessionExists, SessionNotFound, StoreError, Usage
from perdure.background import Goal, list_goals, pursue_goal, read_goal, resume_goal, stop_goal
from perdure.evals import Grade
from perdure.models import Price
from perdure.stores import open_store
from perdure.testing import FakeClock, Reply, call
from tests.doubles import until as until_true
from tests.goals.roles import PLAN, ScriptedRoles, build_maker, verdict
from tests.grading.failures import failure_of


async def names_of_sessions(agent):
    return sorted([each.session_id for each in await agent.store.list(prefix="goal-")])


async def test_a_goal_is_achieved_when_the_checker_has_found_every_item_done():
    effects: list[str] = []
    roles = ScriptedRoles(
        maker=[call("repair", part="hull"), "Mended the hull.", call("repair", part="sail"), "Set the sail."],
        checker=[call("look"), verdict("1"), call("look"), verdict("1", "2")],
    )
    maker = build_maker(roles, effects=effects)
    record = await pursue_goal("Make the boat ready.", maker, goal_id="goal-boat")
    assert (record.status, record.reason) == ("achieved", "")
    assert [(each.id, each.title, each.done, each.evidence) for each in record.items] == [
        ("1", "The hull is tight.", True, "saw 1"),
        ("2", "The sail is up.", True, "saw 2"),
    ]
    assert record.scores == [0.5, 1.0]
    assert effects == ["hull", "sail"]
    assert await names_of_sessions(maker) == [
        "goal-boat", "goal-boat/checker-1", "goal-boat/checker-2", "goal-boat/maker-1", "goal-boat/maker-2",
        "goal-boat/plan",
    ]  # fmt: skip
    assert record.usage.total_tokens == 15 * 9  # each request of every role
    assert await read_goal("goal-boat", maker.store) == record


async def read_end(maker, goal_id):
    """The status and reason of the last run of a goal, and what its transcript says."""
    state = await maker.session(goal_id).read_state()
    assert state.run is not None
    ended = state.runs_by_input_id["goal"].run_ended_event
    return (ended.status, ended.reason), [each.text for each in state.messages]


async def test_the_session_of_a_goal_tells_what_became_of_each_iteration_and_of_the_goal():
    roles = ScriptedRoles(checker=[verdict("1"), verdict("1", "2", summary="")])
    maker = build_maker(roles, store=open_store("memory:"))
    await pursue_goal("Make the boat ready.", maker, goal_id="goal-boat")
    assert await read_end(maker, "goal-boat") == (
        ("done", ""),
        [
            "Make the boat ready.",
            "Iteration 1: 1 of 2 items are done. 1 done",
            "Iteration 2: 2 of 2 items are done.",
            "The goal is achieved.",
        ],
    )


@pytest.mark.parametrize("goal_id", ["", " ", None])
async def test_a_goal_without_an_id_is_not_resumed(goal_id: Any) -> None:
    with pytest.raises(ConfigError, match=r"resume_goal\(goal_id="):
        await resume_goal(goal_id, Agent("demo"))


async def test_nothing_is_waited_for_between_the_steps_of_a_goal():
    roles = ScriptedRoles(checker=[verdict("1"), verdict("1", "2")])
    async with asyncio.timeout(6):  # which two iterations with a second after each of their steps would take
        assert (await pursue_goal("Make the boat ready.", build_maker(roles))).status == "achieved"


async def test_a_goal_that_is_not_achieved_says_why_and_what_is_open():
    roles = ScriptedRoles(checker=[verdict("1")])
    maker = build_maker(roles, store=open_store("memory:"))
    blocked = await pursue_goal("Make it ready.", maker, goal_id="goal-b")
    assert (blocked.status, blocked.reason) == ("blocked", "2 iterations without progress")
    assert blocked.summary == "1 done Open items: 2. The sail is up.."
    end, texts = await read_end(maker, "goal-b")
    assert end == ("stopped", "blocked")
    assert texts[-1] == f"The goal is blocked (2 iterations without progress). {blocked.summary}"
    short = await pursue_goal(Goal("Make it ready.", max_iterations=1), maker, goal_id="goal-m")
    assert (short.status, short.reason) == ("max_iterations", "1 iterations")
    assert (await read_end(maker, "goal-m"))[0] == ("stopped", "max_iterations")


async def test_a_checker_that_does_not_call_the_whole_goal_done_has_not_passed_it():
    roles = ScriptedRoles(checker=[verdict("1", "2", all_done=False), verdict("1", "2")])
    record = await pursue_goal("Make it ready.", build_maker(roles))
    assert (record.status, len(record.iterations), record.scores) == ("achieved", 2, [1.0, 1.0])


async def test_a_grader_is_told_the_checklist_and_the_folder_and_may_take_as_long_as_the_goal_has():
    seen = []

    async def grade(evidence):
        seen.append(evidence.details)
        return True

    roles = ScriptedRoles(checker=[verdict("1", "2")])
    await pursue_goal("Make it ready.", build_maker(roles), grader=grade, workdir="/boat")
    checklist = "- [ ] id 1 (open): The hull is tight.\n- [ ] id 2 (open): The sail is up."
    assert seen == [{"checklist": checklist, "workdir": "/boat"}]


async def test_a_grader_without_a_known_price_ends_a_goal_with_a_budget_in_dollars():
    def grade(_evidence):
        return Grade(passed=True, usage=Usage(5, 5), grader="judge")

    roles = ScriptedRoles(checker=[verdict("1", "2")])
    maker = build_maker(roles, model_options={"price": Price(input_usd=1, output_usd=1)})
    record = await pursue_goal(Goal("Make it ready.", max_cost_usd=1.0), maker, grader=grade)
    assert (record.status, record.reason) == (
        "errored",
        "max_cost_usd needs known prices, and judge has a model without",
    )
    free = await pursue_goal("Make it ready.", maker, grader=grade)
    assert (free.status, free.usage.total_tokens) == ("achieved", 3 * 15 + 10)


async def test_a_resumed_goal_keeps_its_folder_branch_and_values():
    roles = ScriptedRoles(checker=[verdict(progress=10), verdict("1", "2")])
    maker, store = build_maker(roles), open_store("memory:")
    goal = Goal("Make it ready.", max_iterations=1)
    kept: Any = {"workdir": "/boat", "branch": "goal/b", "details": {"a": 1}}
    first = await pursue_goal(goal, maker, goal_id="goal-k", store=store, **kept)
    assert await maker.store.list(prefix="goal-k") == []
    again = await resume_goal("goal-k", maker, store=store)
    for record in (first, again):
        assert (record.workdir, record.branch, record.details) == ("/boat", "goal/b", {"a": 1})
    assert [each.text for each in await maker.session("goal-k", store=store).messages()][3] == "Continue with the goal."
    assert (again.status, again.first_iteration) == ("achieved", 2)


async def test_every_role_begins_with_a_fresh_context_and_the_maker_sees_the_checklist_with_its_evidence():
    roles = ScriptedRoles(maker=["First work.", "Second work."], checker=[verdict("1"), verdict("1", "2")])
    await pursue_goal("Make the boat ready.", build_maker(roles))
    first, second = roles.requests["maker"]
    assert [len(first.messages), len(second.messages)] == [1, 1]
    assert "id 1 (done): The hull is tight.\n      evidence: saw 1" in second.messages[0].text
    assert "1 done" in second.messages[0].text
    assert "First work." not in second.messages[0].text
    assert "First work." in roles.requests["checker"][0].messages[0].text


async def test_the_checker_and_the_planner_have_only_tools_that_read_and_no_other_is_carried_out():
    effects: list[str] = []
    roles = ScriptedRoles(checker=[call("repair", part="sail"), verdict("1", "2")])
    record = await pursue_goal("Make it ready.", build_maker(roles, effects=effects))
    for role in ("planner", "checker"):
        assert [each.name for each in roles.requests[role][0].tools] == ["look"]
    assert [each.name for each in roles.requests["maker"][0].tools] == ["look", "repair"]
    assert effects == []
    assert record.status == "achieved"


async def test_a_checker_of_your_own_has_its_own_model_and_only_its_tools_that_read():
    makers, judges = ScriptedRoles(), ScriptedRoles(checker=[verdict("1", "2")])
    record = await pursue_goal("Make it ready.", build_maker(makers), checker=build_maker(judges))
    assert record.status == "achieved"
    assert makers.requests["checker"] == []
    assert [each.name for each in judges.requests["checker"][0].tools] == ["look"]


@pytest.mark.parametrize("plan", ["I have no plan.", "{}", '{"items": []}', ProviderDown("no route")])
async def test_without_a_usable_plan_the_objective_is_the_only_item(plan):
    roles = ScriptedRoles(planner=[plan], checker=[verdict("1", ids=["1"])])
    record = await pursue_goal("Make the boat ready.", build_maker(roles))
    assert [each.title for each in record.items] == ["Make the boat ready."]
    assert record.status == "achieved"


async def test_a_plan_is_repaired_once_and_has_at_most_8_different_items():
    many = json.dumps({"items": [*[f"Item {number}." for number in range(12)], "item 3."]})
    roles = ScriptedRoles(planner=['["Only one."]', many], checker=[verdict(ids=[])])
    record = await pursue_goal(Goal("Do it.", max_iterations=1), build_maker(roles))
    assert [each.title for each in record.items] == [f"Item {number}." for number in range(8)]


async def test_a_plan_and_a_verdict_that_stay_unusable_are_asked_for_twice_and_not_again():
    roles = ScriptedRoles(planner=["I have no plan."], checker=["All is fine!"])
    await pursue_goal(Goal("Do it.", max_iterations=1), build_maker(roles))
    assert [len(roles.requests[each]) for each in ("planner", "maker", "checker")] == [2, 1, 2]


async def test_a_checklist_can_be_given_instead_of_planned():
    roles = ScriptedRoles(checker=[verdict("1", ids=["1"])])
    record = await pursue_goal(Goal("Do it.", items=("It is done.",)), build_maker(roles))
    assert [each.title for each in record.items] == ["It is done."]
    assert roles.requests["planner"] == []


async def test_two_iterations_without_progress_block_the_goal():
    roles = ScriptedRoles(checker=[verdict("1"), verdict("1"), verdict("1")])
    record = await pursue_goal("Make it ready.", build_maker(roles))
    assert (record.status, len(record.iterations)) == ("blocked", 3)
    assert "The sail is up." in record.summary


async def test_a_checker_that_rewords_everything_does_not_defeat_the_search_for_progress():
    def reword(request):
        number = len(roles.requests["checker"])
        items = [
            {"id": "1", "title": f"Title {number}", "done": True, "evidence": f"Words {number}"},
            {
                "id": "2",
                "title": f"Other {number}",
                "done": False,
                "evidence": f"Still open {number}",
                "progress": number,
            },
        ]
        return json.dumps({"done": False, "items": items, "summary": f"Reworded {number}."})

    roles = ScriptedRoles(checker=[reword])
    record = await pursue_goal("Make it ready.", build_maker(roles))
    assert (record.status, len(record.iterations)) == ("blocked", 3)
    assert [each.title for each in record.items] == ["The hull is tight.", "The sail is up."]


async def test_an_item_that_is_done_and_undone_in_turn_is_no_progress():
    roles = ScriptedRoles(checker=[verdict("1"), verdict("2"), verdict("1"), verdict("2"), verdict("1")])
    record = await pursue_goal("Make it ready.", build_maker(roles))
    assert (record.status, len(record.iterations)) == ("blocked", 4)


async def test_progress_inside_an_item_counts():
    steps = [verdict(progress=20), verdict(progress=40), verdict(progress=60), verdict("1", "2")]
    record = await pursue_goal("Make it ready.", build_maker(ScriptedRoles(checker=steps)))
    assert record.status == "achieved"
    assert record.scores == [0.2, 0.4, 0.6, 1.0]


async def test_an_item_without_evidence_is_not_done_and_the_checker_may_repair_that_once():
    bare = json.dumps({"done": True, "items": [{"id": "1", "done": True}, {"id": "2", "done": True, "evidence": "it"}]})
    roles = ScriptedRoles(checker=[bare, bare, verdict("1", "2")])
    record = await pursue_goal("Make it ready.", build_maker(roles))
    assert "without evidence: 1" in roles.requests["checker"][1].messages[-1].text
    first = record.iterations[0].verdict
    assert first is not None
    assert [each.done for each in first.items] == [False, True]
    assert (record.status, len(record.iterations)) == ("achieved", 2)


async def test_a_verdict_with_text_around_it_is_read_and_ids_that_are_missing_are_asked_for():
    loose = f"Here is my verdict:\n```json\n{verdict('1', ids=['1'], all_done=False)}\n```\nGood luck!"
    roles = ScriptedRoles(checker=[loose, f"Sorry. {verdict('1', '2')}"])
    record = await pursue_goal("Make it ready.", build_maker(roles))
    assert "ids are missing: 2" in roles.requests["checker"][1].messages[-1].text
    assert (record.status, len(record.iterations)) == ("achieved", 1)


async def test_a_checker_that_never_gives_a_verdict_blocks_the_goal_and_loses_nothing():
    record = await pursue_goal("Make it ready.", build_maker(ScriptedRoles(checker=["All is fine!"])))
    assert (record.status, len(record.iterations)) == ("blocked", 2)
    assert "no verdict" in record.summary


async def test_the_iterations_are_limited_and_counted_anew_when_the_goal_is_resumed():
    steps = [verdict(progress=10 * number) for number in range(1, 5)]
    roles = ScriptedRoles(checker=[*steps, verdict("1", "2")])
    maker = build_maker(roles)
    record = await pursue_goal(Goal("Make it ready.", max_iterations=2), maker)
    assert (record.status, len(record.iterations)) == ("max_iterations", 2)
    record = await resume_goal(record.goal_id, maker)
    assert (record.status, len(record.iterations)) == ("max_iterations", 4)
    record = await resume_goal(record.goal_id, maker, max_iterations=1)
    assert (record.status, len(record.iterations)) == ("achieved", 5)
    assert len(roles.requests["planner"]) == 1
    assert await resume_goal(record.goal_id, maker) == record


async def test_a_grader_has_to_pass_too_and_its_scores_are_kept():
    seen = []

    def grade(evidence):
        seen.append((evidence.goal, evidence.answer, evidence.round, len(evidence.tool_calls)))
        return evidence.round / 2

    maker = [call("repair", part="hull"), "Worked.", "Worked again."]
    roles = ScriptedRoles(maker=maker, checker=[verdict("1", "2")])
    record = await pursue_goal("Make it ready.", build_maker(roles), grader=grade)
    assert (record.status, record.scores) == ("achieved", [0.5, 1.0])
    assert seen == [("Make it ready.", "Worked.", 1, 1), ("Make it ready.", "Worked again.", 2, 0)]
    assert [each.passed for each in record.grades] == [False, True]
    assert "Result of grade" in roles.requests["maker"][-1].messages[0].text


async def test_a_grader_that_fails_never_passes_a_goal_and_is_reported():
    def capsize(_evidence):
        raise RuntimeError("full of water")

    roles = ScriptedRoles(checker=[verdict("1", "2")])
    record = await pursue_goal("Make it ready.", build_maker(roles), grader=capsize)
    assert record.status == "blocked"
    assert failure_of(record.grades[0]).kind == "raised"


async def test_a_maker_that_fails_ends_the_goal_as_errored_and_is_tried_anew_when_it_is_resumed():
    roles = ScriptedRoles(maker=[ProviderDown("no route"), "Worked."], checker=[verdict("1", "2")])
    maker = build_maker(roles)
    record = await pursue_goal("Make it ready.", maker, goal_id="goal-x")
    assert (record.status, record.reason) == ("errored", "the maker failed: no route")
    record = await resume_goal("goal-x", maker)
    assert record.status == "achieved"
    made = record.iterations[0].maker
    assert made is not None
    assert made.session_id == "goal-x/maker-1.2"


async def test_a_question_pauses_the_goal_and_after_the_answer_the_same_session_goes_on():
    from perdure import Permissions, ask
    from perdure.permissions import later

    effects: list[str] = []
    roles = ScriptedRoles(maker=[call("repair", part="hull"), "Worked."], checker=[verdict("1", "2")])
    permission = Permissions(ask("repair"), handler=later)
    maker = build_maker(
        roles, effects=effects, permission=permission, answer_timeout_seconds=0.0, store=open_store("memory:")
    )
    record = await pursue_goal("Make it ready.", maker, goal_id="goal-q")
    assert record.status == "paused"
    assert record.reason == "question: the maker waits for an answer in session goal-q/maker-1"
    session = maker.session("goal-q/maker-1")
    (question,) = await session.questions()
    assert await session.answer(question.ask_id, True)
    record = await resume_goal("goal-q", maker)
    assert (record.status, effects) == ("achieved", ["hull"])


async def test_a_token_budget_ends_the_goal_with_a_last_turn_without_tools():
    def work(request):
        if not request.tools:
            return "Half of the hull is done."
        return Reply(calls=(call("repair", part=f"plank {len(request.messages)}"),), usage=Usage(2000, 100))

    roles = ScriptedRoles(maker=[work], checker=[verdict()])
    maker = build_maker(roles)
    record = await pursue_goal(Goal("Make it ready.", token_budget=20_000), maker)
    assert record.status == "budget_limited"
    assert record.summary == "Half of the hull is done."
    assert record.usage.total_tokens <= 20_000
    again = await resume_goal(record.goal_id, maker)
    assert again.status == "budget_limited"
    assert again.usage.total_tokens <= 20_000


async def test_a_budget_in_dollars_counts_what_earlier_processes_spent():
    roles = ScriptedRoles(checker=[verdict(progress=10), verdict(progress=20), verdict(progress=30), verdict("1", "2")])
    price = {"price": Price(input_usd=1000, output_usd=1000)}
    store = open_store("memory:")
    goal = Goal("Make it ready.", max_cost_usd=100.0, max_iterations=1)
    record = await pursue_goal(goal, build_maker(roles, model_options=price, store=store))
    assert record.cost_usd == pytest.approx(0.015 * 3)
    limited = await resume_goal(
        record.goal_id, build_maker(roles, model_options=price, store=store), max_cost_usd=0.0451
    )
    assert (limited.status, len(limited.iterations)) == ("budget_limited", 2)
    assert (limited.cost_usd or 1.0) <= 0.0451


async def test_the_time_of_a_goal_is_limited_without_the_pauses_and_the_maker_gets_a_last_turn():
    clock = FakeClock()

    async def work(_request):
        await clock.sleep(70)
        return "Worked for a while."

    roles = ScriptedRoles(
        maker=[work, lambda request: "I was interrupted." if not request.tools else work(request)],
        checker=[verdict(progress=30)],
    )
    maker = build_maker(roles, clock=clock)
    pursuit = asyncio.ensure_future(pursue_goal(Goal("Make it ready.", max_seconds=100.0), maker))
    async with asyncio.timeout(30):
        while not pursuit.done():
            await clock.advance(10)
            await asyncio.sleep(0)
    record = await pursuit
    assert (record.status, record.reason, len(record.iterations)) == ("budget_limited", "max_seconds", 2)
    assert record.summary == "I was interrupted."


async def test_a_goal_is_stopped_from_outside_and_resumed():
    store, begun = open_store("memory:"), asyncio.Event()

    async def stay(_request):
        begun.set()
        await asyncio.Event().wait()

    roles = ScriptedRoles(maker=[stay, "Worked."], checker=[verdict("1", "2")])
    maker = build_maker(roles, store=store)
    pursuit = asyncio.ensure_future(pursue_goal("Make it ready.", maker, goal_id="goal-s"))
    async with asyncio.timeout(30):
        await begun.wait()
    assert (await read_goal("goal-s", store)).status == "running"
    assert await stop_goal("goal-s", store)
    async with asyncio.timeout(30):
        record = await pursuit
    assert (record.status, record.reason) == ("paused", "stopped")
    assert not await stop_goal("goal-s", store)
    assert (await resume_goal("goal-s", maker)).status == "achieved"
    assert [each.goal_id for each in await list_goals(store)] == ["goal-s"]


async def test_cancelling_the_caller_pauses_the_goal():
    begun = asyncio.Event()

    async def stay(_request):
        begun.set()
        await asyncio.Event().wait()

    maker = build_maker(ScriptedRoles(maker=[stay], checker=[verdict()]), store=open_store("memory:"))
    pursuit = asyncio.ensure_future(pursue_goal("Make it ready.", maker, goal_id="goal-c"))
    async with asyncio.timeout(30):
        await begun.wait()
    pursuit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pursuit
    await until_true(lambda: True)
    assert (await read_goal("goal-c", maker.store)).status == "paused"


async def test_the_events_of_a_goal_reach_its_watchers_in_order():
    names: list[str] = []
    roles = ScriptedRoles(checker=[verdict("1", "2")])

    def watch(entry):
        names.append(getattr(entry.event, "name", ""))

    await pursue_goal("Make it ready.", build_maker(roles), grader=lambda _: True, watchers=[watch])
    assert [each for each in names if each.startswith("goal.")] == [
        "goal.planned", "goal.iteration_started", "goal.maker_finished", "goal.graded", "goal.verdict",
        "goal.ended",
    ]  # fmt: skip


async def test_a_goal_that_exists_is_not_begun_again_and_one_that_does_not_is_not_resumed():
    maker = build_maker(ScriptedRoles(checker=[verdict("1", "2")]), store=open_store("memory:"))
    await pursue_goal("Make it ready.", maker, goal_id="goal-e")
    with pytest.raises(SessionExists, match="resume_goal"):
        await pursue_goal("Make it ready.", maker, goal_id="goal-e")
    with pytest.raises(SessionNotFound, match="perdure goal list"):
        await resume_goal("goal-none", maker)


@pytest.mark.parametrize("options", [
    {"objective": ""}, {"objective": "a", "max_iterations": 0}, {"objective": "a", "token_budget": 0},
    {"objective": "a", "max_cost_usd": -1}, {"objective": "a", "items": "text"}, {"objective": "a", "items": [""]},
    {"objective": "a", "max_second": 3}, {"objective": "a", "no_progress_limit": 0},
])  # fmt: skip
def test_limits_of_a_goal_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        Goal(**options)


async def test_wrong_arguments_of_a_pursuit_are_refused_before_anything_is_stored():
    maker = Agent("demo")
    wrong: list[tuple[Any, Any]] = [
        ((3, maker), {}), (("a", "demo"), {}), (("a", maker), {"checker": "demo"}), (("a", maker), {"grader": 3}),
        (("a", maker), {"goal_id": "boat"}), (("a", maker), {"goal_id": "goal-a/b"}),
    ]  # fmt: skip
    for arguments, options in wrong:
        with pytest.raises(ConfigError):
            await pursue_goal(*arguments, **options)
    assert await maker.store.list() == []


async def test_a_budget_of_the_maker_is_not_silently_replaced_by_that_of_the_goal():
    maker = build_maker(ScriptedRoles(checker=[verdict("1", "2")]), budget=Budget(token_budget=10**6))
    with pytest.raises(ConfigError, match="leave out Agent"):
        await pursue_goal(Goal("Do it.", token_budget=10**6), maker)
    assert (await pursue_goal("Do it.", maker)).status == "achieved"


async def test_a_goal_that_was_cut_off_after_its_last_step_is_ended_when_it_is_resumed():
    store = open_store("memory:")
    maker = build_maker(ScriptedRoles(checker=[verdict("1", "2")]), store=store)
    await pursue_goal("Do it.", maker, goal_id="goal-e")
    entries = await store.read("goal-e")
    copy = open_store("memory:")
    lease = await copy.acquire("goal-e")
    await copy.append(lease, entries[:-1], sync=True)  # without the end of the run
    await copy.release(lease)
    assert [each.session_id for each in await copy.list_interrupted()] == ["goal-e"]
    assert (await resume_goal("goal-e", maker, store=copy)).status == "achieved"
    assert await copy.list_interrupted() == []


async def test_a_budget_that_the_plan_uses_up_ends_the_goal_before_anything_is_made():
    roles = ScriptedRoles(planner=[Reply(PLAN, usage=Usage(900, 100))])
    record = await pursue_goal(Goal("Make it ready.", token_budget=1000), build_maker(roles), goal_id="goal-p")
    assert (record.status, record.iterations, record.usage.total_tokens) == ("budget_limited", (), 1000)
    assert record.summary == "Open items: 1. The hull is tight.; 2. The sail is up.."
    assert roles.requests["maker"] == []


async def test_a_role_that_somebody_cancels_pauses_the_goal():
    maker: Agent[Any]

    async def be_cancelled(_request):
        await maker.session("goal-c/maker-1").cancel()
        return "Never."

    roles = ScriptedRoles(maker=[be_cancelled, "Worked."], checker=[verdict("1", "2")])
    maker = build_maker(roles, store=open_store("memory:"))
    async with asyncio.timeout(30):
        record = await asyncio.create_task(pursue_goal("Make it ready.", maker, goal_id="goal-c"))
    assert (record.status, record.reason) == ("paused", "the run of the maker was cancelled")
    assert (await resume_goal("goal-c", maker)).status == "achieved"


async def test_a_goal_that_could_not_be_stored_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = build_maker(ScriptedRoles(checker=[verdict("1", "2")]), store=open_store("memory:"))

    def fail(*_given: Any, **_options: Any) -> Any:
        raise StoreError("the disk is full")

    monkeypatch.setattr(maker.store, "append_now", fail)
    with pytest.raises(StoreError, match="the disk is full"):
        await pursue_goal("Make it ready.", maker, goal_id="goal-f")


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ((3, "demo"), {}, "pursue_goal(goal=3): give text, or a Goal(…)"),
        (("a", None), {}, "pursue_goal(maker=None): give an Agent(…)"),
        (("a", "demo"), {"checker": "demo"}, "pursue_goal(checker='demo'): give an Agent(…)"),
        (("a", "demo"), {"goal_id": "boat"}, "pursue_goal(goal_id='boat'): begin it with 'goal-', without /"),
        (("a", "demo"), {"goal_id": "goal-a/b"}, "pursue_goal(goal_id='goal-a/b'): begin it with 'goal-', without /"),
        (("a", "demo"), {"grade_seconds": -1}, "pursue_goal(grade_seconds=-1): give a number from 0 on"),
    ],
)
async def test_wrong_arguments_of_a_pursuit_are_named(given: Any, options: Any, message: str) -> None:
    maker: Any = Agent("demo") if given[1] == "demo" else given[1]
    with pytest.raises(ConfigError) as raised:
        await pursue_goal(given[0], maker, **options)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("budget", "price", "message"),
    [
        (
            {"max_cost_usd": 1.0},
            None,
            (
                "Goal(max_cost_usd=1.0): it needs a model whose price is known, and 'scripted' has none: give a "
                "token_budget instead"
            ),
        ),
        ({"token_budget": 10**6}, None, ""),
        ({"max_cost_usd": 1.0}, Price(input_usd=0.01, output_usd=0.01), ""),
    ],
)
async def test_a_budget_in_dollars_needs_a_price_of_the_maker_and_of_the_checker(
    budget: Any, price: Any, message: str
) -> None:
    cheap = Price(input_usd=0.01, output_usd=0.01)
    roles = ScriptedRoles(checker=[verdict("1", "2")])
    other = build_maker(roles, model_options={} if price is None else {"price": price})
    given: list[dict[str, Any]] = [
        {"maker": other},
        {"maker": build_maker(roles, model_options={"price": cheap}), "checker": other},
    ]
    for options in given:
        if message:
            with pytest.raises(ConfigError) as raised:
                await pursue_goal(Goal("Do it.", **budget), **options)
            assert str(raised.value) == message
        else:
            assert (await pursue_goal(Goal("Do it.", **budget), **options)).status == "achieved"


def test_the_plan_of_the_script_is_valid():
    assert len(json.loads(PLAN)["items"]) == 2
