"""What a node of a cluster must be given: refused in one line, before anything starts."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from callboard.cluster.url import StoreUrl
from callboard.errors import CannotServe
from callboard.serve.options import ServePlan
from tests.certificate import Authority


def options(folder: Path) -> dict[str, Any]:
    authority = Authority.create(folder)
    certificate, key = authority.sign(folder, "127.0.0.2")
    return {
        "http": 0,
        "cluster": "redis://127.0.0.1:1",
        "cluster_address": "127.0.0.2",
        "cluster_cert": str(certificate),
        "cluster_key": str(key),
        "cluster_ca": str(authority.file),
        "state_key_file": str(folder / "keys"),
    }


def test_a_node_needs_certificates_an_address_and_keys(tmp_path: Path) -> None:
    given = options(tmp_path)
    plan = ServePlan(**given)
    assert plan.cluster is not None
    assert plan.cluster.name == "callboard"
    for name in ("cluster_address", "cluster_cert", "cluster_key", "cluster_ca", "state_key_file"):
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(CannotServe, match=flag):
            ServePlan(**{**given, name: None})
    with pytest.raises(CannotServe, match="needs --cluster URL"):
        ServePlan(**{**given, "cluster": None})
    with pytest.raises(CannotServe, match="stdio"):
        ServePlan(**{**given, "http": None})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cluster": "redis://:s3cret@host"}, "--cluster-password-file"),
        ({"cluster": "valkeys://:s3cret@host"}, "--cluster-password-file"),
        ({"cluster": "http://host"}, "expected redis://"),
        ({"cluster": "valkey://"}, "expected redis://"),
        ({"cluster": "unix:"}, "expected redis://"),
        ({"cluster": "redis://host:99999"}, "invalid URL"),
        ({"cluster": "redis://host?db=x"}, "invalid db 'x'"),
        ({"cluster": "redis://host?db"}, "invalid URL"),
        ({"cluster": "rediss://host?ssl_cert_reqs=none"}, "unknown parameter 'ssl_cert_reqs'"),
        ({"cluster": "redis://host?ssl_ca_certs=ca.pem"}, "unknown parameter 'ssl_ca_certs' in a URL of redis://"),
        ({"cluster": "valkeys://host?ssl_ca_certs=/nowhere"}, "/nowhere"),
        ({"cluster": "redis://[host"}, "invalid URL"),
        ({"cluster_address": "0.0.0.0"}, "--cluster-address"),  # noqa: S104
        ({"cluster_address": "::"}, "--cluster-address"),
        ({"cluster_name": "a{b}"}, "--cluster-name"),
        ({"cluster_ca": "/nowhere"}, "/nowhere"),
    ],
)
def test_what_cannot_be_is_refused_without_showing_secrets(changed: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(CannotServe, match=said) as refused:
        ServePlan(**{**options(tmp_path), **changed})
    assert "s3cret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("redis://host:1/2", "redis://host:1/2"),
        ("valkey://host", "redis://host"),
        ("rediss://user@host:1", "rediss://user@host:1"),
        ("valkeys://host?db=3", "rediss://host?db=3"),
        ("unix:///run/valkey.sock?db=3", "unix:///run/valkey.sock?db=3"),
    ],
)
def test_valkey_is_written_as_redis_is_and_tls_checks_the_name(given: str, read: str, tmp_path: Path) -> None:
    assert ServePlan(**{**options(tmp_path), "cluster": given}).cluster is not None
    place = StoreUrl.parse(given)
    assert place.url == read
    if not read.startswith("rediss:"):
        assert place.tls is None
    else:
        assert place.tls is not None
        assert (place.tls.check_hostname, place.tls.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_a_ca_that_is_none_is_refused(tmp_path: Path) -> None:
    given = options(tmp_path)
    (tmp_path / "none.pem").write_text("none")
    with pytest.raises(CannotServe, match=r"none\.pem"):
        ServePlan(**{**given, "cluster_ca": str(tmp_path / "none.pem")})


def test_a_password_comes_from_a_file_that_no_other_user_can_read(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    plan = ServePlan(**options(tmp_path), cluster_password_file=str(file)).cluster
    assert plan is not None
    assert plan.password() == "s3cret"
    assert "s3cret" not in repr(plan)
    file.chmod(0o644)
    with pytest.raises(CannotServe, match="chmod 600"):
        plan.password()
