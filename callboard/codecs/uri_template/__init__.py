"""URI templates (RFC 6570): parsed, expanded, and matched backwards."""

from callboard.codecs.uri_template.template import UriTemplate

__all__ = ["UriTemplate"]
