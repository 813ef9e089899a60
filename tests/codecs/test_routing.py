"""The router's view: a few members read, the rest not so much as looked at."""

import pytest

from callboard.codecs.envelope import Notification, Request, decode
from callboard.codecs.routing import Route, read_route
from callboard.errors import InvalidParams, InvalidRequest, PeerError


def request(params: str) -> Request:
    message = decode(f'{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}'.encode())
    assert isinstance(message, Request)
    return message


def test_everything_a_router_needs_is_read() -> None:
    route = read_route(
        request(
            '{"name":"forecast","arguments":{"city":"Oslo"},"requestState":"s","_meta":{"progressToken":7,'
            '"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}'
        )
    )
    assert (route.name, route.uri, route.request_state) == ("forecast", None, "s")
    assert (route.progress_token, route.protocol_version) == (7, "2026-07-28")
    assert list(route.meta) == [
        "progressToken",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
    ]


def test_a_resource_is_found_by_its_uri() -> None:
    assert read_route(request('{"uri":"file:///a"}')).uri == "file:///a"


@pytest.mark.parametrize("message", [Notification("notifications/initialized"), Request(1, "ping")])
def test_a_message_without_params_goes_nowhere_in_particular(message: Request | Notification) -> None:
    assert read_route(message) == Route()


@pytest.mark.parametrize(
    ("text", "token"), [("1", 1), ('"1"', "1"), ('""', ""), ("9007199254740993", 2**53 + 1), (str(10**30), 10**30)]
)
def test_progress_tokens_keep_their_json_type(text: str, token: object) -> None:
    read = read_route(request(f'{{"_meta":{{"progressToken":{text}}}}}')).progress_token
    assert read == token
    assert type(read) is type(token)


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ('{"name":7}', InvalidParams),
        ('{"uri":null}', InvalidParams),
        ('{"requestState":{}}', InvalidParams),
        ('{"_meta":[]}', InvalidParams),
        ('{"_meta":{"progressToken":true}}', InvalidParams),
        ('{"_meta":{"progressToken":1.0}}', InvalidParams),
        ('{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}', InvalidParams),
        ('{"_meta":{"progressToken":1,"progressToken":2}}', InvalidRequest),
    ],
)
def test_a_member_of_the_wrong_type_is_refused_with_the_id(params: str, error: type[PeerError]) -> None:
    with pytest.raises(error) as refused:
        read_route(request(params))
    assert refused.value.request_id == 9


VERSION = '"io.modelcontextprotocol/protocolVersion":"2026-07-28"'


def test_what_a_client_says_every_time_is_the_same_but_for_a_token_that_stands_last() -> None:
    one, two = (read_route(request(f'{{"_meta":{{{VERSION},"progressToken":{token}}}}}')) for token in (1, 22))
    assert (one.progress_token, two.progress_token) == (1, 22)
    assert one.said == two.said == f"{{{VERSION}}}".encode()
    assert one.meta is two.meta


@pytest.mark.parametrize(
    "members",
    [
        '"a":{"b":1,"progressToken":7}',
        '"a":"x,\\"progressToken\\":7}"',
        '"a":[{"b":1,"progressToken":7}]',
        '"a,\\"progressToken":7',
    ],
)
def test_only_a_member_of_meta_itself_is_a_token(members: str) -> None:
    assert read_route(request(f'{{"_meta":{{{VERSION},{members}}}}}')).progress_token is None


@pytest.mark.parametrize("first", ["1", '"1"', "2"])
def test_a_second_token_at_the_end_is_refused_like_any_other(first: str) -> None:
    with pytest.raises(InvalidRequest):
        read_route(request(f'{{"_meta":{{"progressToken":{first},{VERSION},"progressToken":2}}}}'))


@pytest.mark.parametrize("token", ["01", "1e2", "1.0"])
def test_an_odd_token_at_the_end_is_refused_as_it_is_elsewhere(token: str) -> None:
    with pytest.raises(PeerError):
        read_route(request(f'{{"_meta":{{{VERSION},"progressToken":{token}}}}}'))
