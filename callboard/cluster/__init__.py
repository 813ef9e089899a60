"""Several nodes, each a parent with its workers: who is there, what they know of sessions, and what they tell."""
