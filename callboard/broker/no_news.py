"""What a context of a broker has in the place of a server that tells its clients of changes."""

from typing import Final, NoReturn

from callboard.actors.changes import ListName


class NoNews:
    """A broker tells its clients of changes when its backends do."""

    def notify_updated(self, uri: str) -> NoReturn:
        raise RuntimeError("a broker cannot tell clients of changes: backends do")

    def notify_changed(self, name: ListName) -> NoReturn:
        raise RuntimeError("a broker cannot tell clients of changes: backends do")

    def complete_elicitation(self, elicitation_id: str) -> bool:
        return False

    def own_name(self, name: str) -> str:
        return name


NO_NEWS: Final = NoNews()
