"""The decorators of a server: functions become tools, resources, prompts and completions of its registry."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, overload

import attrs

from callboard.actors.changes import Change, ListChanged
from callboard.actors.rules import checked_scopes
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.bridge.transparent import UI
from callboard.codecs.mcp_headers.header_map import HeaderMap
from callboard.codecs.revisions import (
    UNSET,
    Annotations,
    CacheScope,
    Icon,
    JSONObject,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    Tool,
    ToolAnnotations,
    ToolExecution,
    UnsetType,
)
from callboard.codecs.revisions.meta import is_valid_meta_key
from callboard.codecs.uri_template.template import UriTemplate
from callboard.server.apps import PAGE_TYPE, Apps, Visibility, checked_uri, page_meta, page_reader, with_page
from callboard.server.context import Context, InputRequired
from callboard.server.extension import Extension
from callboard.server.given import icons_of, model_of
from callboard.server.middleware import Middleware
from callboard.server.misuse import check_decorated, check_returns, check_uri
from callboard.server.registry import (
    CacheHint,
    Function,
    HandlerEntry,
    Loop,
    Offered,
    PromptEntry,
    Registry,
    ResourceEntry,
    TemplateEntry,
    ToolEntry,
)
from callboard.server.signature.signature import Signature
from callboard.server.tasks import Tasks, TaskUse, task_policy

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
W = TypeVar("W", bound=Middleware)


class Decorators(ABC):
    """What a server offers, and how functions are added to it. They may come and go while it runs."""

    registry: Registry
    middlewares: list[Middleware]
    extensions: list[Extension]

    @abstractmethod
    def extend(self, extension: Extension) -> None:
        """Add an extension, before the server runs."""

    @abstractmethod
    def _offer(self, kind: Offered, signature: Signature | None = None) -> None:
        """Declare the kind of a handler."""

    @abstractmethod
    def _changed(self, change: Change) -> None:
        """Tell the clients of a running server."""

    @abstractmethod
    def _placed(self, function: Function, signature: Signature, loop: Loop | None) -> Function:
        """The function as Trio calls it: one for asyncio runs beside it."""

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        annotations: ToolAnnotations | Mapping[str, Any] | None = ...,
        read_only: bool | None = ...,
        icons: Sequence[Icon | Mapping[str, Any]] = ...,
        meta: JSONObject | None = ...,
        scopes: Iterable[str] = ...,
        input_schema: Mapping[str, Any] | None = ...,
        output_schema: Mapping[str, Any] | bool = ...,
        task: TaskUse = ...,
        task_after: float | None = ...,
        ui: str | None = ...,
        visibility: Collection[Visibility] = ...,
        loop: Loop | None = ...,
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | Mapping[str, Any] | None = None,
        read_only: bool | None = None,
        icons: Sequence[Icon | Mapping[str, Any]] = (),
        meta: JSONObject | None = None,
        scopes: Iterable[str] = (),
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | bool = True,
        task: TaskUse = "never",
        task_after: float | None = None,
        ui: str | None = None,
        visibility: Collection[Visibility] = (),
        loop: Loop | None = None,
    ) -> Any:
        """Offer a function as a tool. Its signature is the schema, its docstring the description.

        A caller whose token lacks one of the *scopes* is told so, and the function is not run. With *task* calls may
        go on as tasks: an optional one after *task_after* seconds, if its client knows tasks; a required one at once.
        *ui* is the page that shows the result (see `app`); a tool of the *visibility* `app` alone is for that page and
        not for the model. With `loop="asyncio"` an async function runs on asyncio, in a thread beside Trio's; default:
        the server's loop. *read_only*: whether it changes nothing, for hosts that ask their user before changes; short
        for the `read_only_hint` of *annotations*, which may be a dict: `{"readOnlyHint": True}`. So may icons.
        """
        check_decorated(function, "tool")
        hints = None if annotations is None else model_of(ToolAnnotations, annotations, "annotations")
        if read_only is not None:
            hints = attrs.evolve(hints or ToolAnnotations(), read_only_hint=read_only)
        pictures = icons_of(icons) or UNSET
        needed, policy, said = checked_scopes(scopes), task_policy(task, task_after), with_page(meta, ui, visibility)
        if policy is not None and all(one.id != EXTENSION for one in self.extensions):
            self.extend(Tasks())

        def add(function: F) -> F:
            check_returns(function, "tool")
            signature = Signature.of(
                function,
                context_type=Context,
                name=name,
                description=description,
                input_schema=input_schema,
                output_schema=output_schema,
                plain=(InputRequired,),
            )
            tool = Tool(
                name=_tool_name(signature.name),
                title=or_unset(title),
                description=or_unset(signature.description or None),
                input_schema=signature.input_schema,
                output_schema=UNSET if signature.output is None else signature.output.schema,
                annotations=or_unset(hints),
                icons=pictures,
                meta=_checked(said),
                execution=UNSET if task == "never" else ToolExecution(task_support=task),
            )
            headers = HeaderMap.compile(signature.input_schema)
            placed = self._placed(function, signature, loop)
            entry = ToolEntry(
                function=placed, signature=signature, scopes=needed, shown=tool, headers=headers, task=policy
            )
            self.registry.tools.add(tool.name, entry)
            self._offer("tools", signature)
            self._changed(ListChanged("tools"))
            return function

        return add if function is None else add(function)

    def app(
        self,
        uri: str,
        file: str | Path,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        csp: JSONObject | None = None,
        permissions: JSONObject | None = None,
        domain: str | None = None,
        prefers_border: bool | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        """Offer the page in *file*, which is HTML, as an MCP App at *uri*: `ui://NAME`. Tools name it by `ui=`.

        *csp* and *permissions* say what the page may load and use, *domain* the origin that it wants, all as the
        specification of MCP Apps has them. Raises ValueError for another URI, FileNotFoundError without the file.
        """
        path = Path(file)
        path.stat()
        about = page_meta(csp, permissions, domain, prefers_border)
        if all(one.id != UI for one in self.extensions):
            self.extend(Apps())
        self.resource(
            checked_uri(uri),
            name=name or path.stem,
            title=title,
            description=description,
            mime_type=PAGE_TYPE,
            meta={"ui": about} if about else None,
            scopes=scopes,
        )(page_reader(uri, path, about))

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
        icons: Sequence[Icon | Mapping[str, Any]] = (),
        meta: JSONObject | None = None,
        scopes: Iterable[str] = (),
        ttl: float = 0,
        cache_scope: CacheScope = "private",
        loop: Loop | None = None,
    ) -> Callable[[F], F]:
        """Offer a function as a resource, or with `{variables}` in *uri* as a template of resources.

        A client may keep what was read for *ttl* seconds, and share it among its users if *cache_scope* is public.
        A function that returns None says that there is no such resource. *scopes* are those that a token needs to read.

        Raises ValueError if *uri* has no scheme, and TypeError if the function does not take just these variables.
        """
        check_uri(uri)
        if _SCHEME.match(uri) is None:
            raise ValueError(f"invalid URI {uri!r}: no scheme; expected for example notes://{uri}")
        template, kept, needed = UriTemplate.parse(uri), CacheHint.of(ttl, cache_scope), checked_scopes(scopes)
        hints = None if annotations is None else model_of(Annotations, annotations, "annotations")
        pictures = icons_of(icons) or UNSET

        def add(function: F) -> F:
            check_returns(function, "resource")
            signature = Signature.of(
                function, context_type=Context, name=name, description=description, output_schema=False
            )
            _check_variables(signature, template)
            placed = self._placed(function, signature, loop)
            common: dict[str, Any] = {
                "name": signature.name,
                "title": or_unset(title),
                "description": or_unset(signature.description or None),
                "mime_type": or_unset(mime_type),
                "annotations": or_unset(hints),
                "icons": pictures,
                "meta": _checked(meta),
            }
            if template.variables:
                many = ResourceTemplate(uri_template=uri, **common)
                self.registry.templates.add(
                    uri,
                    TemplateEntry(
                        function=placed,
                        signature=signature,
                        scopes=needed,
                        shown=many,
                        template=template,
                        kept=kept,
                    ),
                )
            else:
                one = Resource(uri=uri, size=or_unset(size), **common)
                self.registry.resources.add(
                    uri,
                    ResourceEntry(function=placed, signature=signature, scopes=needed, shown=one, kept=kept),
                )
            self._offer("resources", signature)
            self._changed(ListChanged("resources"))
            return function

        return add

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        icons: Sequence[Icon | Mapping[str, Any]] = ...,
        meta: JSONObject | None = ...,
        scopes: Iterable[str] = ...,
        loop: Loop | None = ...,
    ) -> Callable[[F], F]: ...
    def prompt(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon | Mapping[str, Any]] = (),
        meta: JSONObject | None = None,
        scopes: Iterable[str] = (),
        loop: Loop | None = None,
    ) -> Any:
        """Offer a function as a prompt. What it returns are the messages. *scopes* are those that a token needs."""
        check_decorated(function, "prompt")
        needed, pictures = checked_scopes(scopes), icons_of(icons) or UNSET

        def add(function: F) -> F:
            check_returns(function, "prompt")
            signature = Signature.of(
                function, context_type=Context, name=name, description=description, output_schema=False
            )
            arguments = [
                PromptArgument(
                    name=parameter.name,
                    title=or_unset(parameter.schema.get("title")),
                    description=or_unset(parameter.schema.get("description")),
                    required=parameter.required,
                )
                for parameter in signature.parameters
            ]
            prompt = Prompt(
                name=signature.name,
                title=or_unset(title),
                description=or_unset(signature.description or None),
                arguments=arguments or UNSET,
                icons=pictures,
                meta=_checked(meta),
            )
            placed = self._placed(function, signature, loop)
            entry = PromptEntry(function=placed, signature=signature, scopes=needed, shown=prompt)
            self.registry.prompts.add(prompt.name, entry)
            self._offer("prompts", signature)
            self._changed(ListChanged("prompts"))
            return function

        return add if function is None else add(function)

    def completion(self, of: str, argument: str, *, loop: Loop | None = None) -> Callable[[F], F]:
        """Offer a function that completes an *argument* of a prompt (by name) or of a template (by its text).

        It takes what was typed so far as `value`, and by keyword the arguments that are settled already, if it names
        any; it returns the candidates.
        """

        def add(function: F) -> F:
            signature = Signature.of(function, context_type=Context, output_schema=False)
            entry = HandlerEntry(function=self._placed(function, signature, loop), signature=signature)
            self.registry.complete(of, argument, entry)
            self._offer("completions", signature)
            return function

        return add

    def middleware(self, function: W) -> W:
        """Have every call, read, prompt, completion and list pass through *function*, the first one added outermost.

        ```python
        @server.middleware
        async def timed(ctx, go_on):
            started = trio.current_time()
            result = await go_on()
            print(ctx.method, ctx.target, trio.current_time() - started)
            return result
        ```

        `ctx.arguments`, `ctx.caller` and `ctx.headers` say more. One that returns without `go_on` answers itself; one
        that raises `ToolError` refuses the call.
        """
        self.middlewares.append(function)
        self._offer("logging")
        return function

    def remove_tool(self, name: str) -> None:
        """Raises LookupError if there is none."""
        self.registry.tools.remove(name)
        self._changed(ListChanged("tools"))

    def remove_resource(self, uri: str) -> None:
        """Remove a resource, or a template. Raises LookupError if there is none."""
        (self.registry.templates if uri in self.registry.templates.entries else self.registry.resources).remove(uri)
        self._changed(ListChanged("resources"))

    def remove_prompt(self, name: str) -> None:
        """Raises LookupError if there is none."""
        self.registry.prompts.remove(name)
        self._changed(ListChanged("prompts"))


def _tool_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"invalid tool name {name[:200]!r}: expected 1 to 128 of A-Z a-z 0-9 _ - .")
    return name


def _checked(meta: JSONObject | None) -> JSONObject | UnsetType:
    for key in meta or ():
        if not is_valid_meta_key(key):
            raise ValueError(
                f"invalid key {key[:200]!r} for _meta: expected NAME or PREFIX/NAME, such as example.com/name"
            )
    return or_unset(meta)


def or_unset(value: T | None) -> T | UnsetType:
    """A member that is left out if it has no value."""
    return UNSET if value is None else value


def _check_variables(signature: Signature, template: UriTemplate) -> None:
    taken = {parameter.name for parameter in signature.parameters}
    needed = {parameter.name for parameter in signature.parameters if parameter.required}
    if not needed <= set(template.variables) <= taken:
        raise TypeError(f"{signature.name}(): takes {sorted(taken)}, but the template has {sorted(template.variables)}")
    if template.unmatchable is not None and template.variables:
        raise TypeError(f"{signature.name}(): URIs cannot be matched with this template: {template.unmatchable}")
