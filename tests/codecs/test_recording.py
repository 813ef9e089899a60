"""Recorded lines: read as they were written, and without secrets."""

import json
from typing import Any

import pytest
from hypothesis import given

from callboard.codecs.json_scan import MAX_DEPTH
from callboard.codecs.recording import HIDDEN, RecordedMessage, read_lines, redacted, write_line
from callboard.errors import ParseError
from tests.codecs.strategies import messages

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@given(messages)
def test_a_recorded_message_is_read_as_it_was_written(message: dict[str, Any]) -> None:
    whole = RecordedMessage(message, "2026-07-28T12:00:00.125Z", "weather", "weather-1", "to_server")
    alone = RecordedMessage(message)
    assert list(read_lines(write_line(whole) + b"\n" + write_line(alone))) == [(1, whole), (3, alone)]


def test_a_line_that_tells_of_a_gap_is_no_message() -> None:
    data = b'{"time": "t", "dropped": 3}\n' + json.dumps(PING).encode()
    assert list(read_lines(data)) == [(2, RecordedMessage(PING))]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "JSON object"),
        (b"[]", "JSON object"),
        (b"7", "JSON object"),
        (b"{}", "expected a message"),
        (b'{"message": []}', "expected a message"),
        (b'{"message": {}, "server": 4}', "expected a message"),
        (b'{"message": {}, "direction": "sideways"}', "to_server or from_server"),
        (b'{"jsonrpc": "2.0", "a": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "deep"),
        (b'{"jsonrpc": "2.0", "a": ' + b"[" * 9000 + b"]" * 9000 + b"}", ""),
        (b'{"jsonrpc": "\xff"}', "UTF-8"),
    ],
)
def test_a_line_that_is_no_message_is_told_with_its_number(line: bytes, why: str) -> None:
    with pytest.raises(ParseError, match=f"line 2: .*{why}"):
        list(read_lines(json.dumps(PING).encode() + b"\n" + line))


def test_the_deepest_message_is_read() -> None:
    value: Any = {}
    for _ in range(MAX_DEPTH - 1):
        value = {"a": value}
    recorded = RecordedMessage({"jsonrpc": "2.0", **value}, server="s")
    assert list(read_lines(write_line(recorded))) == [(1, recorded)]


@pytest.mark.parametrize(
    "name",
    [
        *("token", "accessToken", "access_token", "refresh-token", "id_token", "tokens", "secret", "clientSecret"),
        *("password", "passwd", "passphrase", "api_key", "apiKey", "API-KEY", "x-api-key", "private_key", "credential"),
        *("Authorization", "authorization", "proxy-authorization", "auth", "cookie", "Set-Cookie", "jwt"),
        *("requestState", "com.example/token", "sessionToken", "bearer"),
    ],
)
def test_the_value_of_a_member_that_is_named_as_a_secret_is_hidden(name: str) -> None:
    message = {"params": {"_meta": {name: "geheim"}, "arguments": [{name: ["geheim", "geheim"]}, {name: 123456}]}}
    assert "geheim" not in json.dumps(redacted(message))
    assert "123456" not in json.dumps(redacted(message))


@pytest.mark.parametrize(
    "value",
    [
        {"progressToken": 7, "maxTokens": 100, "author": "ada", "keyboard": "qwerty", "monkey": "b", "authored": "x"},
        {"nextCursor": "abc", "name": "token", "taskId": "4", "uri": "file:///tmp/a", "sessionless": "yes"},
        {"inputSchema": {"properties": {"password": {"type": "string"}, "token": {"type": "string"}}}},
        {"text": "the token of the day, and a secret recipe"},
        {"token": True, "secret": None},
    ],
)
def test_what_is_no_secret_stays_as_it_is(value: dict[str, Any]) -> None:
    assert redacted(value) == value


@pytest.mark.parametrize(
    "text",
    [
        "curl -H 'Authorization: Bearer geheim123456'",
        "Basic geheim123456==",
        "https://ada:geheim@example.com/x",
        '{"token": "geheim", "city": "Oslo"}',
        '{"client_secret":"a\\"geheim"}',
        "password=geheim123",
        "API_KEY: geheim123",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJnZWhlaW0ifQ.geheim",
        "ghp_geheimgeheimgeheim12",
        "sk-geheimgeheimgeheim12",
        "a-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJnZWhlaW0ifQ.geheim",
        "https://maps.example.com/?q=a&key=geheim123",
        "https://store.example.com/a?X-Amz-Signature=geheim123&b=1",
        "http://127.0.0.1:7000/callback?code=geheim123",
        "x, " * 20_000 + "Authorization: Bearer geheim123456",
    ],
)
def test_a_secret_inside_a_text_is_hidden(text: str) -> None:
    shown = redacted({"content": [{"type": "text", "text": text}]})["content"][0]["text"]
    assert "geheim" not in shown
    assert HIDDEN in shown


def test_what_is_inside_of_a_secret_is_hidden_and_a_schema_is_not_inside() -> None:
    inner = {"login": "geheim", "pin": 123456, "is_new": True, "more": [{"value": "geheim"}]}
    for name in ("credentials", "token"):
        assert redacted({name: inner})[name]["is_new"] is True
        assert redacted({name: inner}).keys() == {name}
        assert not any(word in json.dumps(redacted({name: [inner]})) for word in ("geheim", "123456"))
    schema = {
        "password": {"type": "string", "title": "Word"},
        "token": {"$ref": "#/$defs/a"},
        "secret": {"enum": ["a"]},
    }
    assert redacted({"properties": schema}) == {"properties": schema}


def test_a_long_text_costs_no_more_than_its_length() -> None:
    """Quadratic, each would take minutes, in which no other thread runs."""
    hostile = ("a", "token", "://", "eyJ", '"token":', "-eyJaaaaa", "Bearer ", 'token"  ', "?key=", 'token":"\\')
    for part in hostile:
        redacted(part * (1_000_000 // len(part)))


def test_a_long_text_comes_back_whole() -> None:
    for text in ("abc " * 50_000, "abc" * 50_000, "ä\n" * 50_000, '{"a": "b"}, ' * 20_000):
        assert redacted(text) == text
