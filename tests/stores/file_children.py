"""Programs that the tests of the file store run as processes of their own."""

import asyncio
import os
import random
import signal
import sys

from perdure.events import Custom, Entry
from perdure.stores import FileStore, Post


def tell(*words: object) -> None:
    """To the test that started us."""
    print(*words, flush=True)  # noqa: T201


async def post(folder: str, name: str, count: str) -> None:
    """Post under ids of our own, and under others that everybody uses; tell how many were ours, and how many shared."""
    store = FileStore(folder)
    number = int(count)
    own = sum([await store.post("s", Post(f"{name}-{each}", "steer")) for each in range(number)])
    for each in range(number // 2):
        await store.post("s", Post(f"shared-{each}", "steer"))
    shared = [each for each in await store.posts("s") if each.id.startswith("shared-")]
    tell(own, len(shared))
    await store.aclose()


def kill_posters(folder: str, rounds: str, seed: str) -> None:
    """Kill processes while they post; tell the ids of all posts that were acknowledged."""
    chance = random.Random(seed)
    for number in range(int(rounds)):
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(reader)
            asyncio.run(_post_for_ever(folder, number, writer))
        os.close(writer)
        enough = chance.randint(1, 8)
        with os.fdopen(reader) as lines:
            for told, line in enumerate(lines, 1):
                tell(line.strip())
                if told == enough:
                    os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


async def _post_for_ever(folder: str, name: int, pipe: int) -> None:
    store = FileStore(folder)
    number = 0
    while True:
        number += 1
        await store.post("s", Post(f"{name}-{number}", "steer", "x" * 300))
        os.write(pipe, f"{name}-{number}\n".encode())


def kill_redactions(folder: str, rounds: str, seed: str) -> None:
    """Kill drivers while they redact, fork and delete, at any call to the disk; tell when each has died."""
    chance = random.Random(seed)
    for number in range(int(rounds)):
        if (pid := os.fork()) == 0:
            _die_at(chance.randint(1, 40) if number else 1)
            asyncio.run(_redact(folder, number))
            os._exit(0)
        os.waitpid(pid, 0)
        tell(number)


def _die_at(nth: int) -> None:
    """End without another word before the N-th call that changes something on the disk."""
    left = [nth]

    def dying(real):
        def call(*arguments, **options):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in ("write", "replace", "rename", "link", "unlink", "fsync", "fdatasync"):
        setattr(os, name, dying(getattr(os, name)))


async def _redact(folder: str, number: int) -> None:
    store = FileStore(folder)
    lease = await store.acquire("s")
    clean = [Entry(seq, 1.0, Custom("clean", number), f"e-{seq}") for seq in (2, 4)]
    for entry in clean:
        await store.redact(lease, entry)
    await store.fork("s", f"fork-{number}", at=3)
    await store.delete(f"fork-{number - 1}")
    await store.aclose()


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    result = globals()[program](*arguments)
    if asyncio.iscoroutine(result):
        asyncio.run(result)
