"""The `initialize` handshake of a legacy session: the revision, and what either side can do."""

from callboard.actors.server.host import Host
from callboard.actors.server.offer import Offer
from callboard.actors.terms import Terms, kept_abilities, kept_info
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import Request
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import write_members
from callboard.codecs.revisions import (
    LEGACY,
    UNSET,
    InitializeRequestParams,
    InitializeResult,
    ResultMetaObject,
    ServerCapabilities,
    UnsetType,
    declares,
    read,
)
from callboard.errors import UnsupportedVersion


def agree(offer: Offer, request: Request, caller: Caller) -> tuple[Terms, ServerCapabilities]:
    """The terms of a session that *request* opens, and what the server declares in it: the revision that the client
    asks for, or else the latest legacy one.

    Raises `UnsupportedVersion` if the server speaks no legacy revision, `InvalidParams` for a malformed request.
    """
    spoken = LEGACY & offer.revisions
    members = request.members
    check_modelled(members)
    asked = read(max(LEGACY), InitializeRequestParams, write_members(members))
    if not spoken:
        raise UnsupportedVersion(asked.protocol_version, sorted(offer.revisions))
    revision = next((known for known in spoken if known == asked.protocol_version), max(spoken))
    params = read(revision, InitializeRequestParams, write_members(members))
    declared = offer.capabilities(revision)
    terms = Terms(
        revision=revision,
        capabilities=kept_abilities(revision, params.capabilities),
        client_info=kept_info(revision, params.client_info),
        caller=caller,
        log_level="info" if declares(declared, "logging") else None,
    )
    return terms, declared


def welcome(
    host: Host, terms: Terms, declared: ServerCapabilities, meta: ResultMetaObject | UnsetType
) -> InitializeResult:
    """The answer to `initialize`. *meta*: what the transport has to say beside what was agreed."""
    offer, rules = host.offer, host.rules
    said = offer.instructions if rules is None else offer.instructions_for(rules, terms.caller)
    return InitializeResult(
        protocol_version=terms.revision.value,
        capabilities=declared,
        server_info=offer.info,
        instructions=UNSET if said is None else said,
        meta=meta,
    )
