"""`ScriptedShell`: a shell backend for tests, which answers commands from a table and records them."""

from collections.abc import Mapping

from perdure._core.values import checks
from perdure._core.values.error import ToolError
from perdure._tools.shell.backend import CapturedStream, Confinement, JobOutput, ShellCommand, ShellResult

_NOT_FOUND = 127


class ScriptedShell:
    """A `ShellBackend` for tests that runs nothing: each command gets the answer scripted for it.

    A command without an answer fails as a program that does not exist.
    """

    def __init__(
        self,
        answers: Mapping[str, str | ShellResult] | None = None,
        *,
        root: str = "/work",
        confinement: Confinement | None = None,
    ) -> None:
        """Answer command lines by this table: with text for its output, or with a whole result."""
        for line, answer in (answers or {}).items():
            if not isinstance(line, str) or not isinstance(answer, str | ShellResult):
                advice = "give text or a ShellResult for each line"
                checks.raise_config_error("ScriptedShell", "answers", {line: answer}, advice)
        self._answers = dict(answers or {})
        self._root = root
        self._confinement = confinement or Confinement(sandbox="none: a test", network=False)
        self._jobs: dict[str, JobOutput] = {}
        self.commands: list[ShellCommand] = []
        """The commands that it was asked to run, in order."""

    @property
    def root(self) -> str:
        """The working folder that it pretends to have."""
        return self._root

    @property
    def confinement(self) -> Confinement:
        """The confinement that it pretends to have."""
        return self._confinement

    async def run(self, command: ShellCommand) -> ShellResult:
        """Return the answer for a command."""
        self.commands.append(command)
        line = command.line or " ".join(command.argv)
        answer = self._answers.get(line)
        if answer is None:
            return ShellResult(exit_code=_NOT_FOUND, stderr=CapturedStream(f"{line}: command not found\n"))
        return ShellResult(exit_code=0, stdout=CapturedStream(answer)) if isinstance(answer, str) else answer

    async def start(self, command: ShellCommand) -> str:
        """Pretend to start a command in the background; its answer is its output, and it has ended."""
        result = await self.run(command)
        job_id = f"job_{len(self._jobs) + 1}"
        self._jobs[job_id] = JobOutput(
            stdout=str(result.stdout), stderr=str(result.stderr), exit_code=result.exit_code, ending=result.ending
        )
        return job_id

    async def poll(self, job_id: str, *, wait_seconds: float = 0.0) -> JobOutput:
        """Return the output of a job once, and then its exit code alone."""
        job = self._jobs.get(job_id)
        if job is None or wait_seconds < 0:
            raise ToolError(f"there is no background command {job_id!r}")
        self._jobs[job_id] = JobOutput(exit_code=job.exit_code, ending=job.ending)
        return job

    async def stop(self, job_id: str) -> JobOutput:
        """Return the last output of a job."""
        return await self.poll(job_id)
