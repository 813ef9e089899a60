"""Fill a form: say what it would write."""

import sys

print(*sys.argv[1:])
