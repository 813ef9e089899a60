"""Whether a token is good: the side of a server that is protected."""
