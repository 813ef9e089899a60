"""A server with skills, as the official suite wants one: a nested folder, several files, more than one page."""

import atexit
import shutil
import tempfile
from pathlib import Path

from callboard import Server

FOLDER = Path(tempfile.mkdtemp(prefix="callboard-skills-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def write(name: str, **files: str) -> None:
    place = FOLDER / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {place.name}\ndescription: How to use {place.name}.\n---\n# {name}\n")
    for file, text in files.items():
        path = place / file.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


write("pdf", references__FORMS_md="# Forms\n", scripts__fill_py="print()\n")
write("team/data-analysis", notes_txt="a\n")
for number in range(22):
    write(f"zoo/skill-{number}")

server = Server("skilled", version="1.0.0")
server.skills(FOLDER)
