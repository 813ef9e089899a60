"""The duties of a server in REQUIREMENTS.csv that no test here proves, each with the reason why.

Every other duty of a server, or of both sides, is named by the test that proves it:
`@pytest.mark.requirement("M059")`. `tests/test_requirements.py` fails when an id has neither, or both.
The ids begin with M (2026-07-28) or L (2025-11-25); what they demand stands in the CSV and is not repeated.
"""

import enum
from typing import Final

import attrs


class Why(enum.Enum):
    """The kinds of reasons."""

    AUTHORIZATION = "comes with authorization"
    TASKS = "comes with tasks, which are not offered, and so not declared"
    AUTHOR = "a duty of whoever writes or runs the server, which no library can take over"
    UNUSED = "about something that the specification allows and callboard does not do"
    MISSING = "MISSING: callboard owes it"


def _split(ids: str) -> tuple[str, ...]:
    return tuple(ids.split())


@attrs.frozen
class Elsewhere:
    """Duties of one kind, and what is to be said of just these: the help we give, or what is still to be done."""

    why: Why
    note: str
    ids: tuple[str, ...] = attrs.field(converter=_split)


ELSEWHERE: Final = (
    # Authorization
    Elsewhere(
        Why.AUTHORIZATION,
        "tokens, their audience and scopes, the metadata and the challenges",
        """
        M329 M333 M348 M349 M350 M352 M353 M356 M357 M358 M359 M362 M363 M364 M365 M383 M384 M393 M394 M395
        L203 L204 L220 L221 L222 L223 L225 L226 L227 L228 L235 L237
        M402 M405
        """,
    ),
    # Tasks
    Elsewhere(
        Why.TASKS,
        "the experimental tasks of 2025-11-25",
        """
        L076 L084 L091 L093 L094 L095 L096 L097 L098 L099 L100 L101 L102 L103 L104 L105 L106 L107 L108 L109 L110
        L111 L112 L113 L114 L115 L116 L117 L118 L119 L120 L121
        """,
    ),
    Elsewhere(
        Why.TASKS,
        "the tasks extension of 2026-07-28",
        "M414 M415 M416 M417 M418 M419 M422 M423 M424 M425 M427 M428 M429 M431 M432 M433",
    ),
    # What the specification allows and callboard does not do
    Elsewhere(Why.UNUSED, "remote references are never fetched, and there is no way to allow it", "M051"),
    Elsewhere(Why.UNUSED, "url elicitations are always sent as requests, never as error -32042", "L138 L139 L149"),
    Elsewhere(Why.UNUSED, "no extension is declared, and none is expected of a client", "M062 M063"),
    Elsewhere(Why.UNUSED, "no trace context is made; a client's own reaches the handler by `ctx.meta`", "M044"),
    Elsewhere(Why.UNUSED, "nothing that was answered is kept and answered again", "M214"),
    Elsewhere(Why.UNUSED, "no completion notifications are sent for url elicitations", "L134 L135"),
    # What only an author or an operator can do
    Elsewhere(Why.AUTHOR, "no parameter is mirrored unless its author writes `Header`", "M155"),
    Elsewhere(
        Why.AUTHOR, "what a handler asks is its own; `ctx.elicit_url` is there for secrets", "M274 M275 L122 L123"
    ),
    Elsewhere(
        Why.AUTHOR,
        "what a handler stores is its own; `ctx.principal` says for whom, and only transports can set it",
        "M287 M288 M289 M295 M304 L140 L141 L142 L143 L151 L158",
    ),
    Elsewhere(
        Why.AUTHOR,
        "the page behind a URL, and what it does with credentials, is not served here",
        "M290 M291 M292 M293 M305 M306 M307 L144 L145 L146 L147 L148 L159 L160 L161",
    ),
    Elsewhere(Why.AUTHOR, "the text of a URL is its author's", "M296 M297 M298 L152 L153"),
    Elsewhere(
        Why.AUTHOR,
        "who may see what is the author's to say; handlers get `ctx.principal`",
        "M221 M222 M223 M228 M229 M256 M267 L182 L197 L198",
    ),
    Elsewhere(Why.AUTHOR, "what a handler logs or returns is its own", "M234 M269 L184 L200"),
    Elsewhere(Why.AUTHOR, "what a handler says to a model, or takes from it, is its own", "M325 L168 M328"),
    Elsewhere(Why.AUTHOR, "a template's variables are text; a handler that makes paths of them checks them", "M255"),
    Elsewhere(Why.AUTHOR, "roots are guidance; a handler that touches files keeps to them", "M315"),
    Elsewhere(
        Why.AUTHOR, 'what a call costs only its author knows: `Server(rates={"tools/call": Rate(10)})`', "M268 L183"
    ),
)
