"""Options of a cluster: where its nodes meet, and what each of them needs to be believed by the others."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from callboard.cluster.url import StoreUrl
from callboard.codecs.http.access import is_wildcard
from callboard.config.files import NotRegular, read_file
from callboard.errors import CannotServe

if TYPE_CHECKING:
    from callboard.workers.node_tls import NodeCertificate

MAX_PASSWORD: Final = 4096

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@attrs.frozen(kw_only=True)
class ClusterPlan:
    """A node's part in a cluster."""

    url: str
    name: str
    address: str
    cert: Path
    key: Path
    ca: Path
    password_file: Path | None = None

    def certificate(self) -> "NodeCertificate":
        """Raises `CannotServe`."""
        from callboard.workers.node_tls import NodeCertificate  # which a worker has, and its parent has not

        return NodeCertificate(self.cert, self.key, ca=self.ca)

    def password(self) -> str | None:
        """Raises `CannotServe`."""
        if self.password_file is None:
            return None
        try:
            contents = read_file(self.password_file, MAX_PASSWORD)
            password = contents.data.decode().strip("\r\n")
        except (OSError, NotRegular, UnicodeDecodeError) as error:
            raise CannotServe(f"{self.password_file}: {error}") from None
        if contents.mode & 0o077:
            raise CannotServe(f"{self.password_file}: other users can read it; run chmod 600 on it")
        return password


def cluster_plan(
    *,
    url: str | None,
    name: str | None,
    address: str | None,
    cert: str | None,
    key: str | None,
    ca: str | None,
    password_file: str | None,
    has_keys: bool,
) -> ClusterPlan | None:
    """None without a cluster. Raises `CannotServe` if something is missing."""
    given = {"--cluster-address": address, "--cluster-cert": cert, "--cluster-key": key, "--cluster-ca": ca}
    if url is None:
        useless = [flag for flag, value in given.items() if value is not None]
        if useless or name is not None or password_file is not None:
            raise CannotServe(f"{next(iter(useless), '--cluster-name')} needs --cluster URL")
        return None
    StoreUrl.parse(url)  # what is wrong with it is said before anything starts
    if not has_keys:
        raise CannotServe("--cluster needs --state-key-file FILE: the same keys on all nodes")
    if address is None or cert is None or key is None or ca is None:
        missing = next(flag for flag, value in given.items() if value is None)
        raise CannotServe(f"--cluster needs {missing}: nodes speak to each other by TLS with certificates of their own")
    if is_wildcard(address) or not address:
        raise CannotServe("--cluster-address: expected the address at which other nodes reach this one")
    if not _NAME.fullmatch(name or "callboard"):
        raise CannotServe("--cluster-name: expected up to 64 letters, digits, dots, dashes and underscores")
    plan = ClusterPlan(
        url=url,
        name=name or "callboard",
        address=address,
        cert=Path(cert),
        key=Path(key),
        ca=Path(ca),
        password_file=None if password_file is None else Path(password_file),
    )
    plan.certificate()  # here, too
    return plan
