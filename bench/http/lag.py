"""Many sessions over a slow stream at once, on SQLite, and how late the event loop is meanwhile.

    python -m bench.http.lag [SESSIONS] [WORDS]      1,000 sessions of 20 words

The server is a process of its own. Prints a line of JSON: by how much a task that wakes every 5 ms is late while all
sessions are live, and the CPU time of this process. It needs a machine that has nothing else to do: on a busy one the
lag is that of the machine. The `busy` figures count the CPU time of the loop's thread between two ticks instead of the
time on the clock; what is above 5 ms of them is the lag that this process causes itself.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perdure import Agent
from perdure.models import openai_compatible

TICK_SECONDS = 0.005


async def measure(port: int, sessions: int, words: int) -> dict[str, float]:
    """Run the sessions, and return the percentiles of the lag in milliseconds."""
    lags: list[float] = []
    busy: list[float] = []

    async def tick() -> None:
        while True:
            due, used = time.perf_counter() + TICK_SECONDS, time.thread_time()
            await asyncio.sleep(TICK_SECONDS)
            lags.append(time.perf_counter() - due)
            busy.append(time.thread_time() - used)

    model = openai_compatible(f"http://127.0.0.1:{port}/v1", f"trickle-{words}")
    with tempfile.TemporaryDirectory() as folder:
        async with Agent(model, store=f"sqlite:{Path(folder) / 'sessions.db'}") as agent:
            await agent.session("warm").run("Go")
            ticking = asyncio.ensure_future(tick())
            began = time.process_time()
            outcomes = await asyncio.gather(*[agent.session(f"s{number}").run("Go") for number in range(sessions)])
            seconds = time.process_time() - began
            ticking.cancel()
    assert {outcome.status for outcome in outcomes} == {"done"}, {str(outcome) for outcome in outcomes}
    lags.sort()
    busy.sort()
    return {
        "p50_ms": lags[len(lags) // 2] * 1e3,
        "p99_ms": lags[len(lags) * 99 // 100] * 1e3,
        "worst_ms": lags[-1] * 1e3,
        "busy_p99_ms": busy[len(busy) * 99 // 100] * 1e3,
        "busy_worst_ms": busy[-1] * 1e3,
        "cpu_s": seconds,
    }


def main(sessions: int = 1_000, words: int = 20) -> dict[str, float]:
    """Start the server, measure, and return the figures."""
    os.environ.setdefault("OPENAI_API_KEY", "none")
    command = [sys.executable, "-m", "bench.http.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            return asyncio.run(measure(int(server.stdout.readline()), sessions, words))
        finally:
            server.stdin.close()


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
