"""A certificate that signs itself, for one name."""

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Self

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def write_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """The certificate, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / "certificate.pem", folder / "key.pem"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_path, key_path


def certified(folder: Path, host: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Two contexts: of a server that has a certificate, and of a client that believes it alone."""
    certificate_path, key_path = write_certificate(folder, host)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate_path, key_path)
    return server, ssl.create_default_context(cafile=certificate_path)


@attrs.frozen
class Authority:
    """A CA that signs certificates for addresses, for clients and servers alike."""

    file: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    @classmethod
    def create(cls, folder: Path, called: str = "ca") -> Self:
        key, name = ec.generate_private_key(ec.SECP256R1()), _named(called)
        certificate = _builder(name, name, key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        file = folder / f"{called}.pem"
        file.write_bytes(certificate.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return cls(file, key, name)

    def sign(self, folder: Path, address: str) -> tuple[Path, Path]:
        """A certificate for *address*, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        certificate = _builder(_named(address), self.name, key).add_extension(alternative, critical=False)
        return _written(folder, address, certificate.sign(self.key, hashes.SHA256()), key)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )


def _written(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
