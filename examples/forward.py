"""Pass a call on to another server without decoding its arguments.

python examples/forward.py
"""

from msgspec import UNSET

from callboard.codecs.envelope import Request, decode, encode
from callboard.codecs.members import raw
from callboard.codecs.routing import read_route
from callboard.errors import PeerError

FRAME = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"weather__now","arguments":{"city":"Oslo"}}}'


def forward(frame: bytes, onward_id: int) -> tuple[str, bytes]:
    """Return the backend and the frame for it: another id, its own name for the tool, the same arguments."""
    request = decode(frame)
    if not isinstance(request, Request) or request.params is UNSET:
        raise SystemExit("not a call")
    server, _, name = (read_route(request).name or "").partition("__")
    return server, encode(Request(onward_id, request.method, {**request.params, "name": raw(name)}))


if __name__ == "__main__":
    print(*forward(FRAME, 7))
    try:
        decode(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}')
    except PeerError as error:
        print(error.code, error)
