"""The certificates of a cluster: one authority, and one certificate that all of its machines show.

With the key a machine may join the cluster, give it work and work for it; without it, it is refused.
"""

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from isolation.files.disk import replace_file
from runner.core.errors import SystemFaultError, UsageError
from runner.remote.cluster.address import CA, CERTIFICATE, KEY, MissingExtraError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

VALID_DAYS = 825
NAME = "autopilot-multi cluster"


def make_certificates(folder: Path, *, now: dt.datetime) -> tuple[Path, ...]:
    """Write an authority, a certificate and its key, which only this user may read; return the files.

    The authority's own key is not kept: no other certificate can be added to this cluster.
    """
    existing = [name for name in (CA, CERTIFICATE, KEY) if (folder / name).exists()]
    if existing:
        raise UsageError(
            f"{folder / existing[0]} exists already",
            hint="remove the folder if no machine uses these certificates any more, or name another one.",
        )
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise MissingExtraError(
            f"certificates need packages that are not installed: {error}",
            hint="pip install 'autopilot-multi[cluster]'",
        ) from error
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _certificate(authority_key, authority_key, f"{NAME} authority", now, authority=True)
    certificate = _certificate(key, authority_key, NAME, now, authority=False)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, data in ((CA, _pem(authority)), (CERTIFICATE, _pem(certificate)), (KEY, _pem_key(key))):
            replace_file(folder / name, data, mode=0o600)
    except OSError as error:
        raise SystemFaultError(
            f"cannot write certificates to {folder}: {error.strerror or error}",
            hint="check the permissions of the folder.",
        ) from error
    return folder / CA, folder / CERTIFICATE, folder / KEY


def _certificate(
    key: "EllipticCurvePrivateKey",
    signer: "EllipticCurvePrivateKey",
    name: str,
    now: dt.datetime,
    *,
    authority: bool,
) -> "Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    issuer = f"{NAME} authority"
    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )


def _pem(certificate: "Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _pem_key(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
