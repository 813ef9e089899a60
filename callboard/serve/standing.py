"""How it stands with the servers of a broker, as lines of text: the verbose form of `/readyz`."""

from collections.abc import Iterator

from callboard.observe.rows import Row
from callboard.supervisor.printable import clean


def standing(view: Row) -> str:
    """How many servers are up, and a line for each that is not, or sleeps; of a server that is no broker, nothing."""
    totals = view.get("totals", {})
    if not totals.get("servers"):
        return ""
    return "".join(f"{line}\n" for line in _lines(view, totals["servers"], totals["servers_up"]))


def _lines(view: Row, servers: int, up: int) -> Iterator[str]:
    yield f"{up} of {servers} servers are up"
    for row in view["servers"]:
        if row["state"] == "asleep":
            yield clean(f"- {row['name']}: asleep").replace("\n", " ")
        elif not row["is_up"]:
            required = "required, " if row["required"] else ""
            yield clean(f"- {row['name']}: {required}{row['state']}: {row['why']}").replace("\n", " ")
