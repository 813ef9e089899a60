"""Every fault that trials found has a test that would find it again. `python -m tests.test_findings` lists them."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
MARK = "pytest.mark.finding"

SECURITY = {f"security-{number}" for number in range(1, 25)}
PROTOCOL = {f"protocol-1.{number}" for number in (1, 2, 3, 9, 10, 11, *(f"12{letter}" for letter in "abcdefmno"))}
NEWCOMER = {
    f"newcomer-{role}{number}"
    for role, numbers in {"A": (1, 2, 3, 5, 11), "H": (2, 3, 4, 5, 6), "P": (1, 4, 5), "B": (1, 2, 3, 4, 5)}.items()
    for number in numbers
}
FAULTS = {"faults-low"} | {
    f"faults-{weight}{number}" for weight, most in {"C": 3, "H": 4, "M": 5}.items() for number in range(1, most + 1)
}
FINDINGS = SECURITY | PROTOCOL | NEWCOMER | FAULTS


def marks_in(source: str) -> Iterator[tuple[str, str]]:
    """The marked tests of a file, and the finding that each names."""
    tree = ast.parse(source)
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                mark = constants.get(decorator.id, decorator) if isinstance(decorator, ast.Name) else decorator
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
                    yield from ((node.name, str(ast.literal_eval(argument))) for argument in mark.args)


def marked() -> list[tuple[str, str]]:
    """Every finding that a test names, and where that test is."""
    return sorted(
        (finding, f"{path.relative_to(TESTS.parent).as_posix()}::{name}")
        for path in TESTS.rglob("test_*.py")
        for name, finding in marks_in(path.read_text(encoding="utf-8"))
    )


def known(finding: str) -> str:
    """The finding of the list that *finding* is, or is a part of: `faults-low-keepalive` is one of the low faults."""
    return "faults-low" if finding.startswith("faults-low") else finding


def test_every_finding_has_a_test() -> None:
    assert sorted(FINDINGS - {known(finding) for finding, _ in marked()}) == []


def test_no_test_names_what_is_no_finding() -> None:
    assert sorted({finding for finding, _ in marked() if known(finding) not in FINDINGS}) == []


def test_marks_are_found_on_tests_of_both_kinds() -> None:
    source = "A = pytest.mark.finding('x-1')\n@A\ndef f(): ...\n@pytest.mark.finding('x-2', 'x-3')\nasync def g(): ..."
    assert list(marks_in(source)) == [("f", "x-1"), ("g", "x-2"), ("g", "x-3")]


if __name__ == "__main__":
    for finding, where in marked():
        print(finding, where)  # noqa: T201  # what this command is for
