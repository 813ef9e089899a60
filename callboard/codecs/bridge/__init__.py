"""What becomes of a message that crosses from one connection to the other: pure functions, one for each kind of it."""
