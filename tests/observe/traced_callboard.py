"""`callboard` with spans that go to a file: traced_callboard.py SPANS ARGUMENTS..."""

import sys

from callboard.cli.main import main
from tests.observe.span_file import write_spans

if __name__ == "__main__":
    write_spans(sys.argv.pop(1))
    main()
