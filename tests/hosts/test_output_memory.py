"""What a command writes does not stay in memory, however much it is."""

import subprocess
import sys

import pytest

HOST = """
import asyncio, resource, sys
from perdure.hosts import LocalShell
from perdure.tools import CommandLimits
from perdure.hosts import ShellCommand

def measure():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def main():
    limits = CommandLimits(spool_bytes=int(sys.argv[3]))
    async with LocalShell(sys.argv[1], limits=limits) as shell:
        await shell.run(ShellCommand(line="echo warm"))
        before = measure()
        result = await shell.run(ShellCommand(line=sys.argv[2]))
        print(result.ending, result.stdout.omitted_bytes, measure() - before)

asyncio.run(main())
"""


@pytest.mark.budget
@pytest.mark.parametrize(
    ("line", "spool_bytes", "ending", "least_bytes"),
    [
        ("yes", 64 * 1024**2, "output", 60_000_000),
        ("head -c 1000000000 /dev/zero", 64 * 1024**2, "output", 60_000_000),
        ("head -c 1000000000 /dev/zero", 2 * 1024**3, "exit", 999_000_000),
        ("yes >&2", 64 * 1024**2, "output", 0),
    ],
)
def test_endless_output_and_a_gigabyte_take_less_than_32_mib(tmp_path, line, spool_bytes, ending, least_bytes):
    told = subprocess.run(
        [sys.executable, "-c", HOST, tmp_path, line, str(spool_bytes)], capture_output=True, text=True, check=True
    )
    ended, omitted, kibibytes = told.stdout.split()
    assert ended == ending
    assert int(omitted) >= least_bytes
    assert int(kibibytes) < 32 * 1024
