"""A private extension: a capability, a method and a notification of your own, in twenty lines."""

import trio

from callboard import Server, connect
from callboard.server import Extension

moods = Extension("com.example/moods", {"languages": ["en"]})
heard: list[object] = []


@moods.method("com.example/mood")
async def mood(text: str, exact: bool = False) -> dict[str, object]:
    """The signature says what the params must be; the result is an object."""
    sad = any(word in text.lower() for word in ("rain", "late", "lost"))
    return {"mood": "sad" if sad else "glad", "words": len(text.split()) if exact else None}


@moods.notification("notifications/com.example/felt")
def felt(params: object) -> None:
    heard.append(params)


server = Server("moods", version="1.0.0", extensions=[moods])


async def main() -> None:
    async with connect(server, extensions={"com.example/moods": {}}) as client:
        print("It rains:", (await client.request("com.example/mood", text="It rains"))["mood"])


if __name__ == "__main__":
    trio.run(main)
