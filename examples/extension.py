"""A private extension: a capability, a method and notifications of your own, at a server and at its client."""

import trio

from callboard import Context, Extension, Server, connect

moods = Extension("com.example/moods", {"languages": ["en"]})
heard: list[object] = []


@moods.method("com.example/mood")
async def mood(text: str, exact: bool = False, *, ctx: Context) -> dict[str, object]:
    """The signature says what the params must be; the result is an object."""
    sad = any(word in text.lower() for word in ("rain", "late", "lost"))
    if sad:
        await ctx.notify("notifications/com.example/clouds", over=text)
    return {"mood": "sad" if sad else "glad", "words": len(text.split()) if exact else None}


@moods.notification("notifications/com.example/felt")
def felt(params: object) -> None:
    heard.append(params)


server = Server("moods", version="1.0.0", extensions=[moods])

watch = Extension("com.example/moods")  # what a client declares, and hears


@watch.notification("notifications/com.example/clouds")
def clouds(params: dict[str, str]) -> None:
    print("Clouds over:", params["over"])


async def main() -> None:
    async with connect(server, extensions=[watch]) as client:
        print("It rains:", (await client.request("com.example/mood", text="It rains"))["mood"])
        await client.notify("notifications/com.example/felt", how="fine")


if __name__ == "__main__":
    trio.run(main)
