"""What goes in as a message comes out as the same message, and the payload as the same bytes."""

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from msgspec import UNSET

from callboard.codecs.envelope import Envelope, Error, Notification, Request, Result, decode, encode
from callboard.codecs.members import raw
from callboard.errors import InvalidParams, InvalidRequest, ParseError, PeerError
from tests.codecs.strategies import messages, spell, spellings

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":1.50,"s":"\\u0041"}}}'


def test_a_request_keeps_its_id_method_and_raw_params() -> None:
    request = decode(CALL)
    assert isinstance(request, Request)
    assert (request.id, request.method) == (1, "tools/call")
    assert request.params is not UNSET
    assert bytes(request.params["arguments"]) == b'{"n":1.50,"s":"\\u0041"}'


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (CALL, Request),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping"}', Request),
        (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', Notification),
        (b'{"jsonrpc":"2.0","id":0,"result":{}}', Result),
        (b'{"jsonrpc":"2.0","id":-3,"error":{"code":-32602,"message":"no","data":[1, 2]}}', Error),
        (b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}', Error),
    ],
)
def test_every_kind_is_told_apart_and_written_back_byte_for_byte(frame: bytes, kind: type) -> None:
    message = decode(frame)
    assert type(message) is kind
    assert encode(message) == frame


def test_payload_bytes_survive_a_new_id_and_a_new_name_untouched() -> None:
    odd = b'{ "a" : 1.50 , "b":"\\u0041\\/" , "c":[1e2 ,\t-0.0] }'
    request = decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x__y","arguments":%b}}' % odd)
    assert isinstance(request, Request)
    assert request.params is not UNSET
    forwarded = encode(attrs.evolve(request, id="b-7", params={**request.params, "name": raw("y")}))
    assert forwarded == b'{"jsonrpc":"2.0","id":"b-7","method":"tools/call","params":{"name":"y","arguments":%b}}' % odd


def test_error_data_survives_untouched() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":{ "x" : 1.0 }}}'
    assert encode(decode(frame)) == frame


@given(messages, spellings)
def test_any_message_in_any_spelling_round_trips(message: dict[str, Any], spelling: dict[str, Any]) -> None:
    assert json.loads(encode(decode(spell(message, **spelling)))) == message


@given(messages)
def test_a_compact_message_comes_back_byte_for_byte(message: dict[str, Any]) -> None:
    frame = spell(message)
    once = encode(decode(frame))
    assert encode(decode(once)) == once


def test_ids_keep_their_json_type() -> None:
    def request_id(text: str) -> object:
        message = decode(f'{{"jsonrpc":"2.0","id":{text},"method":"ping"}}'.encode())
        assert isinstance(message, Request)
        return message.id

    assert request_id("1") == 1
    assert request_id('"1"') == "1"
    assert request_id("1") != request_id('"1"')
    assert len({request_id("1"), request_id('"1"')}) == 2


def test_an_error_with_a_null_id_is_an_error_without_one() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}')
    assert isinstance(message, Error)
    assert message.id is None
    assert b'"id"' not in encode(message)


@pytest.mark.parametrize(
    ("frame", "error", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":[1]}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":"s","method":"x","params":"y"}', InvalidRequest, "s"),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', InvalidRequest, 5),
        (b'{"jsonrpc":"1.0","id":5,"method":"x"}', InvalidRequest, 5),
        (b'{"id":5,"method":"x"}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","result":{}}', InvalidRequest, None),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', InvalidRequest, None),
        (b'{"jsonrpc":"2.0","id":5,"result":[]}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":"m"}}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"x","result":{}}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"error":{"code":"1","message":"m"}}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"error":{"code":1}}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":9007199254740993,"method":"x"}', InvalidParams, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"a":1e400}}', ParseError, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"x"', ParseError, None),
    ],
)
def test_a_refusal_carries_the_id_where_it_can_be_read(
    frame: bytes, error: type[PeerError], request_id: object
) -> None:
    with pytest.raises(error) as refused:
        decode(frame)
    assert type(refused.value) is error
    assert refused.value.request_id == request_id


def test_envelopes_are_values() -> None:
    one: Envelope = Request(1, "ping")
    assert one == Request(1, "ping")
    assert one != Request("1", "ping")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.method = "pong"  # type: ignore[misc]  # this is what is tested
