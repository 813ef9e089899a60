"""URI templates: the RFC's own examples, and the way back."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.uri_template.match import MAX_URI, Found
from callboard.codecs.uri_template.plan import MAX_VARIABLES
from callboard.codecs.uri_template.template import MAX_TEMPLATE, UriTemplate
from callboard.errors import InvalidDefinition

VALUES: dict[str, Any] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}  # RFC 6570, section 3.2

EXAMPLES = """
3.2.1 {count} one,two,three | {count*} one,two,three | {/count} /one,two,three | {/count*} /one/two/three
3.2.1 {;count} ;count=one,two,three | {;count*} ;count=one;count=two;count=three
3.2.1 {?count} ?count=one,two,three | {?count*} ?count=one&count=two&count=three
3.2.1 {&count*} &count=one&count=two&count=three
3.2.2 {var} value | {hello} Hello%20World%21 | {half} 50%25 | O{empty}X OX | O{undef}X OX
3.2.2 {x,y} 1024,768 | {x,hello,y} 1024,Hello%20World%21,768 | ?{x,empty} ?1024, | ?{x,undef} ?1024 | ?{undef,y} ?768
3.2.2 {var:3} val | {var:30} value | {list} red,green,blue | {list*} red,green,blue
3.2.2 {keys} semi,%3B,dot,.,comma,%2C | {keys*} semi=%3B,dot=.,comma=%2C
3.2.3 {+var} value | {+hello} Hello%20World! | {+half} 50%25 | {base}index http%3A%2F%2Fexample.com%2Fhome%2Findex
3.2.3 {+base}index http://example.com/home/index | O{+empty}X OX | O{+undef}X OX
3.2.3 {+path}/here /foo/bar/here | here?ref={+path} here?ref=/foo/bar | up{+path}{var}/here up/foo/barvalue/here
3.2.3 {+x,hello,y} 1024,Hello%20World!,768 | {+path,x}/here /foo/bar,1024/here | {+path:6}/here /foo/b/here
3.2.3 {+list} red,green,blue | {+list*} red,green,blue
3.2.3 {+keys} semi,;,dot,.,comma,, | {+keys*} semi=;,dot=.,comma=,
3.2.4 {#var} #value | {#hello} #Hello%20World! | {#half} #50%25 | foo{#empty} foo# | foo{#undef} foo
3.2.4 {#x,hello,y} #1024,Hello%20World!,768 | {#path,x}/here #/foo/bar,1024/here | {#path:6}/here #/foo/b/here
3.2.4 {#list} #red,green,blue | {#list*} #red,green,blue | {#keys} #semi,;,dot,.,comma,,
3.2.4 {#keys*} #semi=;,dot=.,comma=,
3.2.5 {.who} .fred | {.who,who} .fred.fred | {.half,who} .50%25.fred | www{.dom*} www.example.com | X{.var} X.value
3.2.5 X{.empty} X. | X{.undef} X | X{.var:3} X.val | X{.list} X.red,green,blue | X{.list*} X.red.green.blue
3.2.5 X{.keys} X.semi,%3B,dot,.,comma,%2C | X{.keys*} X.semi=%3B.dot=..comma=%2C | X{.empty_keys} X | X{.empty_keys*} X
3.2.6 {/who} /fred | {/who,who} /fred/fred | {/half,who} /50%25/fred | {/who,dub} /fred/me%2Ftoo | {/var} /value
3.2.6 {/var,empty} /value/ | {/var,undef} /value | {/var,x}/here /value/1024/here | {/var:1,var} /v/value
3.2.6 {/list} /red,green,blue | {/list*} /red/green/blue | {/list*,path:4} /red/green/blue/%2Ffoo
3.2.6 {/keys} /semi,%3B,dot,.,comma,%2C | {/keys*} /semi=%3B/dot=./comma=%2C
3.2.7 {;who} ;who=fred | {;half} ;half=50%25 | {;empty} ;empty | {;v,empty,who} ;v=6;empty;who=fred
3.2.7 {;v,bar,who} ;v=6;who=fred | {;x,y} ;x=1024;y=768 | {;x,y,empty} ;x=1024;y=768;empty | {;x,y,undef} ;x=1024;y=768
3.2.7 {;hello:5} ;hello=Hello | {;list} ;list=red,green,blue | {;list*} ;list=red;list=green;list=blue
3.2.7 {;keys} ;keys=semi,%3B,dot,.,comma,%2C | {;keys*} ;semi=%3B;dot=.;comma=%2C
3.2.8 {?who} ?who=fred | {?half} ?half=50%25 | {?x,y} ?x=1024&y=768 | {?x,y,empty} ?x=1024&y=768&empty=
3.2.8 {?x,y,undef} ?x=1024&y=768 | {?var:3} ?var=val | {?list} ?list=red,green,blue
3.2.8 {?list*} ?list=red&list=green&list=blue | {?keys} ?keys=semi,%3B,dot,.,comma,%2C
3.2.8 {?keys*} ?semi=%3B&dot=.&comma=%2C
3.2.9 {&who} &who=fred | {&half} &half=50%25 | ?fixed=yes{&x} ?fixed=yes&x=1024 | {&x,y,empty} &x=1024&y=768&empty=
3.2.9 {&x,y,undef} &x=1024&y=768 | {&var:3} &var=val | {&list} &list=red,green,blue
3.2.9 {&list*} &list=red&list=green&list=blue | {&keys} &keys=semi,%3B,dot,.,comma,%2C
3.2.9 {&keys*} &semi=%3B&dot=.&comma=%2C
"""
ROWS = [tuple(row.split()) for line in EXAMPLES.split("\n") for row in line[6:].split(" | ") if row]


def test_all_examples_are_there() -> None:
    assert len(ROWS) == 115
    assert all(len(row) == 2 for row in ROWS)


@pytest.mark.parametrize(("template", "uri"), ROWS)
def test_an_example_of_the_rfc_expands_as_printed(template: str, uri: str) -> None:
    assert UriTemplate.parse(template).expand(**VALUES) == uri


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        ("", {}, ""),
        ("zürich://{x}", {"x": "ü"}, "z%C3%BCrich://%C3%BC"),
        ("a%20b{x}", {"x": 7}, "a%20b7"),
        ("{x}", {"x": True}, "true"),
        ("{x:1}", {"x": "€uro"}, "%E2%82%AC"),
        ("{+x}", {"x": "a%20b%zz"}, "a%20b%25zz"),
        ("{a.b}{%41}", {"a.b": "1", "%41": "2"}, "12"),
        ("{;e*}{?m*}", {"e": [""], "m": {"k": ""}}, ";e?k="),
    ],
)
def test_values_become_text_as_the_rfc_says(template: str, values: dict[str, Any], uri: str) -> None:
    assert UriTemplate.parse(template).expand(**values) == uri


@pytest.mark.parametrize(
    "text",
    [
        *("{", "}", "{a", "a}", "{}", "{{a}}", "{a}}", "{+}", "{?}", "{a,}", "{,a}", "{a b}", "{a-b}", "{ä}", "{a:0}"),
        *("{a:10000}", "{a:x}", "{a:}", "{a**}", "{a:3*}", "{*a}", "{=a}", "{,}", "{!a}", "{@a}", "{|a}", "{a..b}"),
        *("{.a.}", "{%4}", "{%zz}", "a b", "a\nb", "a<b", 'a"b', "a\\b", "a^b", "a`b", "a|b", "100%", "%4", "\x7f"),
        *("\ud800", "x" * (MAX_TEMPLATE + 1)),
    ],
)  # fmt: skip
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(InvalidDefinition):
        UriTemplate.parse(text)


def test_a_list_has_no_prefix() -> None:
    with pytest.raises(ValueError, match="prefix"):
        UriTemplate.parse("{keys:1}").expand(**VALUES)


def test_the_variables_of_a_template_are_known() -> None:
    assert UriTemplate.parse("x://{a}/{+b}{?c,a:3,d*}").variables == ("a", "b", "c", "d")


# The way back


@pytest.mark.parametrize(
    ("template", "uri", "found"),
    [
        ("weather://{city}/now", "weather://bern/now", {"city": "bern"}),
        ("weather://{city}/now", "weather://New%20York/now", {"city": "New York"}),
        ("weather://{city}/now", "weather://New York/now", {"city": "New York"}),
        ("weather://{city}/now", "weather://Zürich/now", {"city": "Zürich"}),
        ("weather://{city}/now", "weather://St.%20John's/now", {"city": "St. John's"}),
        ("weather://{city}/now", "weather:///now", None),
        ("weather://{city}/now", "weather://a/b/now", None),
        ("weather://{city}/now", "weather://a?b/now", None),
        ("weather://{city}/now", "weather://a/now/", None),
        ("weather://{city}/now", "Weather://a/now", None),
        ("weather://{city}/now", "weather://%ff/now", None),
        ("weather://{city}/now", "weather://\ud800/now", None),
        ("weather://{city}/now", "weather://a%2Fb/now", {"city": "a/b"}),
        ("weather://{city}/now", "weather://%00/now", {"city": "\0"}),
        ("weather://{city}/now", "weather://../now", {"city": ".."}),
        ("file:///{+path}", "file:///etc/../x//y?q#f", {"path": "etc/../x//y?q#f"}),
        ("file:///{+path}", "file:///", None),
        ("file:///{+path}/meta/{name}", "file:///a/meta/b/meta/c", {"path": "a/meta/b", "name": "c"}),
        ("{a}/{+b}/{c}", "1/2/3/4", {"a": "1", "b": "2/3", "c": "4"}),
        ("{a}/{+b}/{c}", "1//4", None),
        ("{a}/{+b}/{c}", "1/4", None),
        ("db://{table}{?limit,offset}", "db://t", {"table": "t"}),
        ("db://{table}{?limit,offset}", "db://t?", {"table": "t"}),
        ("db://{table}{?limit,offset}", "db://t?limit=1", {"table": "t", "limit": "1"}),
        ("db://{table}{?limit,offset}", "db://t?offset=2&limit=%31", {"table": "t", "limit": "1", "offset": "2"}),
        ("db://{table}{?limit,offset}", "db://t?limit=", {"table": "t", "limit": ""}),
        ("db://{table}{?limit,offset}", "db://t?limit", {"table": "t", "limit": ""}),
        ("db://{table}{?limit,offset}", "db://t?limit=a=b+c", {"table": "t", "limit": "a=b+c"}),
        ("db://{table}{?limit,offset}", "db://t?limit=1&limit=2", None),
        ("db://{table}{?limit,offset}", "db://t?other=1", None),
        ("db://{table}{?limit,offset}", "db://t?limit=1&offset=2&x=3", None),
        ("db://{table}{?limit,offset}", "db://t?limit=%ff", None),
        ("db://{table}{?limit,offset}", "db://t?limit=1#f", None),
        ("db://{table}{?limit,offset}", "db://?limit=1", None),
        ("db://t?v=1{&limit}", "db://t?v=1", {}),
        ("db://t?v=1{&limit}", "db://t?v=1&limit=5", {"limit": "5"}),
        ("db://t?v=1{&limit}", "db://t?v=12", None),
        ("db://t?v=1{&limit}", "db://t", None),
        ("db://t{?a}{&b}", "db://t?b=2&a=1", {"a": "1", "b": "2"}),
        ("img://{name}{.ext}", "img://a.b.png", {"name": "a.b", "ext": "png"}),
        ("x://{a}-{b}-{c}", "x://1-2-3-4", {"a": "1-2", "b": "3", "c": "4"}),
        ("x://{a}-{b}", "x://1--", {"a": "1", "b": "-"}),
        ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
        ("x:/{/parts*}", "x://a/b%2Fc//d", {"parts": ["a", "b/c", "", "d"]}),
        ("x:/{/parts*}", "x://a/%ff", None),
        ("x:/{/a,b}", "x://1/2", {"a": "1", "b": "2"}),
        ("x://y{#part}", "x://y#a/b", {"part": "a/b"}),
        ("x://zürich/{a}", "x://z%C3%BCrich/1", {"a": "1"}),
        ("x://zürich/{a}", "x://zürich/1", {"a": "1"}),
        ("plain", "plain", {}),
        ("plain", "plainer", None),
        ("plain", "", None),
        ("", "", {}),
        ("aba{x}aba", "aba", None),
        ("aba{x}aba", "abaaba", None),
        ("aba{x}aba", "aba-aba", {"x": "-"}),
    ],
)  # fmt: skip
def test_a_uri_is_matched_back_to_its_variables(template: str, uri: str, found: Found | None) -> None:
    assert UriTemplate.parse(template).match(uri) == found


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{a}{b}", "adjacent variables"),
        ("x{a}{+b}", "adjacent variables"),
        ("{a}/{a}", "twice"),
        ("{a}{?a}", "twice"),
        ("x{?a,a}", "twice"),
        ("{+a}/{+b}", "more than one"),
        ("{+a,b}", "more than one"),
        ("{+a}/x{/b*}", "more than one"),
        ("{a:3}", "prefix"),
        ("x{?a:3}", "prefix"),
        ("{a*}", "list"),
        ("{?a*}", "list"),
        ("x{;a}", "{;...}"),
        ("x{?a}/y", "text after the variables of a query"),
        ("x{?a}{#b}", "text after the variables of a query"),
        ("x{&a}", "fixed query text"),
        ("x?y={b}{&a}", "fixed query text"),
        ("x?y{?a}", "fixed query text"),
        ("x?y/{b}{?a}", "fixed query text"),
        ("/".join(f"{{v{n}}}" for n in range(MAX_VARIABLES + 1)), "more than 32"),
    ],
)
def test_a_template_that_would_need_guessing_says_why_it_is_not_matched(template: str, reason: str) -> None:
    parsed = UriTemplate.parse(template)
    assert parsed.unmatchable is not None
    assert reason in parsed.unmatchable
    with pytest.raises(InvalidDefinition) as caught:
        parsed.match("x")
    assert str(caught.value) == parsed.unmatchable


def test_a_template_of_the_most_variables_is_matched() -> None:
    names = [f"v{n}" for n in range(MAX_VARIABLES)]
    parsed = UriTemplate.parse("/".join(f"{{{name}}}" for name in names))
    assert parsed.match("/".join(names)) == {name: name for name in names}


def test_a_uri_over_the_limit_is_not_looked_at() -> None:
    parsed = UriTemplate.parse("{a}")
    assert parsed.match("x" * MAX_URI) == {"a": "x" * MAX_URI}
    assert parsed.match("x" * (MAX_URI + 1)) is None


def test_a_variable_may_have_any_name() -> None:
    assert UriTemplate.parse("x/{self}{?values}").expand(self="me", values=1) == "x/me?values=1"


DASHES = "-".join(f"{{v{n}}}" for n in range(MAX_VARIABLES))


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        (DASHES, "-" * MAX_URI),
        (DASHES, "-" * (MAX_URI - 1) + "/"),
        (DASHES, "/" + "-" * (MAX_URI - 1)),
        ("{+a}aaaaaaaaab/{b}", "a" * MAX_URI),
        ("{a}" + "a" * 2000 + "b{b}", "a" * MAX_URI),
        ("{a}" + "ab" * 1000 + "{b}", "ab" * (MAX_URI // 2)),
        ("{/a*}", "/" * MAX_URI),
        ("x{?a,b}", "x?" + "&" * (MAX_URI - 2)),
        ("x{?a,b}", "x?a=" + "%" * (MAX_URI - 4)),
        ("{a}", "%41" * (MAX_URI // 3)),
        ("{a}", "é" * MAX_URI),
    ],
)
def test_a_hostile_uri_costs_no_more_than_a_long_one(template: str, uri: str) -> None:
    parsed = UriTemplate.parse(template)
    spent = []
    for _ in range(3):
        start = time.thread_time()
        parsed.match(uri)
        spent.append(time.thread_time() - start)
    assert min(spent) < 0.1  # 50 ms on a quiet machine; tests share theirs


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
PLAIN = TEXT.filter(lambda text: "%" not in text)
UNAMBIGUOUS: list[tuple[str, dict[str, st.SearchStrategy[Any]]]] = [
    ("weather://{city}/now", {"city": TEXT}),
    ("x://{a}/{b}/c/{d}", {"a": TEXT, "b": TEXT, "d": TEXT}),
    ("x://{a,b}:{c}", {"a": TEXT, "b": TEXT, "c": TEXT}),
    ("file:///{+path}", {"path": PLAIN}),
    ("x://{a}/{+b}", {"a": TEXT, "b": PLAIN}),
    ("{+path}/meta/{name}", {"path": PLAIN, "name": TEXT}),
    ("x:{/parts*}", {"parts": st.lists(TEXT, min_size=1, max_size=5)}),
    ("x://{a}{/parts*}/z", {"a": TEXT, "parts": st.lists(TEXT, min_size=1, max_size=5)}),
    ("y{#part}", {"part": PLAIN}),
]
OPTIONAL = [("db://{table}{?limit,offset}", "table"), ("db://{table}/x?v=1{&limit,offset}", "table")]


@pytest.mark.parametrize(("template", "strategies"), UNAMBIGUOUS, ids=[row[0] for row in UNAMBIGUOUS])
@given(data=st.data())
def test_what_is_expanded_is_matched(
    template: str, strategies: dict[str, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    values = data.draw(st.fixed_dictionaries(strategies))
    parsed = UriTemplate.parse(template)
    assert parsed.match(parsed.expand(**values)) == values


@pytest.mark.parametrize(("template", "required"), OPTIONAL)
@given(data=st.data())
def test_a_query_is_matched_with_what_it_has(template: str, required: str, data: st.DataObject) -> None:
    text = st.text(st.characters(codec="utf-8"))
    values = data.draw(st.fixed_dictionaries({required: TEXT}, optional={"limit": text, "offset": text}))
    parsed = UriTemplate.parse(template)
    assert parsed.match(parsed.expand(**values)) == values


PIECES = ["{a}", "{b}", "{+c}", "{/d*}", "{?e}", "{&f}", "{.g}", "{#h}", "/", "-", "?", "x", "{", "}", "%", ",", "ü"]


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text(), st.text("/-?x=&%41.#é", max_size=30))
def test_nothing_but_a_refusal_comes_out(template: str, value: str, uri: str) -> None:
    try:
        parsed = UriTemplate.parse(template)
        parsed.match(uri)
        parsed.match(value)
    except InvalidDefinition:
        return
    assert parsed.unmatchable is None
