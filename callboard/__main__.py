"""`python -m callboard`."""

from callboard.cli.main import main

main()
