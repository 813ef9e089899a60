"""The broker's company: backends, the connections to them, and what crosses from one side to the other."""
