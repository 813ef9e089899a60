"""The client that the official conformance suite examines: `python -m tests.conformance.client URL`.

The suite starts a server for each scenario, says by `MCP_CONFORMANCE_SCENARIO` which one it is, and looks at what this
client does. Everything is done by `callboard.connect`, as any program would; what differs is only what is asked.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import trio

from callboard.client import connect
from callboard.codecs.oauth.addresses import Reach
from callboard.codecs.revisions import UNSET, ElicitRequestFormParams, ElicitRequestURLParams
from callboard.errors import CallboardError
from callboard.oauth import (
    AuthorizationCode,
    ClientCredentials,
    EnterpriseManaged,
    Grant,
    Headless,
    Identity,
    OAuth,
    RegisteredClient,
    WorkloadIdentity,
)
from callboard.transports.client.fetch import Fetcher

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The client id that the suite looks for. It never resolves, and nobody here fetches it."""

Scenario: TypeAlias = Callable[[str], Awaitable[None]]
Context: TypeAlias = Mapping[str, Any]


def context() -> Context:
    """What the suite says about its scenario."""
    given: Context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return given


async def visit(url: str) -> str:
    """The user: goes where he is sent, and gives leave to everything."""
    fetched = await Fetcher(Reach(loopback=True)).get(url)
    return (fetched.head.get(b"location") or b"").decode()


def by_code(registered: RegisteredClient | None = None) -> Grant:
    return AuthorizationCode(
        consent=Headless(visit), identity=Identity(registered=registered, document=DOCUMENT, name="conformance")
    )


def registered() -> RegisteredClient:
    given = context()
    return RegisteredClient(
        client_id=given["client_id"], client_secret=given.get("client_secret"), issuer=given.get("issuer")
    )


GRANTS: Final[Mapping[str, Callable[[], Grant]]] = {
    "auth/pre-registration": lambda: by_code(registered()),
    "auth/client-credentials-basic": lambda: ClientCredentials(
        client_id=context()["client_id"], client_secret=context()["client_secret"]
    ),
    "auth/client-credentials-jwt": lambda: ClientCredentials(
        client_id=context()["client_id"],
        private_key=context()["private_key_pem"],
        algorithm=context()["signing_algorithm"],
    ),
    "auth/enterprise-managed-authorization": lambda: EnterpriseManaged(
        client=registered(),
        idp_token_endpoint=context()["idp_token_endpoint"],
        idp_client_id=context()["idp_client_id"],
        id_token=context()["idp_id_token"],
    ),
    "auth/wif-jwt-bearer": lambda: WorkloadIdentity(client=registered(), assertion=context()["valid_jwt"]),
}
"""How leave is had, where it is not by a user."""


def accept(params: ElicitRequestFormParams | ElicitRequestURLParams) -> Mapping[str, Any] | None:
    """A user who takes every default, and says yes to whatever has none."""
    if isinstance(params, ElicitRequestURLParams):
        return None
    fields: Mapping[str, Any] = params.requested_schema.properties
    defaults = {name: getattr(schema, "default", UNSET) for name, schema in fields.items()}
    return {name: True if value is UNSET else value for name, value in defaults.items()}


async def authorize(url: str) -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    auth = OAuth(grant=GRANTS.get(scenario, by_code)())
    async with connect(url, auth=auth) as client:
        await client.tools()
        await client.call("test-tool")


async def list_tools(url: str) -> None:
    async with connect(url, elicitation=accept, roots=["file:///work"]) as client:
        await client.tools()


async def add_numbers(url: str) -> None:
    async with connect(url) as client:
        await client.tools()
        await client.call("add_numbers", a=5, b=3)


async def take_defaults(url: str) -> None:
    async with connect(url, elicitation=accept) as client:
        await client.tools()
        await client.call("test_client_elicitation_defaults")


async def reconnect(url: str) -> None:
    async with connect(url) as client:
        await client.tools()
        await client.call("test_reconnection")


async def echo_state(url: str) -> None:
    async with connect(url, elicitation=lambda _: {"confirmed": True}) as client:
        await client.tools()
        for tool in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
            await client.call(tool)


async def standard_headers(url: str) -> None:
    async with connect(url) as client:
        for tool in await client.tools():
            await client.call(tool.name)
        for resource in await client.resources():
            await client.read(resource.uri)
        for prompt in await client.prompts():
            await client.prompt(prompt.name)


async def custom_headers(url: str) -> None:
    async with connect(url) as client:
        await client.tools()
        for call in context()["toolCalls"]:
            await client.call_with(call["name"], call["arguments"])


async def valid_tools(url: str) -> None:
    async with connect(url) as client:
        for tool in await client.tools():
            await client.call_with(tool.name, {"region": "test"})


async def keep_schema(url: str) -> None:
    async with connect(url) as client:
        tools = {tool.name: tool for tool in await client.tools()}
        schema = tools["json_schema_2020_12_tool"].input_schema
        await client.call("json_schema_echo", schema=schema)


async def list_skills(url: str) -> None:
    async with connect(url) as client:
        await client.skills()


async def use_skill(url: str) -> None:
    async with connect(url) as client:
        for entry in await client.skills():
            skill = await client.skill(entry)
            for uri in entry.files or ():
                await skill.read(uri)


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "initialize": list_tools,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": take_defaults,
    "sse-retry": reconnect,
    "request-metadata": list_tools,
    "sep-2322-client-request-state": echo_state,
    "http-standard-headers": standard_headers,
    "http-custom-headers": custom_headers,
    "http-invalid-tool-headers": valid_tools,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": keep_schema,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": use_skill,
    "sep-2640-client-verify-size": use_skill,
    "sep-2640-client-verify-frontmatter": use_skill,
}


def main() -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    try:
        trio.run(SCENARIOS.get(scenario, authorize if scenario.startswith("auth/") else list_tools), sys.argv[-1])
    except CallboardError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
