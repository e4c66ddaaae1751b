"""A scheduler fires each due time once, skips overlaps, moves missed ones forward, and denies every question."""

from tests.scheduling.scheduling_scene import START, Scene, kinds, serve_once

from perdure.scheduling import Schedule, at, cron, every

HOURLY = Schedule(name="news", when=every(hours=1), prompt="Read the news.")


async def test_a_schedule_fires_when_its_interval_has_passed():
    scene = Scene("first", "second")
    scheduler = scene.scheduler(HOURLY)
    assert kinds(await serve_once(scheduler)) == ["armed"]
    assert await serve_once(scheduler) == []
    await scene.clock.advance(3600)
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]
    assert await serve_once(scheduler) == []
    await scene.clock.advance(3600)
    fired, finished = await serve_once(scheduler)
    assert (fired.due, fired.firing_id, finished.firing_id) == (START + 7200, "2023-11-15T00:13:20Z", fired.firing_id)
    messages = await scene.agent.session("news").messages()
    assert [each.text for each in messages] == ["Read the news.", "first", "Read the news.", "second"]
