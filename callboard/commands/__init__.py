"""The commands, one idea to a file; `callboard.cli` puts them together."""
