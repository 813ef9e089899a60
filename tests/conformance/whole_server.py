"""Everything that the official suite asks of a server, its extensions too: the three servers of these tests as one."""

from callboard.server.load import load_server
from tests.conformance import tasks_server
from tests.conformance.skills_server import FOLDER
from tests.shared import ROOT

server = load_server(str(ROOT / "examples" / "everything.py"))
server.skills(FOLDER)
server.tool(tasks_server.greet)
server.tool(task="optional")(tasks_server.slow_compute)
server.tool(task="optional")(tasks_server.test_tool_with_task)
server.tool(task="required")(tasks_server.failing_job)
server.tool(task="required")(tasks_server.protocol_error_job)
server.tool(task="required")(tasks_server.confirm_delete)
server.tool(task="required")(tasks_server.multi_input)
