"""A broker that makes spans, in a process of its own: traced_broker.py SPANS COMMAND..."""

import sys

from callboard.broker import Broker
from callboard.config import BackendSpec
from callboard.serve.banner import announce_json
from callboard.transports.client.process import Command
from tests.observe.span_file import write_spans

if __name__ == "__main__":
    spans, *command = sys.argv[1:]
    write_spans(spans)
    broker = Broker([BackendSpec(name="official", target=Command(args=tuple(command)))])
    broker.run(http="127.0.0.1:0", trace=True, on_ready=announce_json)
