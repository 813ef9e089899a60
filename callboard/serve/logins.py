"""Whether users of a broker have to log in at the servers behind it. What comes of that takes time to load."""

from typing import TYPE_CHECKING

from callboard.errors import CannotServe
from callboard.server.served import Hosted

if TYPE_CHECKING:
    from callboard.broker.broker import Broker
    from callboard.serve.options import ServePlan
    from callboard.transports.server.http.endpoint import Pages


def broker_with_logins(server: Hosted) -> "Broker | None":
    """*server* as a broker, if its users have to log in at a backend; else None."""
    if server.behind() is None:
        return None
    from callboard.broker.broker import Broker  # servers do without

    return server if isinstance(server, Broker) and server.wants_logins else None


async def open_logins(server: Hosted, plan: "ServePlan") -> "Pages | None":
    """Let the users of *server* log in, if they have to. Raises `CannotServe` if they could not."""
    broker = broker_with_logins(server)
    if broker is None:
        return None
    check_alone(plan)
    from callboard.serve.login_pages import open_pages

    return await open_pages(broker, plan)


def check_alone(plan: "ServePlan") -> None:
    """Raises `CannotServe` if several processes would serve logins: what has begun is known in one of them."""
    if plan.workers > 1 or plan.cluster is not None or plan.worker is not None:
        raise CannotServe('oauth.grant "user" is served by one process: use it without --workers and --cluster')
