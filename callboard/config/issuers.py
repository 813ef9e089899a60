"""The authorization servers that issue accepted tokens: `[[authorization.issuers]]`."""

from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.codecs.oauth.addresses import Reach, locate
from callboard.codecs.oauth.client import BASIC, POST
from callboard.codecs.oauth.issuer import (
    KNOWN_ALGORITHMS,
    LEEWAY,
    IntrospectionSettings,
    IssuerSettings,
)
from callboard.codecs.oauth.jwks import IssuerKeys
from callboard.codecs.oauth.jwt import ALGORITHMS
from callboard.config.auth import read_private_key, read_secret
from callboard.config.positions import SourceNode
from callboard.config.reader import Place, Table, nearest, quoted
from callboard.errors import FetchFailed, UnsafeUrl

MAX_ISSUERS: Final = 32
"""Most issuers of one server."""

MAX_LEEWAY: Final = 300.0
"""Longest `leeway`, in seconds: clocks that differ by more are to be set."""

ISSUER_KEYS: Final = (
    *("issuer", "audiences", "client_ids", "jwks", "secret_env", "secret", "algorithms", "leeway"),
    *("required_claims", "typ", "principal", "tenant", "trust", "introspection"),
)
INTROSPECTION_KEYS: Final = (
    *("endpoint", "client_id", "client_secret_env", "client_secret", "method"),
    *("private_key_env", "private_key", "private_key_file", "algorithm"),
)
METHODS: Final = (BASIC, POST)


def read_issuers(place: Place) -> list[IssuerSettings]:
    """The list of issuers. Errors are reported; an issuer that has any is left out."""
    if place.node.items is None:
        place.wrong("must be a list of issuers")
        return []
    if len(place.node.items) > MAX_ISSUERS:
        place.wrong(f"has more than {MAX_ISSUERS} issuers")
        return []
    found: dict[str, IssuerSettings] = {}
    for at, node in enumerate(place.node.items):
        entry = Place(node, f"{place.where}[{at}]", place.report)
        issuer = _read_issuer(entry)
        if issuer is None:
            continue
        if issuer.issuer in found:
            entry.wrong(f"is the second issuer {quoted(issuer.issuer)}")
        found[issuer.issuer] = issuer
    if sum(issuer.introspection is not None for issuer in found.values()) > 1:
        place.warn("several issuers have `introspection`: tokens that do not name their issuer are rejected")
    return list(found.values())


def _read_issuer(place: Place) -> IssuerSettings | None:
    before = len(place.report.mistakes)
    table = place.table()
    table.warn_unknown(ISSUER_KEYS)
    name, trust = table.text("issuer", ""), table.texts("trust")
    if "issuer" not in table.members:
        place.wrong("needs an `issuer`")
    introspection = table.members.get("introspection")
    values: dict[str, Any] = {
        "issuer": name,
        "audiences": table.texts("audiences") if "audiences" in table.members else None,
        "client_ids": table.texts("client_ids"),
        "jwks": _jwks(table, trust),
        "secret": read_secret(table, "secret"),
        "algorithms": _algorithms(table),
        "leeway": _leeway(table),
        "required_claims": table.texts("required_claims"),
        "typ": table.text("typ", None),
        "principal": _one_or_more(table, "principal"),
        "tenant": _tenant(table),
        "trust": trust,
        "introspection": None if introspection is None else _introspection(introspection, trust),
    }
    _check_fetched(table, values)
    if len(place.report.mistakes) > before:
        return None
    try:
        issuer = IssuerSettings(**values)
        if issuer.secret is not None:
            IssuerKeys.shared(issuer.secret)
    except ValueError as error:
        place.wrong(str(error))
        return None
    return issuer


def _check_fetched(table: Table, values: dict[str, Any]) -> None:
    """An issuer that is to be found by its name must be one that may be fetched from."""
    place, introspection = table.members.get("issuer"), values["introspection"]
    is_asked = introspection is not None and introspection.endpoint is None
    has_keys = values["secret"] is not None or values["jwks"] is not None or introspection is not None
    if place is not None and values["issuer"] and (is_asked or not has_keys):
        _check_url(place, values["issuer"], values["trust"])
    for key, other in (("secret", "jwks"), ("secret", "introspection"), ("jwks", "introspection")):
        if values[key] is not None and values[other] is not None:
            table.members[other].wrong(f"excludes `{key}`: use one")


def _jwks(table: Table, trust: tuple[str, ...]) -> str | Path | dict[str, Any] | None:
    place = table.members.get("jwks")
    if place is None:
        return None
    if place.node.members is not None:
        document = _plain(place.node)
        try:
            IssuerKeys.read(msgspec.json.encode(document))
        except FetchFailed as error:
            place.wrong(str(error))
        return dict(document)
    text = place.text(what="a URL, a file, or the keys themselves")
    if text is not None and "://" in text:
        _check_url(place, text, trust)
        return text
    return None if text is None else place.path()


def _introspection(place: Place, trust: tuple[str, ...]) -> IntrospectionSettings:
    table = place.table()
    table.warn_unknown(INTROSPECTION_KEYS)
    if "client_id" not in table.members:
        place.wrong("needs a `client_id`")
    settings = IntrospectionSettings(
        client_id=table.text("client_id", ""),
        client_secret=read_secret(table, "client_secret"),
        private_key=read_private_key(table),
        algorithm=table.choice("algorithm", ALGORITHMS, "ES256"),
        method=table.choice("method", METHODS, BASIC),
        endpoint=table.text("endpoint", None),
    )
    if settings.endpoint is not None:
        _check_url(table.members["endpoint"], settings.endpoint, trust)
    has = [
        key for key in INTROSPECTION_KEYS if key.startswith(("client_secret", "private_key")) and key in table.members
    ]
    if not has:
        place.wrong("needs `client_secret_env` or `private_key_file`")
    if settings.client_secret is not None and settings.private_key is not None:
        place.wrong("has both a secret and a private key: use one")
    return settings


def _algorithms(table: Table) -> tuple[str, ...]:
    names = table.texts("algorithms")
    place = table.members.get("algorithms")
    if place is not None and place.node.items is not None and not place.node.items:
        place.wrong("must have one algorithm or more")
    for name in names:
        if place is not None and name not in KNOWN_ALGORITHMS:
            hint = nearest(name, KNOWN_ALGORITHMS)
            place.wrong(f"{quoted(name)} is not one of {', '.join(KNOWN_ALGORITHMS)}{hint}")
    return names


def _leeway(table: Table) -> float:
    leeway = table.seconds("leeway", LEEWAY, may_be_none=True)
    if leeway > MAX_LEEWAY:
        table.members["leeway"].wrong(f"must be {MAX_LEEWAY:g} or less")
    return leeway


def _tenant(table: Table) -> str:
    tenant = table.text("tenant", "")
    if tenant == "claim:" or (":" in tenant and not tenant.startswith("claim:")):
        table.members["tenant"].wrong("must be `claim:NAME`, `issuer`, or the name of a tenant")
    return tenant


def _one_or_more(table: Table, key: str) -> tuple[str, ...]:
    place = table.members.get(key)
    if place is None:
        return ()
    if place.node.items is not None:
        return place.texts()
    text = place.text(what="the name of a claim, or a list of these")
    return () if text is None else (text,)


def _check_url(place: Place, url: str, trust: tuple[str, ...]) -> None:
    try:
        locate(url, Reach.of_server(url, trust))
    except (UnsafeUrl, ValueError) as error:
        place.wrong(str(error))


def _plain(node: SourceNode) -> Any:
    if node.members is not None:
        return {key: _plain(member) for key, member in node.members.items()}
    return node.value if node.items is None else [_plain(item) for item in node.items]
