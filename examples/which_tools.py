"""Which tools of which servers take a file path? A query over a recorded session (needs the extra `rdf`).

callboard serve mcp.json --record session.jsonl
callboard convert session.jsonl > session.ttl
python examples/which_tools.py session.ttl
"""

import sys
from pathlib import Path

from rdflib import Graph

QUERY = """
PREFIX mcp: <http://modelcontextprotocol.io/ontology#>
PREFIX rec: <urn:callboard:recording:>

SELECT DISTINCT ?server ?tool ?parameter WHERE {
  ?line rec:server ?server ; rec:message/mcp:result/mcp:tools ?node .
  ?node a mcp:Tool ; mcp:name ?tool ; mcp:inputSchema/mcp:properties ?parameters .
  ?parameters ?predicate ?anything .
  BIND(STRAFTER(STR(?predicate), "#") AS ?parameter)
  FILTER REGEX(?parameter, "path|file|folder|director", "i")
}
ORDER BY ?server ?tool ?parameter
"""


def rows(turtle: str) -> list[list[str]]:
    """Server, tool and parameter of each."""
    found = Graph().parse(data=turtle, format="turtle").query(QUERY)
    return [[str(cell) for cell in row] for row in found if not isinstance(row, bool)]


if __name__ == "__main__":
    for row in rows(Path(sys.argv[1]).read_text()):
        print("\t".join(row))
