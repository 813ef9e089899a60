"""OAuth 2.1 for a client: what is asked, where, in which order, and which answers are believed. No I/O."""
