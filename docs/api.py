"""Write `reference/python/*.md` from the code: signatures as they are written, and docstrings.

python docs/api.py    # writes every page; a test compares them
"""

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import attrs

HERE: Final = Path(__file__).resolve().parent / "reference" / "python"
WIDE: Final = 100
"""Characters of a signature that stands on one line."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Page:
    """One page of the reference. *names* come first; then whatever else *module* exports that no page has yet."""

    title: str
    intro: str
    names: tuple[str, ...]
    module: str | None = None


_MADE: Final = "This page is made from the code by `docs/api.py`; a test keeps the two together."

PAGES: Final = {
    "server": Page(
        "Server",
        "A server is an object; its tools, resources and prompts are functions. How it is run: "
        "[run a server](../../howto/run-a-server.md).",
        (
            "callboard.Server",
            "callboard.ToolError",
            "callboard.Rate",
            "callboard.serve.options.Options",
            "callboard.serve.serve",
        ),
    ),
    "context": Page(
        "Context",
        "A handler that takes `ctx: Context` can ask the user and the client's model, report progress, and "
        "know its caller.",
        (
            "callboard.Context",
            "callboard.server.context.Asking",
            "callboard.Reply",
            "callboard.InputRequired",
            "callboard.Declined",
            "callboard.Dismissed",
            "callboard.Caller",
        ),
    ),
    "client": Page(
        "Client",
        "`connect` opens a conversation with any server. With examples: [connect to a server](../../howto/connect.md).",
        (
            "callboard.connect",
            "callboard.Client",
            "callboard.client.call.Calling",
            "callboard.client.subscriptions.ChangeStream",
            "callboard.client.TaskHandle",
            "callboard.ManualClient",
            "callboard.Asked",
            "callboard.Patience",
            "callboard.Command",
        ),
        "callboard.client",
    ),
    "broker": Page(
        "Broker",
        "A broker serves the servers of a configuration at one endpoint: [how](../../howto/broker.md). Most users need "
        "only `callboard serve`.",
        (
            "callboard.Broker",
            "callboard.config.BackendSpec",
            "callboard.config.PythonTarget",
            "callboard.config.Remote",
            "callboard.actors.broker.policy.BackendSettings",
            "callboard.codecs.bridge.overrides.ToolOverride",
            "callboard.server.served.Behind",
            "callboard.server.served.BackendStatus",
        ),
        "callboard.broker",
    ),
    "testing": Page(
        "Testing",
        "A client made of JSON, for tests of your server: [how](../../howto/test-a-server.md).",
        ("callboard.testing.connect", "callboard.testing.Peer", "callboard.testing.Refusal"),
        "callboard.testing",
    ),
    "types": Page(
        "Types",
        "Values that handlers take and return, markers for `Annotated[...]`, and extensions.",
        (
            "callboard.Blob",
            "callboard.Image",
            "callboard.Audio",
            "callboard.user",
            "callboard.assistant",
            "callboard.Doc",
            "callboard.Header",
            "callboard.server.Titles",
            "callboard.ToolAnnotations",
            "callboard.ResourceLink",
            "callboard.TextResourceContents",
            "callboard.codecs.revisions.Icon",
            "callboard.Revision",
        ),
        "callboard.server",
    ),
}
"""The pages, in the order of their reading. `callboard` itself is last: what it alone exports is a type."""

FIRST: Final = ("tool", "resource", "call", "read", "prompt", "completion", "middleware", "run")
"""Methods that most readers look for."""

INTERNAL: Final = {"join_workers", "behind", "wants_tokens", "wants_logins"}
"""Methods between a server and callboard's own transports and commands."""

OWN: Final = ("callboard.server", "callboard.client", "callboard.broker", "callboard.testing", "callboard")
"""Packages whose `__all__` users may import from."""


def exported(package: str) -> dict[int, str]:
    """The names of a package by the object behind each, which another package may export as well."""
    module = importlib.import_module(package)
    return {id(getattr(module, name)): f"{package}.{name}" for name in module.__all__ if name != "__version__"}


def placed() -> dict[str, list[str]]:
    """The names of each page. An object is on one page, by the first name that a page has for it."""
    found = {name: list(page.names) for name, page in PAGES.items()}
    known = {id(_object(name)) for names in found.values() for name in names}
    homes = {page.module: name for name, page in PAGES.items() if page.module is not None}
    for package in OWN:
        for key, name in exported(package).items():
            if key not in known:
                found[homes.get(package, "types")].append(name)
                known.add(key)
    return found


def _object(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def page(name: str) -> str:
    """The text of one page."""
    about = PAGES[name]
    names = placed()[name]
    parts = [f"# {about.title}", f"{about.intro} {_MADE}"]
    shown: dict[type, str] = {}
    for one in names:
        parts += section(one, shown)
    return "\n\n".join(part for part in parts if part) + "\n"


def section(name: str, shown: dict[type, str]) -> Iterator[str]:
    """A heading, the signature and the docstring; of a class its members, too.

    *shown* has the classes whose members the page has already, each with the section that has them.
    """
    found, short = _object(name), name.rpartition(".")[2]
    yield f"## {short}"
    yield f"`from {name.rpartition('.')[0]} import {short}`"
    if inspect.isclass(found):
        yield from class_section(found, short, shown)
    elif inspect.isfunction(found):
        yield from function_section(found, short)
    elif isinstance(found, ModuleType):
        yield prose(found.__doc__)
    else:
        yield f"```python\n{short} = {_written(name)}\n```"
        yield prose(_beside(name))


def class_section(found: type, short: str, shown: dict[type, str]) -> Iterator[str]:
    if not found.__module__.startswith("callboard"):
        yield f"The class of that name of {found.__module__.partition('.')[0]}."
        return
    node = _parsed(found)
    bases = [base.__name__ for base in found.__bases__ if base.__module__.startswith("callboard") and base is not found]
    yield prose(found.__doc__) if "__doc__" in vars(found) else ""
    if issubclass(found, Exception) and bases:
        yield f"An exception: a `{bases[0]}`."
    init = vars(found).get("__init__")
    written = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
    if issubclass(found, Enum):
        yield "\n".join(f"- `{short}.{one.name}`: `{one.value}`" for one in found)
    elif init is not None and written is not None:
        yield fenced([signature(written, short, init, is_method=True)])
        yield prose(init.__doc__)
    known = {owner: where for owner, where in shown.items() if owner in found.__mro__}
    if not known:
        yield from fields_table(found)
    for where in dict.fromkeys(known.values()):
        yield f"Further members: those of [{where}](#{where.lower()})."
    for member, owner, nodes in sorted(members(found), key=lambda one: _rank(one[0])):
        if owner not in known:
            shown[owner] = shown.get(owner, short)
            yield from member_section(f"{short}.{member}", getattr(owner, member), nodes)


def member_section(name: str, found: Any, nodes: Sequence[Function]) -> Iterator[str]:
    yield f"### {name}"
    kinds = {getattr(one, "id", getattr(one, "attr", "")) for one in nodes[-1].decorator_list}
    if {"property", "cached_property"} & kinds:
        yield fenced([f"{name}: {_unquoted(nodes[-1].returns)}"])
    else:
        is_static = "staticmethod" in kinds
        yield fenced([signature(one, name, found, is_method=not is_static) for one in told(nodes)])
    yield prose(ast.get_docstring(nodes[-1]) or inspect.getdoc(found))


def function_section(found: Any, short: str) -> Iterator[str]:
    module = ast.parse(inspect.getsource(inspect.getmodule(found) or sys))
    nodes = [one for one in module.body if isinstance(one, Function) and one.name == found.__name__]
    yield fenced([signature(one, short, found) for one in told(nodes)])
    yield prose(found.__doc__)


def told(nodes: Sequence[Function]) -> Sequence[Function]:
    """The overloads, if they say more than the function itself: not where they leave its defaults out."""
    overloads = [one for one in nodes if any(getattr(each, "id", "") == "overload" for each in one.decorator_list)]
    text = "".join(ast.unparse(one.args) for one in overloads)
    return overloads if overloads and "=..." not in text and "Unpack" not in text else nodes[-1:]


def members(found: type) -> Iterator[tuple[str, type, list[Function]]]:
    """Public methods and properties, in the order of the source; those of the class's own first."""
    seen: set[str] = set()
    for owner in found.__mro__:
        if not owner.__module__.startswith("callboard") or (issubclass(owner, BaseException) and owner is not found):
            continue
        grouped: dict[str, list[Function]] = {}
        for one in _parsed(owner).body:
            if isinstance(one, Function) and not one.name.startswith("_"):
                grouped.setdefault(one.name, []).append(one)
        for name, nodes in grouped.items():
            if name not in seen | INTERNAL and not _is_abstract(nodes[-1]):
                seen.add(name)
                yield name, owner, nodes


def _rank(name: str) -> int:
    return FIRST.index(name) if name in FIRST else len(FIRST)


def _is_abstract(node: Function) -> bool:
    return any(getattr(one, "id", "") == "abstractmethod" for one in node.decorator_list)


def fields_table(found: type) -> Iterator[str]:
    """Fields of an attrs class or a TypedDict, values of an enum: each with the text below it, if there is any."""
    init = {field.name: field for field in attrs.fields(found)} if attrs.has(found) else {}
    is_data = attrs.has(found) or hasattr(found, "__total__")
    rows = []
    for owner in reversed([one for one in found.__mro__ if one.__module__.startswith("callboard")]):
        body = _parsed(owner).body
        for one, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and is_data:
                name = one.target.id
                if not name.startswith("_") and "ClassVar" not in ast.unparse(one.annotation):
                    default = _default(init.get(name))
                    rows.append(f"| `{name}` | {_code(one.annotation)} | {default} | {_text(after)} |")
    if rows:
        yield "\n".join(["| field | type | default | |", "|---|---|---|---|", *dict.fromkeys(rows)])


def _default(field: Any) -> str:
    if field is None or field.default is attrs.NOTHING:
        return ""
    made = getattr(field.default, "factory", None)
    if made is not None:
        return f"`{made()!r}`" if made in (dict, list, tuple, frozenset) else "" if not field.init else "made anew"
    name = getattr(field.default, "__name__", None) or repr(field.default)
    return f"`{name}`" if len(name) <= 40 else ""


def _text(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split()).replace("|", "\\|")
    return ""


def _code(node: ast.expr) -> str:
    return f"`{_unquoted(node)}`".replace("|", "\\|")


def _unquoted(node: ast.expr | None) -> str:
    return "None" if node is None else ast.unparse(_Unquote().visit(node))


class _Unquote(ast.NodeTransformer):
    """Annotations in quotes, as if there were none."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if getattr(node.value, "id", "") == "Literal":
            return node
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


def signature(node: Function, name: str, found: Any, *, is_method: bool = False) -> str:
    """A function's first line, with a line for each parameter if it would be long. Constants are their values."""
    arguments = node.args
    values = getattr(inspect.unwrap(getattr(found, "__func__", found)), "__globals__", {})
    arguments.defaults = [_valued(one, values) for one in arguments.defaults]
    arguments.kw_defaults = [None if one is None else _valued(one, values) for one in arguments.kw_defaults]
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for one in (*every, arguments.vararg, arguments.kwarg):
        if one is not None and one.annotation is not None:
            one.annotation = ast.parse(_unquoted(one.annotation), mode="eval").body
    parts = list(_parameters(arguments, drop_first=is_method))
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) and not _yields(node) else ""
    is_made = node.name == "__init__" or node.returns is None
    tail = "" if is_made else f" -> {_unquoted(node.returns)}"
    line = f"{prefix}{name}({', '.join(parts)}){tail}"
    if len(line) <= WIDE:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){tail}"


def _valued(node: ast.expr, values: Mapping[str, Any]) -> ast.expr:
    value = values.get(node.id) if isinstance(node, ast.Name) and node.id.isupper() else None
    is_plain = isinstance(value, int | float | str) and not isinstance(value, Enum)
    return ast.Constant(value) if is_plain else node


def _yields(node: Function) -> bool:
    return any(isinstance(one, ast.Yield) for one in ast.walk(node))


def _parameters(arguments: ast.arguments, *, drop_first: bool) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    last_posonly = arguments.posonlyargs[-1] if arguments.posonlyargs else None
    for number, (one, default) in enumerate(zip(positional, defaults, strict=True)):
        if not (drop_first and number == 0):
            yield _parameter(one, default)
        if one is last_posonly and not (drop_first and number == 0):
            yield "/"
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(one, default)
    if arguments.kwarg is not None:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(one)
    equals = " = " if one.annotation is not None else "="
    return f"{ast.unparse(one)}{equals}{ast.unparse(default)}"


def fenced(lines: Iterable[str]) -> str:
    return "```python\n" + "\n".join(lines) + "\n```"


def prose(text: str | None) -> str:
    """A docstring, as Markdown: it is written so."""
    return "" if text is None else inspect.cleandoc(text)


def _parsed(found: type) -> ast.ClassDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]
    if not isinstance(node, ast.ClassDef):
        raise TypeError(found)
    return node


def _assigned(name: str) -> tuple[ast.AnnAssign | ast.Assign, ast.stmt | None]:
    """Where a constant or an alias is given its value, in the module that it comes from."""
    package, _, short = name.rpartition(".")
    module = importlib.import_module(getattr(importlib.import_module(package), "_MODULES", {}).get(short, package))
    body = ast.parse(inspect.getsource(module)).body
    for one, after in zip(body, [*body[1:], None], strict=True):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        if isinstance(one, ast.AnnAssign | ast.Assign) and any(getattr(each, "id", "") == short for each in targets):
            return one, after
        if isinstance(one, ast.ImportFrom) and one.module and any(alias.name == short for alias in one.names):
            return _assigned(f"{one.module}.{short}")
    raise LookupError(name)


def _written(name: str) -> str:
    value = _assigned(name)[0].value
    return "..." if value is None else ast.unparse(value)


def _beside(name: str) -> str:
    return _text(_assigned(name)[1])


def undocumented() -> list[str]:
    """Public names and members without a docstring."""
    missing = []
    for name in (one for names in placed().values() for one in names):
        found = _object(name)
        if not inspect.isclass(found):
            if inspect.isfunction(found) and not found.__doc__:
                missing.append(name)
            continue
        if not found.__module__.startswith("callboard"):
            continue
        if "__doc__" not in vars(found) or not found.__doc__:
            missing.append(name)
        missing += [
            f"{name}.{member}"
            for member, owner, nodes in members(found)
            if not (ast.get_docstring(nodes[-1]) or inspect.getdoc(getattr(owner, member)))
        ]
    return missing


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for each in PAGES:
        (HERE / f"{each}.md").write_text(page(each), encoding="utf-8")
