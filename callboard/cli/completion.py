"""`callboard completion`: the script that lets a shell complete commands and flags."""

import sys
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from callboard.cli.arguments import BadArgument
from callboard.cli.codes import Exit
from callboard.cli.complaints import complain
from callboard.cli.screen import Screen

EXAMPLES: Final = """\
Examples:

  callboard completion bash >> ~/.bash_completion
  callboard completion zsh > ~/.zfunc/_callboard
  callboard completion fish > ~/.config/fish/completions/callboard.fish
  callboard completion --install           for the shell that this runs in
"""


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"] | None,
        Parameter(name="SHELL", help="Default: the shell that this runs in."),
    ] = None,
    /,
    *,
    install: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Write the script where the shell looks for it, and a line into its startup file.",
        ),
    ] = False,
) -> int:
    """Print the script for completion of commands and flags in a shell."""
    from cyclopts.completion.detect import ShellDetectionError

    from callboard.cli.main import app  # which has this command, too

    app.resolved_commands()
    try:
        if install:
            path = app.install_completion(shell=shell)
            sys.stdout.write(f"installed {path}; it is used by new shells\n")
        else:
            sys.stdout.write(app.generate_completion(prog_name="callboard", shell=shell))
    except OSError as error:
        return complain(Screen(), BadArgument(f"cannot install: {error}"))
    except ShellDetectionError:
        return complain(Screen(), BadArgument("unknown shell: name it, as in `callboard completion bash`"))
    return Exit.FINE


APP: Final = App(name="completion", help_epilogue=EXAMPLES)
APP.default(completion)
