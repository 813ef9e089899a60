"""An HTTP API on a free port, in the test's own process, and a document for it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import attrs
import trio

JSON = "application/json"


@attrs.frozen
class Asked:
    """A request, as the API has got it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


@attrs.frozen
class Told:
    """What it answers."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: tuple[str, ...] = ()


Answers: TypeAlias = Callable[[Asked], Told]


def told(value: Any, status: int = 200) -> Told:
    return Told(status, json.dumps(value).encode())


@asynccontextmanager
async def served_api(answers: Answers) -> AsyncIterator[tuple[str, list[Asked]]]:
    """Its URL, and what it was asked so far."""
    asked: list[Asked] = []

    async def serve(stream: trio.SocketStream) -> None:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                piece = await stream.receive_some()
                if not piece:
                    return
                data += piece
            head, _, data = data.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            size = int(headers.get("content-length", 0))
            while len(data) < size:
                data += await stream.receive_some()
            body, data = data[:size], data[size:]
            method, target, _ = first.split(" ")
            asked.append(Asked(method, target, headers, body))
            found = answers(asked[-1])
            lines = [f"HTTP/1.1 {found.status} X", f"content-length: {len(found.body)}", *found.headers]
            if found.kind:
                lines.append(f"content-type: {found.kind}")
            await stream.send_all("\r\n".join([*lines, "", ""]).encode() + found.body)

    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(_serve, serve)
        port = listeners[0].socket.getsockname()[1]
        yield f"http://127.0.0.1:{port}", asked
        nursery.cancel_scope.cancel()


async def _serve(serve: Any, *, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
    async def quietly(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await serve(stream)

    await trio.serve_tcp(quietly, 0, host="127.0.0.1", task_status=task_status)


def pet_store(version: str = "3.1.0") -> dict[str, Any]:
    """A document like that of the pet store, written anew."""
    pet = {"$ref": "#/components/schemas/Pet"}
    pets = {"type": "array", "items": pet}
    error = {"description": "no", "content": {JSON: {"schema": {"type": "object"}}}}

    def answered(schema: Any) -> dict[str, Any]:
        return {"200": {"description": "ok", "content": {JSON: {"schema": schema}}}, "default": error}

    return {
        "openapi": version,
        "info": {"title": "Pet store", "version": "1.2"},
        "servers": [{"url": "/api/{version}", "variables": {"version": {"default": "v1"}}}],
        "paths": {
            "/pets": {
                "get": {
                    "operationId": "listPets",
                    "summary": "List pets",
                    "description": "All pets of a kind.",
                    "parameters": [
                        {"name": "kind", "in": "query", "schema": {"type": "string", "enum": ["cat", "dog"]}},
                        {"name": "tags", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                        {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                        {"$ref": "#/components/parameters/Limit"},
                        {"name": "X-Request-Id", "in": "header", "schema": {"type": "string"}},
                        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
                    ],
                    "responses": answered(pets),
                },
                "post": {
                    "operationId": "create pet!",
                    "summary": "Create a pet",
                    "requestBody": {"required": True, "content": {JSON: {"schema": pet}}},
                    "responses": {"201": {"description": "made", "content": {JSON: {"schema": pet}}}},
                },
            },
            "/pets/{petId}": {
                "parameters": [
                    {
                        "name": "petId",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string"},
                        "description": "Which",
                    }
                ],
                "get": {"operationId": "getPet", "responses": answered(pet)},
                "delete": {"responses": {"204": {"description": "gone"}}},
                "put": {
                    "operationId": "setPet",
                    "requestBody": {
                        "content": {
                            JSON: {
                                "schema": {
                                    "type": "object",
                                    "properties": {"petId": {"type": "integer"}, "name": {"type": "string"}},
                                    "required": ["name"],
                                }
                            }
                        }
                    },
                    "responses": {"204": {"description": "set"}},
                },
            },
            "/pets/{petId}/photo": {
                "parameters": [{"name": "petId", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "get": {
                    "operationId": "photo",
                    "responses": {"200": {"description": "ok", "content": {"image/png": {}}}},
                },
                "post": {
                    "operationId": "upload",
                    "requestBody": {"required": True, "content": {"image/png": {}}},
                    "responses": {"204": {"description": "ok"}},
                },
            },
            "/bulk": {
                "post": {
                    "operationId": "bulk",
                    "requestBody": {"content": {JSON: {"schema": pets}}},
                    "responses": {"202": {"description": "later"}},
                }
            },
        },
        "components": {
            "parameters": {
                "Limit": {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100}}
            },
            "schemas": {
                "Pet": {
                    "type": "object",
                    "required": ["name", "id"],
                    "properties": {
                        "id": {"type": "integer", "readOnly": True},
                        "name": {"type": "string", "description": "What it is called"},
                        "secret": {"type": "string", "writeOnly": True},
                        "parent": {"$ref": "#/components/schemas/Pet"},
                        "tag": {"type": "string", "nullable": True}
                        if version < "3.1"
                        else {"type": ["string", "null"]},
                    },
                }
            },
        },
    }
