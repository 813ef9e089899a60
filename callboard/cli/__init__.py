"""The command line: one command to a file; `callboard.cli.main` puts them together."""
