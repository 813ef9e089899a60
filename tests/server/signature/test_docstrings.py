import inspect

import pytest

from callboard.server.signature.docstrings import Docstring

GOOGLE = """Weather for the coming days.

    More about it.

    Args:
        city: Where to look,
            spelled out.
        days (int, optional): How many: at most 14.
        **rest: Whatever else.

    Returns:
        The forecast.
    """

NUMPY = """Weather for the coming days.

    More about it.

    Parameters
    ----------
    city : str
        Where to look,
        spelled out.
    days, nights : int, optional
        How many: at most 14.
    **rest
        Whatever else.

    Returns
    -------
    Forecast
        The forecast.
    """

SPHINX = """Weather for the coming days.

    More about it.

    :param city: Where to look,
        spelled out.
    :param int days: How many: at most 14.
    :type days: int
    :param rest: Whatever else.
    :returns: The forecast.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_parameters_are_found_in_each_of_the_three_ways_to_write_them(text: str) -> None:
    found = Docstring.parse(text)
    assert found.parameters["city"] == "Where to look, spelled out."
    assert found.parameters["days"] == "How many: at most 14."
    assert found.parameters["rest"] == "Whatever else."
    assert found.text.startswith("Weather for the coming days.\n\nMore about it.")
    assert "spelled out" not in found.text


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_what_is_not_about_parameters_stays(text: str) -> None:
    found = Docstring.parse(text)
    assert "The forecast." in found.text
    assert "\n\n\n" not in found.text


def test_one_numpy_entry_may_speak_of_two_parameters() -> None:
    assert Docstring.parse(NUMPY).parameters["nights"] == "How many: at most 14."


@pytest.mark.parametrize("text", ["", "Args", "Args:", "Parameters\n---", ":param x", "One line.", "Args:\n\n\n", "\t"])
def test_odd_docstrings_name_nothing(text: str) -> None:
    assert Docstring.parse(text).parameters == {}


def test_prose_alone_is_kept_as_it_is() -> None:
    text = "Say: hello.\n\n    indented: code\n\nArgs are not a section here."
    assert Docstring.parse(text).text == inspect.cleandoc(text)
