"""Ranking: the words of a name, and which text fits a query best."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.ranking import MAX_TERMS, ranked, terms_of, words_of


def test_words_of_names_and_texts() -> None:
    assert words_of("listOpenTickets") == ["list", "open", "ticket"]
    assert words_of("shop__send_HTTPRequest-2") == ["shop", "send", "http", "request", "2"]
    assert words_of("Companies' glass, Straße") == ["company", "glass", "straße"]
    assert words_of("") == []


def test_a_rare_word_and_a_name_count_more() -> None:
    texts = [terms_of([(3.0, name), (1.0, about)]) for name, about in (
        ("send_mail", "Send a mail to a customer"),
        ("send_invoice", "Send an invoice to a customer"),
        ("list_customers", "All customers"),
    )]  # fmt: skip
    assert ranked("customer", texts) == [2, 0, 1]
    assert ranked("send an invoice", texts)[0] == 1
    assert ranked("elephant", texts) == []
    assert ranked("", texts) == []
    assert ranked("x", []) == []


def test_only_so_many_words_of_a_query_count() -> None:
    query = " ".join(f"w{number}" for number in range(MAX_TERMS + 1))
    assert ranked(query, [terms_of([(1.0, f"w{MAX_TERMS}")])]) == []


@given(st.text(max_size=50), st.lists(st.text(max_size=50), max_size=10))
def test_any_text_is_ranked(query: str, texts: list[str]) -> None:
    found = ranked(query, [terms_of([(1.0, text)]) for text in texts])
    assert len(set(found)) == len(found)
    assert set(found) <= set(range(len(texts)))
