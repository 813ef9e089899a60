"""How peers learn about each other: the legacy handshake and the modern discovery."""

from collections.abc import Sequence
from typing import ClassVar

from callboard.codecs.revisions.base import CacheableResult, Implementation, RequestParams, Result
from callboard.codecs.revisions.capabilities import ClientCapabilities, ServerCapabilities
from callboard.codecs.revisions.model import UNSET, UnsetType, model
from callboard.codecs.revisions.revision import LEGACY, MODERN, Revisions


@model(kw_only=True)
class InitializeRequestParams(RequestParams):
    known: ClassVar[Revisions] = LEGACY

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


@model(kw_only=True)
class InitializeResult(Result):
    known: ClassVar[Revisions] = LEGACY

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | UnsetType = UNSET


@model(kw_only=True)
class DiscoverResult(CacheableResult):
    known: ClassVar[Revisions] = MODERN

    supported_versions: Sequence[str]
    capabilities: ServerCapabilities
    instructions: str | UnsetType = UNSET
