"""The parts of the hosting API that need no actor: signatures, content, forms.

What a handler's signature says, what its return value means, and what a class asks of a user. Front-door code: it
knows the protocol's models and nothing of who carries them.
"""

from msgspec import Meta

from callboard.hosting.content import assistant, to_contents, to_messages, to_result, user
from callboard.hosting.docstrings import Docstring
from callboard.hosting.errors import BadArguments, BadForm, BadResult, ToolError, Unfit
from callboard.hosting.failures import error_result, failure_text, is_unexpected
from callboard.hosting.forms import form_for, form_of, read_form
from callboard.hosting.markers import Doc, Email, Header, Titles, Uri
from callboard.hosting.media import Audio, Blob, Image
from callboard.hosting.output import Output
from callboard.hosting.parameters import Parameter
from callboard.hosting.problems import Problem
from callboard.hosting.schemas import compile_schema
from callboard.hosting.signature import Arguments, Signature

__all__ = [
    "Arguments",
    "Audio",
    "BadArguments",
    "BadForm",
    "BadResult",
    "Blob",
    "Doc",
    "Docstring",
    "Email",
    "Header",
    "Image",
    "Meta",
    "Output",
    "Parameter",
    "Problem",
    "Signature",
    "Titles",
    "ToolError",
    "Unfit",
    "Uri",
    "assistant",
    "compile_schema",
    "error_result",
    "failure_text",
    "form_for",
    "form_of",
    "is_unexpected",
    "read_form",
    "to_contents",
    "to_messages",
    "to_result",
    "user",
]
