"""The pages of a login: no name of a server, user, issuer or scope opens a tag or an attribute."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.login_page import consent_page, page_headers, text_page

NASTY = st.text() | st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "'onclick='x",
        "</title><b>",
        "&lt;b&gt;",
        "\u202eevil",
    ]
)
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "p", "b", "ul", "li", "form", "button"),
}


class Reader(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: bytes) -> Reader:
    reader = Reader()
    reader.feed(page.decode("utf-8"))
    reader.close()
    return reader


PLAIN = read(consent_page("s", "u", "i", ["a", "b"]))


@given(NASTY, NASTY, NASTY, NASTY, NASTY)
def test_no_text_opens_a_tag_or_an_attribute(server: str, user: str, issuer: str, first: str, second: str) -> None:
    page = read(consent_page(server, user, issuer, [first, second]))
    assert page.tags == PLAIN.tags
    assert page.attributes == PLAIN.attributes
    assert set(page.tags) <= TAGS
    assert "\u202e" not in "".join(page.words)


@given(NASTY, NASTY)
def test_a_page_that_only_says_something_has_nothing_else(title: str, text: str) -> None:
    assert read(text_page(title, text)).tags == ["html", "head", "meta", "title", "style", "body", "h1", "p"]


def test_headers_let_a_form_go_to_one_other_origin_at_most() -> None:
    told = dict(page_headers("https://id.example.com"))[b"content-security-policy"]
    assert b"form-action 'self' https://id.example.com; frame-ancestors 'none'" in told
    assert b"form-action 'self'; " in dict(page_headers())[b"content-security-policy"]
