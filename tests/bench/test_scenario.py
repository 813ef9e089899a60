"""What stands in a file of scripts, and what is told of one that is wrong."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
from jsonschema import Draft202012Validator

from callboard.bench.scenario import STEP_KEYS, BadScenario, parse_scenario
from callboard.bench.scenario_schema import schema
from callboard.bench.steps import Answers, Await, Elicited, Listen, Repeat, Scenario, Script, StepRequest, Think
from tests.shared import ROOT

EXAMPLE = ROOT / "examples" / "scenario.toml"


def parsed(text: str) -> Scenario:
    return parse_scenario(text, Path("play.toml"))


def only(text: str) -> Script:
    [script] = parsed(text).scripts
    return script


def test_the_shortest_scenario_is_one_line() -> None:
    script = only('steps = [{ call = "now" }]')
    assert script == Script(name="play", steps=(StepRequest(label="call now", kind="call", name="now"),))


def test_every_step_says_what_it_does() -> None:
    script = only("""
        steps = [
            { call = "forecast", args = { city = "Oslo", days = [1, 2] }, cancel_after = "20ms", label = "look ahead" },
            { read = "weather://oslo/now" },
            { list = "prompts" },
            { prompt = "briefing", args = { city = "Oslo" } },
            { think = 0.5 },
            { think = ["100ms", 2] },
            { subscribe = ["weather://oslo/now", "weather://rome/now"] },
            { listen = "tools" },
            { await = "weather://oslo/now", within = "1m" },
            { await = "tools" },
            { repeat = 3, steps = [{ read = "weather://rome/now" }, { repeat = 2, steps = [{ list = "tools" }] }] },
        ]
    """)
    assert script.steps == (
        StepRequest(
            label="look ahead",
            kind="call",
            name="forecast",
            args={"city": "Oslo", "days": [1, 2]},
            cancel_after=0.02,
        ),
        StepRequest(label="read weather://oslo/now", kind="read", name="weather://oslo/now"),
        StepRequest(label="list prompts", kind="list", name="prompts"),
        StepRequest(label="prompt briefing", kind="prompt", name="briefing", args={"city": "Oslo"}),
        Think(0.5, 0.5),
        Think(0.1, 2.0),
        Listen(("weather://oslo/now", "weather://rome/now")),
        Listen(("tools",)),
        Await(label="await weather://oslo/now", topic="weather://oslo/now", within=60.0),
        Await(label="await tools", topic="tools", within=5.0),
        Repeat(
            3,
            (
                StepRequest(label="read weather://rome/now", kind="read", name="weather://rome/now"),
                Repeat(2, (StepRequest(label="list tools", kind="list", name="tools"),)),
            ),
        ),
    )


def test_scripts_have_weights_and_sessions() -> None:
    scenario = parsed("""
        name = "a day"
        [[script]]
        name = "often"
        weight = 3
        steps = [{ list = "tools" }]
        [[script]]
        session = "each"
        [[script.steps]]
        call = "now"
        [[script]]
        session = 5
        steps = [{ call = "now" }]
    """)
    assert [(one.name, one.weight, one.per_session) for one in scenario.scripts] == [
        ("often", 3, 0),
        ("script 2", 1, 1),
        ("script 3", 1, 5),
    ]
    assert str(scenario) == "a day: often, script 2, script 3"


def test_the_innermost_answer_counts() -> None:
    scenario = parsed("""
        [answer]
        elicitation = "decline"
        sampling = "Hello."
        [[script]]
        steps = [{ call = "ask", answer = { roots = ["file:///tmp"] } }]
        [[script.answer.elicitation]]
        content = { ok = true }
        match = "cost"
        weight = 2
        after = "1s"
        [[script.answer.elicitation]]
        action = "cancel"
        [[script]]
        steps = [{ call = "ask" }]
    """)
    first, second = scenario.scripts
    asked = (
        Elicited(action="accept", content={"ok": True}, match="cost", weight=2, after=1),
        Elicited(action="cancel"),
    )
    assert first.answers == Answers(elicitation=asked, sampling="Hello.")
    assert second.answers == Answers(elicitation=(Elicited(action="decline"),), sampling="Hello.")
    [call] = first.steps
    assert isinstance(call, StepRequest)
    assert call.answers.over(first.answers) == Answers(elicitation=asked, sampling="Hello.", roots=("file:///tmp",))


WRONG: Final = [
    ("", "play.toml:1: has no `steps`"),
    ("steps = [", "play.toml:1: is not valid TOML"),
    ("\n\nsteps = 3", "play.toml:3: steps: must be a list of steps"),
    ("steps = []", "play.toml:1: steps: sends no request"),
    ("steps = [{ think = 1 }]", "sends no request"),
    (
        "steps = [\n{ list = 'tools' },\n{ cal = 'now' }]",
        "play.toml:3: steps[1]: must have one of call, task, read",
    ),
    ("steps = [{ cal = 'now' }]", "did you mean `call`?"),
    ("steps = [{ call = 'now', read = 'a://b' }]", "several kinds: call and read"),
    ("steps = [{ call = 'now', arguments = {} }]", "steps[0].arguments: is unknown"),
    ("steps = [{ call = 'now', arg = {} }]", "did you mean `args`?"),
    ("steps = ['now']", 'must be a table, as { call = "NAME" }'),
    ("steps = [{ call = 3 }]", "must be a string"),
    ("steps = [{ call = 'now', args = [1] }]", "must be a table"),
    ("steps = [{ call = 'now', args = { on = 2026-01-01 } }]", "write it as a string"),
    ("steps = [{ prompt = 'brief', args = { days = 3 } }]", "arguments of prompts are strings"),
    ("steps = [{ list = 'tool' }]", "did you mean `tools`?"),
    ("steps = [{ list = 'tools' }, { think = 'soon' }]", "is not a time: expected 500ms"),
    ("steps = [{ list = 'tools' }, { think = -1 }]", "is not a time"),
    ("steps = [{ list = 'tools' }, { think = [2, 1] }]", "from a shorter to a longer one"),
    ("steps = [{ call = 'now', cancel_after = true }]", "is not a time"),
    ("steps = [{ list = 'tools' }, { listen = 'a://b' }]", "for a resource write `subscribe`"),
    ("steps = [{ list = 'tools' }, { await = 'a://b' }]", 'nothing subscribes to it: add { subscribe = "a://b" }'),
    ("steps = [{ list = 'tools' }, { await = 'tools' }]", 'nothing subscribes to it: add { listen = "tools" }'),
    ("steps = [{ list = 'tools' }, { repeat = 3 }]", "has no `steps` to repeat"),
    ("steps = [{ repeat = 0, steps = [{ list = 'tools' }] }]", "must be 1 or more"),
    ("steps = [{ repeat = 99999, steps = [{ list = 'tools' }] }]", "are more than 10,000"),
    ("session = 'some'\nsteps = [{ list = 'tools' }]", 'play.toml:1: session: must be "lasts", "each"'),
    (
        "[[script]]\nweight = 0\nsteps = [{ list = 'tools' }]",
        "play.toml:2: script[0].weight: must be greater than 0",
    ),
    ("[[script]]\nname = 'a'", "play.toml:1: script[0]: has no `steps`"),
    ("[script]\nsteps = []", "must be `[[script]]`"),
    ("scripts = []", "play.toml:1: scripts: is unknown; did you mean `script`?"),
    ("answer = 'yes'\nsteps = [{ list = 'tools' }]", "play.toml:1: answer: must be a table"),
    ("answer.elicitation = 'yes'\nsteps = [{ list = 'tools' }]", "must be one of accept, decline, cancel"),
    ("answer.elicitation = { after = 1 }\nsteps = [{ list = 'tools' }]", "has no `action`"),
    (
        "answer.elicitation = { action = 'decline', content = {} }\nsteps = [{ list = 'tools' }]",
        "is only allowed with action",
    ),
    (
        "steps = [\n{ call = 'a', save = 'idea' },\n{ call = 'b', args = { x = [{ y = '${ide}' }] } }]",
        "play.toml:3: steps[1].args.x.y: ${ide} is not saved by an earlier step of this script; did you mean `id",
    ),
    ("steps = [{ read = 'a://${id}' }, { call = 'a', save = 'id' }]", "${id} is not saved by an earlier step"),
    ("steps = [{ call = 'a', args = { x = '${id}' }, save = 'id' }]", "${id} is not saved by an earlier step"),
    ("steps = [{ call = 'a', args = { x = '${}' } }]", "${} is not saved by an earlier step"),
    ("steps = [{ call = 'a', save = 'an id' }]", '"an id" is not a name'),
    ("steps = [{ call = 'a', save = { id = 5 } }]", "steps[0].save.id: must be a string"),
    ("steps = [{ call = 'a', save = 5 }]", "steps[0].save: must be a string"),
    ("steps = [{ list = 'tools', save = 'all' }]", "needs a path into the list"),
    ("steps = [{ call = 'a', save = 'id', cancel_after = 1 }]", "remove one of them"),
    ("steps = [{ call = 'a', save = { id = '" + ".".join("a" * 30) + "' } }]", "has more than 20 steps"),
    ("answer.roots = ['/tmp']\nsteps = [{ list = 'tools' }]", "must be a list of file:// URIs"),
]
"""Files, and what is told of them."""


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_what_is_wrong_is_told_in_one_line_with_the_place(text: str, told: str) -> None:
    with pytest.raises(BadScenario) as caught:
        parsed(text)
    assert told in str(caught.value)
    assert str(caught.value).startswith("play.toml:")
    assert "\n" not in str(caught.value)


def test_the_example_is_the_one_of_the_manual() -> None:
    scenario = parse_scenario(EXAMPLE.read_text(), EXAMPLE)
    manual = (
        (EXAMPLE.parents[1] / "docs" / "howto" / "bench.md").read_text().partition("```toml\n")[2].partition("```")[0]
    )
    assert parse_scenario(manual, EXAMPLE) == scenario


BEYOND: Final = (
    *("is not valid TOML", "sends no request", "from a shorter", "nothing subscribes", "are more than", "is not saved"),
    *("remove one of them", "more than 20 steps", "is only allowed with", "write it as a string"),
)
"""Mistakes that a schema does not find."""


def test_the_schema_says_the_same_as_the_reader() -> None:
    check = Draft202012Validator(schema())
    Draft202012Validator.check_schema(schema())
    for text, told in WRONG:
        if not any(words in told for words in BEYOND):
            assert not check.is_valid(tomllib.loads(text)), text
    guide = (ROOT / "docs" / "howto" / "bench.md").read_text()
    good = [text for text in re.findall(r"```toml\n(.*?)```", guide, re.DOTALL) if "steps" in text]
    assert len(good) >= 2
    for text in (*good, (ROOT / "examples" / "scenario.toml").read_text(), EVERYTHING):
        check.validate(tomllib.loads(text))
        parsed(text)
    kinds = [set(one["properties"]) for one in schema()["$defs"]["steps"]["items"]["anyOf"]]
    assert kinds == [{kind, *keys} for kind, keys in STEP_KEYS.items()]


EVERYTHING: Final = """
name = "all"
answer = { sampling = "Hello.", roots = ["file:///tmp"], elicitation = ["decline", { content = { ok = true } }] }
session = 5
steps = [
  { task = "work", args = { seconds = 2 }, cancel_after = 0.5, label = "a long job" },
  { listen = ["tools", "prompts"] }, { subscribe = "a://b" }, { await = "a://b", within = "2s" },
  { list = "tools", save = { first = "tools.0.name" } },
  { think = ["1s", 3] },
]
"""
