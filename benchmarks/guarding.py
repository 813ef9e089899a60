"""What a guarded server costs: the same call without a token, with one of each kind, and under a thousand rules.

    python -m benchmarks.guarding [--only hosted|brokered] [--rounds N] [--seconds S] [--json FILE]

An echo over HTTP kept alive; brokered, the server of the tool is behind stdio. What is compared is the CPU of one call,
as in `benchmarks.observing`: every round has new processes, which take turns twenty times a second.
"""

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from joserfc import jwt
from joserfc.jwk import RSAKey

from benchmarks.measure import verdict
from benchmarks.observing import TURN, WARM_UP, Server, server

RULES: Final = 1000
ISSUER: Final = "https://login.example.com"
RESOURCE: Final = "https://tools.example.com/mcp"
TOKEN: Final = "a-token-of-the-operator"  # noqa: S105  # of a server that ends with the benchmark

RATIO: Final = "CPU of a call, times one without a token"
RULE_COST: Final = f"us that {RULES:,} rules add to a call"
TARGETS: Final = {
    f"{kind}, {what}": target
    for kind in ("hosted", "brokered")
    for what, target in ((f"token file: {RATIO}", 1.1), (f"JWT: {RATIO}", 1.1), (RULE_COST, 5.0))
}
"""At most."""

KINDS: Final = ("hosted", "brokered")


def prepare(folder: Path) -> dict[str, tuple[tuple[str, ...], bytes]]:
    """The flags of each server that is compared, and the headers of its clients."""
    key = RSAKey.generate_key(2048, auto_kid=True)
    (folder / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    (folder / "tokens").write_text(f"ada {TOKEN} files:read\n")
    (folder / "tokens").chmod(0o600)
    head = (
        f'[authorization]\nresource = "{RESOURCE}"\n[[authorization.issuers]]\nissuer = "{ISSUER}"\n'
        f'jwks = "{folder / "keys.json"}"\n'
    )
    rule = '[[authorization.rules]]\ntools = ["team{0}_*"]\nneeds = ["team:{0}"]\n'
    rules = "".join(map(rule.format, range(RULES - 1)))
    own = '[[authorization.rules]]\ntools = ["ech*"]\nneeds = ["files:read"]\n'
    (folder / "plain.toml").write_text(head)
    (folder / "rules.toml").write_text(head + rules + own)
    now = int(time.time())
    claims: dict[str, Any] = {"iss": ISSUER, "aud": RESOURCE, "sub": "ada", "scope": "files:read", "iat": now}
    token = jwt.encode({"alg": "RS256", "kid": key.kid}, {**claims, "exp": now + 3600}, key)
    bearer = b"Authorization: Bearer %b\r\n"
    signed = bearer % token.encode()
    return {
        "none": ((), b""),
        "file": (("--token-file", str(folder / "tokens")), bearer % TOKEN.encode()),
        "jwt": (("--authorization", str(folder / "plain.toml")), signed),
        "rules": (("--authorization", str(folder / "rules.toml")), signed),
    }


def one_round(kind: str, seconds: float) -> dict[str, float]:
    """The figures of *kind*."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        every: dict[str, Server] = {}
        for name, (flags, lines) in prepare(folder).items():
            every[name] = stack.enter_context(server(kind, folder, *flags, lines=lines))
            every[name].cpu_of_call(WARM_UP)
        turns = [_turn(every, number) for number in range(max(2, round(seconds / TURN)))]
    return {
        f"{kind}, token file: {RATIO}": median(taken["file"] / taken["none"] for taken in turns),
        f"{kind}, JWT: {RATIO}": median(taken["jwt"] / taken["none"] for taken in turns),
        f"{kind}, {RULE_COST}": median(taken["rules"] - taken["jwt"] for taken in turns),
    }


def _turn(every: dict[str, Server], number: int) -> dict[str, float]:
    names = list(every)
    first = number % len(names)
    return {name: every[name].cpu_of_call(TURN) for name in (*names[first:], *names[:first])}


def measure(kinds: list[str], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Every figure, one for each round."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kind in kinds:
            for what, figure in one_round(kind, seconds).items():
                found.setdefault(what, []).append(figure)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(KINDS), help="one of the two")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round, for each server")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file, too")
    given = parser.parse_args()
    found = measure([given.only] if given.only else list(KINDS), given.rounds, given.seconds)
    for what, figures in found.items():
        said = verdict(what, median(figures), TARGETS[what], at_most=True)
        print(said, f"({min(figures):.3f} to {max(figures):.3f})")
    if given.json is not None:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
