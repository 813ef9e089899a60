"""`callboard tasks`: look at a call that goes on as a task at a server, wait for it, or cancel it."""

from typing import Annotated, Final

from cyclopts import App, Parameter

from callboard.cli.client import Target
from callboard.cli.client_run import Talk, TalkOptions, speak
from callboard.cli.codes import Exit
from callboard.cli.media_files import MediaFiles, SaveFlags

EXAMPLES: Final = """\
Examples:

  callboard call http://127.0.0.1:8000/mcp compute seconds=60 --task
  callboard tasks get http://127.0.0.1:8000/mcp ID
  callboard tasks watch http://127.0.0.1:8000/mcp ID     wait for its result
  callboard tasks cancel http://127.0.0.1:8000/mcp ID

Exit codes: 0 success; 1 the tool returned an error; 2 wrong arguments; 3 cannot
connect; 4 the task failed, was cancelled or is unknown; 5 timed out, or
connection lost; 6 the output cannot be written; 130 Ctrl-C.
"""

_Id = Annotated[
    str,
    Parameter(
        name="ID",
        allow_leading_hyphen=True,  # ids of other servers may begin with one
        help="The id of the task, as `callboard call --task` printed it.",
    ),
]
_PLAIN: Final = TalkOptions()
_NO_FILES: Final = SaveFlags()


def get(target: Target, task_id: _Id, /, *, options: TalkOptions = _PLAIN) -> int:
    """Print where a task stands."""

    async def action(talk: Talk) -> Exit:
        task = talk.client.task(task_id)
        await task.refresh()
        talk.output.task(task)
        return Exit.FINE

    return speak(target, options, action)


def cancel(target: Target, task_id: _Id, /, *, options: TalkOptions = _PLAIN) -> int:
    """Cancel a task, and print where it stands then."""

    async def action(talk: Talk) -> Exit:
        task = talk.client.task(task_id)
        await task.cancel()
        talk.output.task(task)
        return Exit.FINE

    return speak(target, options, action)


def watch(target: Target, task_id: _Id, /, *, files: SaveFlags = _NO_FILES, options: TalkOptions = _PLAIN) -> int:
    """Wait for a task, and print its result. Asks its questions at the terminal if there is one."""

    async def action(talk: Talk) -> Exit:
        files.check(is_json=options.json)
        talk.output.media = MediaFiles(files, "task")
        task = talk.client.task(task_id)
        await task.refresh()
        async for change in task:
            if not change.is_final:
                talk.screen.stand(f"{change.status} {change.status_message}".rstrip())
        talk.screen.clear()
        result = await task
        talk.output.called(result)
        return Exit.TOOL_FAILED if result.is_error is True else Exit.FINE

    return speak(target, options, action)


APP: Final = App(
    name="tasks", help="Look at a call that goes on as a task, wait for it, or cancel it.", help_epilogue=EXAMPLES
)
for _command in (get, watch, cancel):
    APP.command(_command)
