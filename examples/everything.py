"""One server with everything that MCP's official conformance suite asks of a server.

Each handler is written once and serves every revision of the protocol. Names and texts are the suite's own.

python examples/everything.py
"""

import base64
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
import trio

from callboard import Audio, Context, Header, Image, InputRequired, Server, TextResourceContents, ToolError
from callboard.errors import InvalidParams
from callboard.server import Tasks
from callboard.testing import connect

server = Server(
    "everything",
    version="1.0.0",
    title="Everything",
    instructions="Each tool shows one thing that a server can do.",
    extensions=[Tasks(poll_interval=0.2)],
)

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
WAV: Final = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==")
MOMENT: Final = 0.05


# Results: text, images, audio, resources, or an error.


@server.tool
async def test_simple_text() -> str:
    """Answers with text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Answers with a picture."""
    return Image(PNG)


@server.tool
async def test_audio_content() -> Audio:
    """Answers with a sound."""
    return Audio(WAV)


@server.tool
async def test_embedded_resource() -> TextResourceContents:
    """Answers with a resource."""
    return TextResourceContents(
        uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content."
    )


@server.tool
async def test_multiple_content_types() -> list[str | Image | TextResourceContents]:
    """Answers with text, a picture and a resource."""
    data = TextResourceContents(
        uri="test://mixed-content-resource", mime_type="application/json", text='{"test":"data","value":123}'
    )
    return ["Multiple content types test:", Image(PNG), data]


@server.tool
async def test_error_handling() -> str:
    """Fails, and says so."""
    raise ToolError("This tool intentionally returns an error for testing")


# Arguments. The schema is derived from the signature, unless one is given.


@server.tool
async def test_x_mcp_header(region: Annotated[str, Header("Region")]) -> str:
    """Takes an argument that HTTP clients repeat in a header, so that a proxy can route by it.

    Args:
        region: Where to run.
    """
    return f"Runs in {region}"


CONTACT: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=CONTACT)
async def json_schema_2020_12_tool(contact: dict[str, Any]) -> str:
    """Takes what a schema of its own allows."""
    return f"Contact by {'phone' if 'phone' in contact else 'email'}"


# Notifications during a call: logging and progress.


@server.tool
async def test_tool_with_logging(*, ctx: Context) -> str:
    """Logs three times on the way."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", line)
        await trio.sleep(MOMENT)
    return "Tool with logging executed successfully"


@server.tool
async def test_tool_with_progress(*, ctx: Context) -> str:
    """Reports three times how far it is."""
    for percent in (0, 50, 100):
        await ctx.report(percent, total=100, message=f"Completed step {percent} of 100")
        await trio.sleep(MOMENT)
    return "Tool with progress executed successfully"


@server.tool
async def test_reconnection(*, ctx: Context) -> str:
    """Lets its client go while it works; the client comes back for the result."""
    await ctx.close_stream(retry=0.1)
    await trio.sleep(MOMENT)
    return "Reconnection test completed successfully"


@server.tool
async def test_logging_tool(*, ctx: Context) -> str:
    """Logs; only clients with a fitting log level get the messages."""
    await ctx.log("info", "Unheard, unless asked for")
    return "Logged"


# Requests to the client: elicitation (a form for the user), sampling (the client's model), roots.


@attrs.frozen
class Account:
    username: str
    email: str


@attrs.frozen
class Profile:
    """Every kind of field, each with a default."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


CHOICES: Final = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}],
        },
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]},
        },
    },
}
"""Every kind of choice: the third is spelled as the older revisions do, which a class cannot express."""


@server.tool
async def test_sampling(prompt: str, *, ctx: Context) -> str:
    """Asks the client's model.

    Args:
        prompt: What to ask.
    """
    reply = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {reply.text}"


@server.tool
async def test_elicitation(message: str, *, ctx: Context) -> str:
    """Asks the user for an account."""
    account = await ctx.elicit(message, Account)
    return f"User response: {account.username} <{account.email}>"


@server.tool
async def test_elicitation_sep1034_defaults(*, ctx: Context) -> str:
    """Asks the user by a form that is filled in already."""
    profile = await ctx.elicit("Please review your profile", Profile)
    return f"Elicitation completed: {profile}"


@server.tool
async def test_elicitation_sep1330_enums(*, ctx: Context) -> str:
    """Asks the user to choose, in every way there is."""
    chosen = await ctx.elicit("Please choose", CHOICES)
    return f"Elicitation completed: {chosen}"


@server.tool
async def test_missing_capability(*, ctx: Context) -> str:
    """Asks the client's model; a client that has none is told what it lacks."""
    reply = await ctx.sample("Are you there?", max_tokens=10)
    return reply.text


@server.tool
async def test_streaming_elicitation(*, ctx: Context) -> str:
    """Reports, and then asks."""
    await ctx.report(1, total=2, message="About to ask")
    account = await ctx.elicit("Who are you?", Account)
    return f"Hello, {account.username}!"


# The same questions by name. Modern clients answer in rounds, and see these keys.


@attrs.frozen
class Name:
    name: str


@attrs.frozen
class Confirmation:
    ok: bool


@attrs.frozen
class Colour:
    colour: str


@server.tool
async def test_input_required_result_elicitation(*, ctx: Context) -> str:
    """Asks the user."""
    user = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {user.name}!"


@server.tool
async def test_input_required_result_sampling(*, ctx: Context) -> str:
    """Asks the client's model."""
    reply = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {reply.text}"


@server.tool
async def test_input_required_result_list_roots(*, ctx: Context) -> str:
    """Asks for the client's folders."""
    roots = await ctx.roots(key="client_roots")
    return f"Roots: {', '.join(root.uri for root in roots)}"


@server.tool
async def test_input_required_result_multiple_inputs(*, ctx: Context) -> str:
    """Asks all three at once."""
    user, greeting, roots = await ctx.ask_all(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Write a short greeting.", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{greeting.text} {user.name} works in {len(roots)} folders."


@server.tool
async def test_input_required_result_multi_round(*, ctx: Context) -> str:
    """Asks one thing after the other."""
    user = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    favourite = await ctx.elicit(f"Step 2: {user.name}, which colour do you like?", Colour, key="step2")
    return f"{user.name} likes {favourite.colour}."


@server.tool
async def test_input_required_result_capabilities(*, ctx: Context) -> str:
    """Asks the client's model if it has one, or else its user."""
    if ctx.client_can("sampling"):
        reply = await ctx.sample("What is your name?", max_tokens=50, key="model_name")
        return f"Hello, {reply.text}!"
    user = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {user.name}!"


@server.tool
async def test_input_required_result_tampered_state(*, ctx: Context) -> str:
    """Asks, and goes on only with the state that it gave away, sealed."""
    confirmation = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return "Confirmed" if confirmation.ok else "Not confirmed"


@server.tool
async def test_input_required_result_request_state(*, ctx: Context) -> str | InputRequired:
    """Asks without waiting: it runs again when the answer is there, perhaps after a restart of the server."""
    question = ctx.elicit("Please confirm", Confirmation, key="confirm")
    confirmation = ctx.answered(question)
    if confirmation is None:
        return InputRequired([question], state={"asked": True})
    return "state-ok" if confirmation.ok and ctx.state == {"asked": True} else "Not confirmed"


# Tasks: calls that go on after their request was answered by a handle.


@attrs.frozen
class Deletion:
    confirm: bool


@server.tool
async def greet(name: str) -> str:
    """Greets, and is never a task."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Takes as long as it is told; a client that knows no tasks waits."""
    await trio.sleep(seconds)
    return f"computed {label} in {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fails: the task is completed, and its result says so."""
    await trio.sleep(MOMENT)
    raise ToolError("the job failed")


@server.tool(task="required")
async def protocol_error_job() -> str:
    """Ends with an error of the protocol: the task has failed."""
    await trio.sleep(MOMENT)
    raise InvalidParams("the job met an error of the protocol")


@server.tool(task="required")
async def confirm_delete(filename: str, *, ctx: Context) -> str:
    """Asks first; the question waits until the client asks for the task."""
    given = await ctx.elicit(f"Delete {filename}?", Deletion)
    return f"deleted {filename}" if given.confirm else f"kept {filename}"


@server.tool(task="required")
async def multi_input(*, ctx: Context) -> str:
    """Asks two questions at once."""
    first, second = await ctx.ask_all(ctx.elicit("Your name?", Name), ctx.elicit("Your pet's name?", Name))
    return f"{first.name} and {second.name}"


@server.tool(task="optional")
async def test_tool_with_task(*, ctx: Context) -> str:
    """Asks for a name, and then becomes a task."""
    given = await ctx.elicit("Your name?", Name, key="name")
    await trio.sleep(4 * MOMENT)
    return f"Hello, {given.name}!"


# Skills: folders with instructions for a model.

server.skills(Path(__file__).with_name("skills"))


# Tools and prompts may change at run time. Subscribed clients are notified.


@server.tool
async def test_trigger_tool_change() -> str:
    """Says that the list has changed, as if a tool had come and gone. One that really came would be known to one worker
    only, if several serve."""
    server.notify_changed("tools")
    return "The list of tools has changed"


@server.tool
async def test_trigger_prompt_change() -> str:
    """The same for prompts."""
    server.notify_changed("prompts")
    return "The list of prompts has changed"


# Resources: one URI each, or many by a template.


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text that stays the same."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that stays the same."""
    return PNG


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text that clients may watch."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template_data(id: str) -> dict[str, Any]:
    """The data of any id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts: text and content of the user, or messages of both sides.


@server.prompt
async def test_simple_prompt() -> str:
    """One message."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """One message with two arguments in it.

    Args:
        arg1: The first.
        arg2: The second.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
async def complete_arg1(value: str) -> list[str]:
    """What the user may be about to type."""
    return [word for word in ("test", "testValue1", "testing") if word.startswith(value)]


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[TextResourceContents | str]:  # noqa: N803 - as it is sent
    """A resource, and what to do with it."""
    resource = TextResourceContents(
        uri=resourceUri, mime_type="text/plain", text="Embedded resource content for testing."
    )
    return [resource, "Please process the embedded resource above."]


@server.prompt
async def test_prompt_with_image() -> list[Image | str]:
    """A picture, and what to do with it."""
    return [Image(PNG), "Please analyze the image above."]


@attrs.frozen
class Background:
    context: str


@server.prompt
async def test_input_required_result_prompt(*, ctx: Context) -> str:
    """Asks the user before it says anything."""
    background = await ctx.elicit("What context should the prompt use?", Background, key="user_context")
    return f"Use the following context: {background.context}"


async def main() -> None:
    """Try the server without leaving this process."""
    async with connect(server) as client:
        listed = await client.request("tools/list")
        result = await client.call("test_simple_text")
    print(f"{len(listed['tools'])} tools, the first of which says: {result['content'][0]['text']}")


if __name__ == "__main__":
    trio.run(main)
