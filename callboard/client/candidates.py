"""The values that complete an argument, as a client gets them."""

from msgspec import UNSET

from callboard.codecs.revisions import Completion


class Candidates(list[str]):
    """The values of one completion, at most a hundred, and how many more the server knows of."""

    def __init__(self, completion: Completion) -> None:
        super().__init__(completion.values)
        self.total: int | None = None if completion.total is UNSET else completion.total
        """How many there are in all; None if the server does not say."""
        self.has_more: bool = completion.has_more is True or len(self) < (self.total or 0)
        """Whether there are more than these, by either of what the server says."""
