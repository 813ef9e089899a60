"""Run the official conformance suite and print what each scenario found.

python -m tests.conformance.run                             callboard itself, by each of its doors, at every revision;
                                                            then its client
python -m tests.conformance.run --client                    its client alone
python -m tests.conformance.run --broker                    a server behind its broker: by every transport, and across
                                                            the eras, where what cannot be carried is named
python -m tests.conformance.run --url URL [--revision REV]  any server that offers what the suite asks for

The exit status is 0 only if something passed and nothing failed. No failure is ever expected.
"""

import argparse
import sys

from tests.conformance import client_suite, suite
from tests.conformance.brokered import ACROSS, EVERYTHING, REVISIONS, TRANSPORTS
from tests.conformance.suite import Report
from tests.node import NPM
from tests.served import brokered, served

HTTP_ENGINES = ("native", "asgi")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="the MCP endpoint of a server that runs already")
    parser.add_argument("--client", action="store_true", help="examine callboard's client alone")
    parser.add_argument("--broker", action="store_true", help="examine callboard's broker alone")
    parser.add_argument("--http-engine", choices=HTTP_ENGINES, action="append", help="of callboard; both if not given")
    parser.add_argument("--revision", "--requirements", choices=suite.SELECTIONS, action="append")
    options = parser.parse_args()
    if NPM is None:
        parser.error("the suite is installed by npm, and npm is not installed")
    revisions = options.revision or list(suite.SELECTIONS)
    if options.url:
        return 0 if examine(options.url, options.url, revisions) else 1
    if options.broker:
        return 0 if examine_broker() else 1
    good = True
    for engine in () if options.client else options.http_engine or HTTP_ENGINES:
        with served(EVERYTHING, "--http-engine", engine) as at:
            good = examine(f"callboard, {engine} engine", at.http, revisions) and good
    if not options.http_engine:
        good = examine_client(revisions) and good
    if not options.http_engine and not options.client:
        good = examine_broker() and good
    return 0 if good else 1


def examine(what: str, url: str, revisions: list[str]) -> bool:
    """Say what the suite finds at *url*; whether all of it is good."""
    good = True
    for revision in revisions:
        good = said(f"{what}, {revision}", suite.run(url, revision)) and good
    return good


def examine_client(revisions: list[str]) -> bool:
    """Say what the suite finds of our client; whether all of it is good. Extensions are shown, and not counted."""
    good = True
    for revision in revisions:
        good = said(f"callboard, client, {revision}", client_suite.run(revision)) and good
    said("callboard, client, extensions", client_suite.run(client_suite.EXTENSIONS))
    return good


def examine_broker() -> bool:
    """Say what the suite finds of a server behind the broker; whether all of it is good that can be."""
    good = True
    for transport in TRANSPORTS:
        with brokered(EVERYTHING, transport) as at:
            good = examine(f"callboard, broker, {transport} backend", at.http, list(REVISIONS)) and good
    for across in ACROSS:
        with brokered(EVERYTHING, "http", "--revisions", across.backend) as at:
            report = suite.run(at.http, across.suite)
        said(f"callboard, broker, {across.suite} in front of {across.backend}", report)
        for name, reason in across.lossy.items():
            sys.stdout.write(f"cannot be carried: {name}: {reason}\n")
        failed = {scenario.name for scenario in report.scenarios if scenario.verdict == "failed"}
        good = failed <= set(across.lossy) and good
    return good


def said(what: str, report: Report) -> bool:
    sys.stdout.write(f"{what}\n{report}\n\n")
    sys.stdout.flush()
    return report.good


if __name__ == "__main__":
    sys.exit(main())
