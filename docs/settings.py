"""Write `reference/settings.md` from the settings themselves: each is a field with its reason.

python docs/settings.py > docs/reference/settings.md
"""

import sys

import attrs

from callboard.transports.limits import DEFAULTS, Settings

HEAD = """# Settings

Every limit and time of the edges, with its default. In Python `server.run(settings=Settings(drain_time=5))`, from
`callboard.transports.limits`; on the command line `callboard run app.py --drain-time 5`. Sizes are in bytes, times in
seconds; the number after a colon is how it is said over HTTP. This page is made from the code by `docs/settings.py`; a
test keeps the two together.

With several workers, a limit that *holds for each worker* protects its process: four workers allow four times as much
in all. The others are the same with any number of workers.

| setting | flag | default | holds for | why |
|---|---|---|---|---|"""


def page() -> str:
    rows = [
        f"| `{field.name}` | `--{field.name.replace('_', '-')}` | {getattr(DEFAULTS, field.name):,} | "
        f"{field.metadata['holds']} | {field.metadata['why']} |"
        for field in attrs.fields(Settings)
    ]
    return "\n".join([HEAD, *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
