"""Certificates and keys of a federation: its authority, the SuperLink's certificate, a key per node, one for releases.

The SuperLink authenticates with a certificate signed by the federation's own certificate authority; a node, with an
ECDSA key on curve P-384, whose public half the SuperLink knows. Releases of the ranker are signed with a key of their
own (Ed25519), whose public half every node is enrolled with; it also signs the list of the nodes' keys for secure sums
(X25519).
"""

from __future__ import annotations

import datetime
import importlib.util
import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fultr.core.errors import FultrError
from fultr.core.files import written_whole

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from fultr.federated.privacy.masks import SumKey

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825  # the longest that all common TLS libraries accept
_SKEW = datetime.timedelta(hours=1)  # clocks of devices are not exact


def require_flower() -> None:
    """Say what to install if Flower or its dependencies are missing."""
    if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("cryptography") is None:
        raise FultrError("fultr deploy needs Flower: pip install 'fultr[flower]'")


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, completely or not at all."""
    with written_whole(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def write_authority(certificate: Path, key: Path, name: str) -> None:
    """Create a certificate authority: its certificate and its signing key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP384R1())
    subject = _named(f"{name} certificate authority")
    made = (
        _builder(subject, subject, private.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .sign(private, hashes.SHA384())
    )
    write_secret(key, _pem(private))
    _write_certificate(certificate, made)


def write_server_certificate(certificate: Path, key: Path, authority: Path, authority_key: Path, host: str) -> None:
    """Create the SuperLink's certificate and key, valid for localhost, 127.0.0.1 and the host name that nodes use."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    signer, issuer = _load_key(authority_key), load_certificate(authority)
    if signer.public_key() != issuer.public_key():
        raise FultrError(f"{authority_key}: is not the key of {authority}")
    private = ec.generate_private_key(ec.SECP384R1())
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    if (named := _general_name(host)) not in names:
        names.append(named)
    made = (
        _builder(_named(host), issuer.subject, private.public_key(), SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    write_secret(key, _pem(private))
    _write_certificate(certificate, made)


def write_node_key(key: Path, public: Path, comment: str) -> None:
    """Create a node's key pair, in the OpenSSH format that `flower-supernode` and `flwr supernode register` read."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP384R1())
    opened = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_secret(
        key,
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ),
    )
    with written_whole(public) as temporary:
        temporary.write_bytes(opened + f" {comment}\n".encode())


def load_public_key(path: Path) -> bytes:
    """A node's public key as the SuperLink stores it: PEM."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise FultrError(f"{path}: is not an ECDSA public key in OpenSSH form (ecdsa-sha2-nistp384 ...)")
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def load_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A node's private key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FultrError(f"{path}: is not a private ECDSA key in OpenSSH form")
    return key


def complete_signing_key(key: Path, public: Path, federation: str) -> None:
    """Create what is missing of the key pair that releases are signed with.

    The public half is what nodes are enrolled with. Where only that is, its key is kept elsewhere, or lost: either way
    another key would be one that no node knows, and none is made.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fultr.rankers.release import ReleaseKey

    if public.exists():
        return
    if not key.exists():
        write_secret(key, _pem(Ed25519PrivateKey.generate()))
    opened = load_signing_key(key).public_key().public_bytes_raw()
    with written_whole(public) as temporary:
        temporary.write_text(ReleaseKey(federation, opened).to_line())


def load_signing_key(path: Path) -> Ed25519PrivateKey:
    """The key that releases are signed with."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        elsewhere = isinstance(error, FileNotFoundError) and path.with_name("signing.pub").exists()
        hint = "it is kept elsewhere; put it back while you sign" if elsewhere else "`fultr deploy init` makes one"
        raise FultrError(f"{path}: cannot be read: {error.strerror}; {hint}") from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise FultrError(f"{path}: is not a private Ed25519 key in PEM form without a password")
    return key


def write_sum_key(key: Path, public: Path, comment: str) -> None:
    """Create a node's key pair for secure sums (X25519); the public half is a line of text."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private = X25519PrivateKey.generate()
    with written_whole(public) as temporary:
        temporary.write_text(f"x25519 {private.public_key().public_bytes_raw().hex()} {comment}\n")
    write_secret(key, _pem(private))  # last: where it is, its public half is too


def load_sum_key(path: Path) -> SumKey:
    """A node's key for secure sums."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from fultr.federated.privacy.masks import SumKey

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}; `fultr deploy init` makes one") from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, X25519PrivateKey):
        raise FultrError(f"{path}: is not a private X25519 key in PEM form without a password")
    return SumKey(key)


def load_sum_public(path: Path) -> bytes:
    """The public half of a node's key for secure sums."""
    try:
        words = path.read_text(encoding="utf-8", errors="replace").split()
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    if len(words) != 3 or words[0] != "x25519" or re.fullmatch("[0-9a-f]{64}", words[1]) is None:
        raise FultrError(f"{path}: expected a line: x25519, 64 hexadecimal digits and the node's name")
    return bytes.fromhex(words[1])


def load_certificate(path: Path) -> x509.Certificate:
    """Read a certificate in PEM form."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise FultrError(f"{path}: is not a certificate in PEM form") from None


def days_left(path: Path) -> float:
    """Days until a certificate expires; negative if it has expired."""
    expires = load_certificate(path).not_valid_after_utc
    return (expires - datetime.datetime.now(datetime.UTC)).total_seconds() / 86400


def _named(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(private: ec.EllipticCurvePrivateKey | Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    from cryptography.hazmat.primitives import serialization

    with written_whole(path) as temporary:
        temporary.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise FultrError(
            f"{path}: cannot be read: {error.strerror}; restore the authority's key to sign a certificate"
        ) from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FultrError(f"{path}: is not a private ECDSA key in PEM form without a password")
    return key
