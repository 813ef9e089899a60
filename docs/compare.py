"""Write `compared.md`: things that authors do, by callboard and by others, and the lines that each takes.

python docs/compare.py > docs/compared.md

The code is in `docs/compared/`, a file for each library, in sections that begin with a comment at the margin.
"""

import re
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent / "compared"

LIBRARIES: Final = {
    "callboard": "with_callboard.py",
    "fastmcp 4.1": "with_fastmcp.py",
    "mcp 2.3": "with_mcp.py",
    "TypeScript 2": "with_typescript.mjs",
}

NOTES: Final = {
    "A question to the user": "callboard asks at the `await`, in every revision. fastmcp 4.1.4 says *elicitation via "
    "server-initiated requests is unavailable* to a client of 2026-07-28. mcp 2.3 asks in both eras, by a resolver "
    "that runs before the tool. In the TypeScript SDK a tool returns its questions, and is run again with the answers.",
    "A failure that the model reads": "Of any other exception callboard sends the type alone, and logs the rest.",
    "A function that blocks, in a thread": "Node.js has one thread: what blocks moves to a worker, as its own source.",
    "An argument with a description": "callboard reads the sections of Google docstrings, too.",
    "A template of resources": "None is *no such resource*, with the error code of the client's revision.",
}

HEAD: Final = """# Side by side: callboard, fastmcp, mcp and the TypeScript SDK

Twenty things that authors do, each as a server of that library says it. Lines are counted without blank ones; an import
is counted where it is first needed. callboard's code is run by the tests, and the others' with the versions that are
named: fastmcp 4.1.4, mcp 2.3.0 and @modelcontextprotocol/server 2.4. This page is made from `docs/compared/` by
`docs/compare.py`.

Lines do not show the largest differences. A callboard handler runs on Trio: a cancelled request is a cancelled scope,
and libraries for asyncio need `loop="asyncio"` ([how](howto/asyncio.md)). It serves five revisions at once,
without a branch in the handler. To move a server: [from fastmcp](howto/from-fastmcp.md),
[from mcp](howto/from-the-sdk.md)."""


def sections(file: str) -> dict[str, str]:
    """The code of a file by the comment that it stands below."""
    parts = re.split(r"^(?:#|//) (\S.*)\n", (HERE / file).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {title: code.strip("\n") for title, code in zip(parts[::2], parts[1::2], strict=True)}


def lines(code: str) -> int:
    return sum(1 for line in code.splitlines() if line.strip())


def page() -> str:
    found = {library: sections(file) for library, file in LIBRARIES.items()}
    rows = [
        f"| [{title}](#{_anchor(title)}) | "
        + " | ".join(str(lines(one[title])) if title in one else "" for one in found.values())
        + " |"
        for title in found["callboard"]
    ]
    table = "\n".join([f"| lines for | {' | '.join(LIBRARIES)} |", "|---|" + "---|" * len(LIBRARIES), *rows])
    parts = [HEAD, table]
    for title in found["callboard"]:
        parts.append(f"## {title}")
        parts += [NOTES[title]] if title in NOTES else []
        for library, one in found.items():
            if title in one:
                kind = "js" if library.startswith("TypeScript") else "python"
                parts.append(f"{library}\n\n```{kind}\n{one[title]}\n```")
    return "\n\n".join(parts) + "\n"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(page())
