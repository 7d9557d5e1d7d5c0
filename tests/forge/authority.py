"""A certificate authority of the tests, and its certificate for scripted services; made for each session."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AZURE = "dev.azure.com"
"""The one host that `az` speaks to."""
_DAY = dt.timedelta(days=1)


class Authority:
    """The files of the authority in a folder: `ca` is what clients trust, `context` what a server shows."""

    def __init__(self, folder: Path) -> None:
        self.ca = folder / "ca.pem"
        key, name = ec.generate_private_key(ec.SECP256R1()), _named("authority of the tests")
        self.ca.write_bytes(_signed(name, name, key.public_key(), key, ca=True))
        own = ec.generate_private_key(ec.SECP256R1())
        served = folder / "localhost.pem"
        plain = serialization.NoEncryption()
        pem = own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        served.write_bytes(pem + _signed(_named("localhost"), name, own.public_key(), key, ca=False))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(served)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
) -> bytes:
    now = dt.datetime.now(dt.UTC)
    hosts = [x509.DNSName(name) for name in ("localhost", AZURE)]
    names = [*hosts, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
