"""The duties of a client in REQUIREMENTS.csv that no test here proves, each with the reason why.

As `tests/requirements.py` has it for servers. The tests of a client are those in `tests/client`, `tests/commands`,
`tests/oauth` and beside them; what both sides share is proved once, by the tests of the codecs.
"""

from typing import Final

from tests.requirements import Elsewhere, Why

ELSEWHERE_OF_CLIENT: Final = (
    Elsewhere(
        Why.TASKS,
        "the experimental tasks of 2025-11-25, which are not asked for",
        """
        L076 L084 L087 L088 L089 L090 L092 L093 L094 L095 L096 L097 L098 L099 L100 L101 L102 L103 L104 L105
        L106 L107 L108 L109 L110 L111 L112 L113 L114 L115 L116 L117 L118 L119 L120 L121
        """,
    ),
    Elsewhere(
        Why.TASKS,
        "the tasks extension of 2026-07-28, which is not declared",
        "M412 M413 M420 M421 M426 M430 M437",
    ),
    Elsewhere(
        Why.UNUSED,
        "icons are passed on as they are, and never fetched or drawn",
        "L017 L018 M054 M055 M056 M057 M058",
    ),
    Elsewhere(
        Why.UNUSED,
        "nothing is decided by what a server says of itself or of its tools",
        "L179 M039 M209 M262",
    ),
    Elsewhere(Why.UNUSED, "nothing polls", "M217 M218"),
    Elsewhere(
        Why.UNUSED,
        "a client is one connection; starting a server again, and listening again, is for whoever holds the client",
        "M029 M082 M206",
    ),
    Elsewhere(Why.UNUSED, "a client reports no progress", "L082 L083 L085 M198"),
    Elsewhere(Why.UNUSED, "no change of roots is declared: they are asked for anew each time", "L171"),
    Elsewhere(Why.UNUSED, "no extension is declared, and none is expected of a server", "M062 "),
    Elsewhere(Why.UNUSED, "no trace context is made", "M044"),
    Elsewhere(Why.UNUSED, "remote references are never fetched, and there is no way to allow it", "M051"),
    Elsewhere(
        Why.UNUSED,
        "nothing is named at keys of `_meta` that are reserved for others, nor read there",
        "L012 M043",
    ),
    Elsewhere(
        Why.AUTHOR,
        "which folders are shown as roots is for whoever names them",
        "L173 L174 L175 L176 M311 M312 M313 M314",
    ),
    Elsewhere(
        Why.AUTHOR,
        "what a model is asked, and who approves of it, is up to the function given as `sampling`",
        "L167 L168 L169 M322 M323 M324 M325 M326 M327 M328",
    ),
    Elsewhere(Why.AUTHOR, "what is done with a prompt is for whoever got it", "L193 M245"),
    Elsewhere(
        Why.AUTHOR,
        "what is sensitive only the user knows; `callboard call` is a command that somebody typed",
        "M270 M410",
    ),
    Elsewhere(Why.UNUSED, "whoever gives `sampling` is asked with tools as well: both are declared together", "L166"),
)
