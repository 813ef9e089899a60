"""A server that misbehaves on demand: a program of its own, spoken to over its pipes. Nothing but the standard library.

    python -I -S backend.py NAME JOURNAL [--legacy] [--record] [--stay] [--fault HOW]

Each line of the journal is one fact, written at once, so that a killed process has said what it did:
`{"started": PID}`, then `{"ran": KEY}` for every execution; with `--record` also all that it was given and told. Tools
take a `key`, which comes back in the result with the server's name, so that an answer tells where it comes from. With
`--stay` it does not end when its input does.
"""

import contextlib
import heapq
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
URI: Final = "nemesis://"
CHUNK: Final = 65_536

TOOLS: Final = {
    "echo": "Answers, after `pause` seconds and `steps` reports, with `pad` bytes more than it must.",
    "meet": "Answers when `count` calls of `hold` have come in.",
    "hold": "Never answers.",
    "tell": "Says `count` times that a resource changed, each time another one below the one that is followed.",
    "stream": "Says the same, `rate` times a second, after it has answered.",
    "ask": "Asks the client's user, and answers when it is answered.",
    "again": "Kills the server the first time, and answers the second: it says of itself that it may be repeated.",
    "fault": "Misbehaves from now on, in the way that `how` says.",
}


class Backend:
    """One server: what it was asked, when it answers, and what is wrong with it."""

    def __init__(self, name: str, journal: str, *flags: str) -> None:
        self.name, self.journal, self.flags = name, journal, flags
        self.is_legacy, self.is_recording = "--legacy" in flags, "--record" in flags
        self.fault = flags[flags.index("--fault") + 1] if "--fault" in flags else ""
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._listening: dict[str, int | str | None] = {}  # subscriptions: what they follow, and their ids
        self._asked = self._held = 0
        self._questions: dict[str, Callable[[], None]] = {}
        self._meeting: list[tuple[int, Callable[[], None]]] = []

    def run(self) -> None:
        self.note(started=os.getpid())
        if self.is_recording:
            self.note(environment=dict(os.environ), command=sys.orig_argv, group=os.getpgid(0))
        self.misbehave(self.fault, {})
        rest = b""
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            if select.select([0], [], [], wait)[0]:
                data = os.read(0, CHUNK)
                if not data:
                    if "--stay" in self.flags:
                        stay()
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in filter(None, lines):
                    if self.is_recording:
                        self.note(heard=line.decode())
                    self._hear(json.loads(line))
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()

    def note(self, **fact: object) -> None:
        os.write(self._journal, json.dumps({"backend": self.name, "at": time.monotonic(), **fact}).encode() + b"\n")

    # What it says.

    def say(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        if self.fault == "drip":
            for at in range(len(line)):
                write(line[at : at + 1])
                time.sleep(0.0005)  # the slowness is what it is for
        else:
            write(line)

    def answer(self, request_id: object, **result: Any) -> None:
        if self.fault == "hang":
            return
        if self.fault == "other_id":
            request_id = f"{request_id}-of-another"
        if self.fault == "no_answer":
            write(b'{"jsonrpc":"2.0","id":%d,"result":[}\n' % request_id if isinstance(request_id, int) else b"{\n")
            return
        if not self.is_legacy:
            result = {"resultType": "complete", **result}
        for _ in range(2 if self.fault == "twice" else 1):
            self.say(id=request_id, result=result)

    def refuse(self, request_id: object, code: int, message: str) -> None:
        self.say(id=request_id, error={"code": code, "message": message})

    # What it hears.

    def _hear(self, message: dict[str, Any]) -> None:
        request_id, method = message.get("id"), message.get("method", "")
        params = message.get("params", {})
        if request_id is None or not method:
            if method == "notifications/cancelled":
                self.note(cancelled=params.get("requestId"))
            elif not method:  # an answer to a question of ours
                self._questions.pop(str(request_id), lambda: None)()
            return
        self._asked += 1
        known = {
            "tools/call": self._call,
            "resources/read": self._read,
            "subscriptions/listen": self._listen,
            "resources/subscribe": self._subscribe,
        }
        if method in known:
            known[method](request_id, params)
        else:
            self._plain(request_id, method)

    def _plain(self, request_id: object, method: str) -> None:
        has = {"tools": {}, "resources": {"subscribe": True}}
        if method == "server/discover" and not self.is_legacy:
            self.answer(request_id, supportedVersions=[MODERN], capabilities=has, ttlMs=0, cacheScope="private")
        elif method == "initialize" and self.is_legacy:
            info = {"name": self.name, "version": "1"}
            self.answer(request_id, protocolVersion=LEGACY, capabilities=has, serverInfo=info)
        elif method == "tools/list":
            schema = {"type": "object"}
            tools: list[dict[str, Any]] = [
                {"name": name, "description": text, "inputSchema": schema} for name, text in TOOLS.items()
            ]
            next(tool for tool in tools if tool["name"] == "again")["annotations"] = {"idempotentHint": True}
            self.answer(request_id, tools=tools, ttlMs=0, cacheScope="private")
        elif method == "resources/list":
            uris = [{"uri": f"{URI}{self.name}", "name": self.name}]
            self.answer(request_id, resources=uris, ttlMs=0, cacheScope="private")
        elif method == "resources/templates/list":
            forms = [{"uriTemplate": f"{URI}{self.name}/{{key}}", "name": "one"}]
            self.answer(request_id, resourceTemplates=forms, ttlMs=0, cacheScope="private")
        elif method in ("ping", "resources/unsubscribe"):
            self.answer(request_id)
        else:
            self.refuse(request_id, -32601, "not here")

    def _call(self, request_id: object, params: dict[str, Any]) -> None:
        tool, given = params.get("name"), params.get("arguments", {})
        key = given.get("key", "")
        self.note(ran=key, tool=tool)
        text = json.dumps({"key": key, "by": self.name, "pad": "x" * given.get("pad", 0)})
        content = [{"type": "text", "text": text}]
        if tool == "echo":
            token = params.get("_meta", {}).get("progressToken")
            for step in range(given.get("steps", 0) if token is not None else 0):
                self.say(method="notifications/progress", params={"progressToken": token, "progress": step})
            if self.fault == "crash":
                os._exit(7)
            self._later(given.get("pause", 0.0), lambda: self.answer(request_id, content=content))
        elif tool == "fault":
            self.answer(request_id, content=content)
            self.misbehave(given.get("how", ""), given)
        elif tool == "again":
            if self._is_first(key):
                os._exit(9)
            self.answer(request_id, content=content)
        elif tool in ("hold", "meet"):
            self._held += tool == "hold"
            if tool == "meet":
                self._meeting.append((given["count"], lambda: self.answer(request_id, content=content)))
            self._meet()
        elif tool == "tell":
            self._tell(given.get("start", 0), given.get("count", 1), given.get("different", 1))
            self.answer(request_id, content=content)
        elif tool == "stream":
            self.answer(request_id, content=content)
            self._stream(given.get("count", 1), given.get("different", 1), given.get("rate", 100))
        elif tool == "ask":
            self._ask(request_id, params, content)

    def _meet(self) -> None:
        for one in [one for one in self._meeting if one[0] <= self._held]:
            self._meeting.remove(one)
            one[1]()

    def _read(self, request_id: object, params: dict[str, Any]) -> None:
        """Reads. What ends with `-lost` kills it the first time, and what ends with `-fatal` each time."""
        uri = params.get("uri", "")
        key = uri.rpartition("/")[2]
        self.note(read=key)
        if key.endswith("-fatal") or (key.endswith("-lost") and self._is_first(key)):
            os._exit(9)
        text = json.dumps({"key": key, "by": self.name})
        self.answer(request_id, contents=[{"uri": uri, "text": text}], ttlMs=0, cacheScope="private")

    def _is_first(self, key: str) -> bool:
        try:
            os.close(os.open(f"{self.journal}.{key}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _listen(self, request_id: int | str, params: dict[str, Any]) -> None:
        chosen = params.get("notifications", {})
        for uri in chosen.get("resourceSubscriptions", ()):
            self._listening[uri] = request_id
        about = {"io.modelcontextprotocol/subscriptionId": request_id}
        self.say(method="notifications/subscriptions/acknowledged", params={"notifications": chosen, "_meta": about})

    def _subscribe(self, request_id: object, params: dict[str, Any]) -> None:
        self._listening[params["uri"]] = None
        self.answer(request_id)

    def _tell(self, start: int, count: int, different: int) -> None:
        for uri, request_id in self._listening.items():
            about = {"_meta": {"io.modelcontextprotocol/subscriptionId": request_id}} if request_id is not None else {}
            for number in range(start, start + count):
                changed = {"uri": f"{uri}/{number % different}", **about}
                self.say(method="notifications/resources/updated", params=changed)

    def _stream(self, count: int, different: int, rate: int) -> None:
        """Tell in lumps, each a hundredth of a second after the one before."""
        lump = max(1, rate // 100)
        for start in range(0, count, lump):
            few = min(lump, count - start)
            self._later(start / rate, lambda start=start, few=few: self._tell(start, few, different))  # type: ignore[misc]

    def _ask(self, request_id: object, params: dict[str, Any], content: list[dict[str, str]]) -> None:
        """A form with nothing in it: a question on its own to a legacy client, an answer with a question to another."""
        form = {"mode": "form", "message": "Really?", "requestedSchema": {"type": "object", "properties": {}}}
        if self.is_legacy:
            name = f"q{self._asked}"
            self._questions[name] = lambda: self.answer(request_id, content=content)
            self.say(id=name, method="elicitation/create", params=form)
        elif "inputResponses" in params:
            self.answer(request_id, content=content)
        else:
            question = {"method": "elicitation/create", "params": form}
            self.answer(request_id, resultType="input_required", inputRequests={"q": question}, requestState="s")

    def _later(self, pause: float, act: Callable[[], None]) -> None:
        if pause <= 0:
            act()
        else:
            heapq.heappush(self._due, (time.monotonic() + pause, self._asked, act))

    # What is wrong with it.

    def misbehave(self, how: str, given: dict[str, Any]) -> None:
        """Some faults are an act, the others last: what is said from now on is spoilt by them."""
        self.fault = how
        acts: dict[str, Callable[[dict[str, Any]], None]] = {
            "exit": lambda _: os._exit(7),
            "flood": self._flood,
            "garbage": self._garbage,
            "giant": self._giant,
            "deaf": lambda _: deaf(),
            "orphan": lambda _: self._orphan(),
            "mute": lambda _: os.close(1),
            "complain": lambda given: self._flood({**given, "of": "newlines"}, 2),
            "talk": lambda given: self._flood({**given, "of": "words"}, 2),
            "daemon": lambda _: self._daemon(),
        }
        if how in acts:
            acts[how](given)

    def _flood(self, given: dict[str, Any], to: int = 1) -> None:
        """As much as fits through the pipe, for so many seconds; nothing is read meanwhile."""
        line = json.dumps(
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 60}}
        )
        lumps = {
            "lines": (line.encode() + b"\n") * (CHUNK // len(line)),
            "newlines": b"\n" * CHUNK,
            "words": (b"A server has a lot to say on standard error. " * 22 + b"\n") * (CHUNK // 1000),
            "junk": b"\xff{[,\n" * (CHUNK // 5),
            "long": b'{"jsonrpc":"2.0","method":"x","params":{"y":"%s"}}\n' % (b"x" * CHUNK),
        }
        lump = lumps[given.get("of", "lines")]
        until = time.monotonic() + given.get("seconds", 1.0)
        while time.monotonic() < until:
            write(lump, to)

    def _garbage(self, _: dict[str, Any]) -> None:
        """Lines that are no messages, and messages that are no answers to anything."""
        for line in (
            *(b"not json", b"{", b"[]", b"[1,2]", b"\xff\xfe\x00", b"null", b"1e400", b'{"jsonrpc":"2.0"}', b""),
            b'{"jsonrpc":"2.0","id":999999999,"result":{}}',
            b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}',
            b'{"jsonrpc":"2.0","id":true,"result":{}}',
            b'{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
            b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":77,"progress":"far"}}',
            b'{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{}}',
            b"[" * 5000 + b"]" * 5000,
        ):
            write(line + b"\n")

    def _giant(self, given: dict[str, Any]) -> None:
        """One line that does not end."""
        for _ in range(given.get("bytes", 1 << 30) // CHUNK):
            write(b"x" * CHUNK)
        write(b"\n")

    def _orphan(self) -> None:
        """Dies, and leaves a child behind that keeps the output open."""
        if os.fork() == 0:
            self.note(orphan=os.getpid())
            signal.pause()
        os._exit(7)

    def _daemon(self) -> None:
        """Leaves a child in a session of its own, which holds no pipe of the server and ends by itself never."""
        if os.fork() == 0:
            os.setsid()
            self.note(daemon=os.getpid())
            for descriptor in range(3):
                os.close(descriptor)
            stay()


def write(data: bytes, to: int = 1) -> None:
    """All of it, however long the other side takes."""
    while data:
        data = data[os.write(to, data) :]


def deaf() -> None:
    """Lives, and reads nothing any more."""
    while True:
        signal.pause()


def stay() -> None:
    """Lives on, whatever it is asked to do."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    deaf()


def main(name: str, journal: str, *flags: str) -> None:
    with contextlib.suppress(OSError, KeyboardInterrupt):  # nobody reads any more, or it was closed on purpose
        Backend(name, journal, *flags).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
