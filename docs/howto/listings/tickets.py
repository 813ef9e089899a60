import os
from pathlib import Path

from callboard import Server

server = Server.from_openapi(
    Path(__file__).with_name("tickets.json"),
    base_url=os.environ.get("TICKETS_URL", "https://tickets.example.com/v1"),
    headers={"X-Key": os.environ.get("TICKETS_KEY", "")},
)
