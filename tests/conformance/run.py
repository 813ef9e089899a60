"""Run the official conformance suite and print what each scenario found.

python -m tests.conformance.run                             examples/everything.py by every door of callboard, with and
                                                            without a broker; across the eras, where what cannot be
                                                            carried is named; then callboard's client
python -m tests.conformance.run --door broker-http          by one door
python -m tests.conformance.run --client                    the client alone
python -m tests.conformance.run --url URL [--revision REV]  any server that offers what the suite asks for

The exit status is 0 only if every scenario passed, extensions included: at a server of yours, if something passed and
nothing failed. No failure is ever expected but what is named across the eras.
"""

import argparse
import sys

from tests.conformance import client_suite, suite
from tests.conformance.doors import ACROSS, DOORS, stages_of
from tests.conformance.suite import EVERY, OLDER, SELECTIONS, Report
from tests.node import NPM


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="the MCP endpoint of a server that runs already")
    parser.add_argument("--revision", choices=SELECTIONS, action="append", help="of that server; all if not given")
    parser.add_argument("--door", choices=DOORS, action="append", help="examine callboard by this door alone")
    parser.add_argument("--client", action="store_true", help="examine callboard's client alone")
    options = parser.parse_args()
    if NPM is None:
        parser.error("the suite is installed by npm, and npm is not installed")
    if options.url:
        stages = [(SELECTIONS[revision],) for revision in options.revision or ()] or (*EVERY, *OLDER)
        return 0 if said(options.url, suite.run(options.url, *stages)).good else 1
    is_all = not options.door and not options.client
    good = [examine_door(door) for door in (DOORS if is_all else options.door or ())]
    good += [examine_across()] if is_all else []
    good += [examine_client()] if is_all or options.client else []
    return 0 if all(good) else 1


def examine_door(door: str) -> bool:
    """Say what the suite finds behind a door; whether every scenario passed."""
    with DOORS[door]() as at:
        return said(f"callboard, {door}", suite.run(at.http, *stages_of(door))).is_complete


def examine_across() -> bool:
    """Say what the suite finds where a broker translates; whether only that failed which cannot be carried."""
    good = True
    for across in ACROSS:
        with across() as at:
            report = suite.run(at.http, *across.stages)
        said(f"callboard, broker, {across.client} in front of {across.backend}", report)
        for name, reason in across.lossy.items():
            sys.stdout.write(f"cannot be carried: {name}: {reason}\n")
        good = {scenario.name for scenario in report.of("failed")} == set(across.lossy) and good
    return good


def examine_client() -> bool:
    """Say what the suite finds of our client; whether all of it is good."""
    good = True
    for revision in (*SELECTIONS, client_suite.EXTENSIONS):
        good = said(f"callboard, client, {revision}", client_suite.run(revision)).good and good
    return good


def said(what: str, report: Report) -> Report:
    sys.stdout.write(f"{what}\n{report}\n\n")
    sys.stdout.flush()
    return report


if __name__ == "__main__":
    sys.exit(main())
