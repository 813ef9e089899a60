"""`python -m callboard`."""

from callboard.cli import main

main()
