"""Releases: only what the federation signed is accepted, and only as it was signed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fultr.core.errors import FultrError
from fultr.rankers.release import (
    MOST_RELEASE_BYTES,
    MOST_VERSION_BYTES,
    Release,
    Released,
    ReleaseKey,
    open_release,
    read_release,
    sign_release,
)

STABLE, CANDIDATE = Released.of("v0001-1f2ab9", b"{}"), Released.of("v0002-0c3a41", b"{ }")
PLAIN = Release(7, "pilot", STABLE, None, 0.0, "", "promote", False, "", "2026-03-02T09:14:00Z")
TRIAL = replace(PLAIN, candidate=CANDIDATE, share=0.25, salt="5f", action="rollout", why="größer ± 0.1")
SIGNER = Ed25519PrivateKey.generate()
KEY = ReleaseKey("pilot", SIGNER.public_key().public_bytes_raw())


@pytest.mark.parametrize("release", [PLAIN, TRIAL, replace(TRIAL, share=1)])
def test_what_was_signed_comes_back(release):
    data = sign_release(release, SIGNER)
    assert len(data) < 2000
    assert open_release(data, KEY) == read_release(data) == release


def test_every_changed_byte_is_refused():
    data = sign_release(TRIAL, SIGNER)
    assert data.isascii()
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(FultrError, match=r"^release: .*$"):
            open_release(changed, KEY)


def test_truncated_files_are_refused():
    data = sign_release(TRIAL, SIGNER).rstrip()
    for size in range(len(data)):
        with pytest.raises(FultrError, match="release: expected a JSON object; the file is damaged or incomplete"):
            open_release(data[:size], KEY)


def test_forged_signatures_are_refused():
    other = Ed25519PrivateKey.generate()
    with pytest.raises(FultrError, match="was not signed with the key of the federation 'pilot'"):
        open_release(sign_release(PLAIN, other), KEY)
    moved = {"release": TRIAL.to_bytes().decode(), "signature": json.loads(sign_release(PLAIN, SIGNER))["signature"]}
    with pytest.raises(FultrError, match="was not signed"):
        open_release(json.dumps(moved).encode(), KEY)
    for signature in ("", "00", "00" * 64, "ff" * 64):
        with pytest.raises(FultrError, match="was not signed"):
            open_release(json.dumps(moved | {"signature": signature}).encode(), KEY)


def test_releases_of_other_federations_are_refused():
    with pytest.raises(FultrError, match="release: is for the federation 'other', expected 'pilot'"):
        open_release(sign_release(replace(PLAIN, federation="other"), SIGNER), KEY)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" " * (MOST_RELEASE_BYTES + 1), "expected at most 64,000 bytes, found 64,001"),
        (b"[" * 60_000, "damaged or incomplete"),
        (b"\xff\xfe", "damaged or incomplete"),
        (b"[]", "expected a JSON object"),
        (b"{}", "expected a text release and its signature, and nothing else"),
        (b'{"release": "{}", "signature": 3}', "expected a text release and its signature"),
        (b'{"release": "{}", "signature": "00", "more": "x"}', "and nothing else"),
        (b'{"release": "{}", "signature": "xyz"}', "a signature in hexadecimal digits"),
        (b'{"release": "\\ud800", "signature": "00"}', "expected text, and a signature"),
    ],
)
def test_what_is_no_release_is_refused(data, message):
    with pytest.raises(FultrError, match=message):
        open_release(data, KEY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "fultr release 2"}, "expected the format 'fultr release 1'"),
        ({"urgent": True}, 'release: "urgent" is unknown'),
        ({"serial": 0}, "serial: expected a whole number, at least 1"),
        ({"serial": True}, "serial: expected a whole number"),
        ({"serial": 7.0}, "serial: expected a whole number"),
        ({"share": 0}, "share: expected a number, above 0, at most 1, found 0"),
        ({"share": 1.5}, "share: expected a number"),
        ({"share": math.nan}, "share: expected a number"),
        ({"share": "0.2"}, "share: expected a number"),
        ({"candidate": None}, "share: expected a number, at least 0, at most 0"),
        ({"candidate": None, "share": 0}, "salt: expected a text if there is a candidate"),
        ({"salt": ""}, "salt: expected a text"),
        ({"federation": ""}, "federation: expected a name"),
        ({"federation": ["pilot"]}, "federation: expected a name"),
        ({"action": "explode"}, "action: expected one of publish, rollout, promote, rollback"),
        ({"automatic": 1}, "automatic: expected true or false"),
        ({"why": "x" * 501}, "why: expected a text of at most 500"),
        ({"why": "two\nlines"}, "why: expected a text"),
        ({"made": "yesterday"}, "made: expected a time"),
        ({"stable": None}, "stable: expected a version, found nothing"),
        ({"stable": {}}, 'stable: "name" is missing'),
        (
            {"stable": {"name": "../../x", "size": 2, "sha256": "0" * 64}},
            "stable: name: expected the name of a version",
        ),
        ({"stable": {"name": "v0001-1f2ab9", "size": 0, "sha256": "0" * 64}}, "stable: size: expected a whole number"),
        (
            {"candidate": {"name": "v0001-1f2ab9", "size": MOST_VERSION_BYTES + 1, "sha256": "0" * 64}},
            "candidate: size: expected a whole number, at least 1, at most 17,000,000",
        ),
        ({"stable": {"name": "v0001-1f2ab9", "size": 2, "sha256": "0" * 63}}, "stable: sha256: expected a digest"),
        ({"stable": {"name": "v0001-1f2ab9", "size": 2, "sha256": "0" * 64, "x": 1}}, 'stable: "x" is unknown'),
    ],
)
def test_wrong_values_are_refused(change, message):
    text = json.dumps(json.loads(TRIAL.to_bytes()) | change).encode()
    with pytest.raises(FultrError, match=message) as raised:
        Release.from_bytes(text)
    assert "\n" not in str(raised.value)


def test_missing_values_are_refused():
    given = json.loads(TRIAL.to_bytes())
    for name in given.keys() - {"format"}:
        with pytest.raises(FultrError, match=f'release: "{name}" is missing'):
            Release.from_bytes(json.dumps({key: given[key] for key in given if key != name}).encode())


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_a_share_of_the_devices_tries_the_candidate(share):
    n = 20_000
    trying = sum(replace(TRIAL, share=share).version_for(b"key of %d" % i) is CANDIDATE for i in range(n))
    assert abs(trying - n * share) < 4 * math.sqrt(n * share * (1 - share))


def test_devices_stay_in_as_the_share_grows():
    devices = [b"key of %d" % i for i in range(2000)]
    before: set[bytes] = set()
    for share in (0.01, 0.1, 0.2, 0.5, 1.0):
        trying = {device for device in devices if replace(TRIAL, share=share).version_for(device) is CANDIDATE}
        assert before < trying
        before = trying
    assert before == set(devices)
    assert all(PLAIN.version_for(device) is STABLE for device in devices)


def test_another_salt_draws_other_devices():
    """Two independent halves of n devices have n / 4 in common, with standard deviation sqrt(3 n) / 4."""
    devices, halves = [b"key of %d" % i for i in range(4000)], []
    for salt in ("5f", "60"):
        release = replace(TRIAL, share=0.5, salt=salt)
        halves.append({device for device in devices if release.version_for(device) is CANDIDATE})
    assert abs(len(halves[0] & halves[1]) - 4000 / 4) < 4 * math.sqrt(3 * 4000) / 4


def test_keys_are_read(tmp_path):
    file = tmp_path / "signing.pub"
    file.write_text(KEY.to_line())
    assert ReleaseKey.read(file) == KEY
    assert file.read_text().split()[::2] == ["ssh-ed25519", "pilot"]


def test_wrong_keys_are_told(tmp_path):
    file = tmp_path / "signing.pub"
    with pytest.raises(FultrError, match=r"signing\.pub: cannot be read: No such file"):
        ReleaseKey.read(file)
    other = generate_private_key(SECP384R1()).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    for line in (
        b"",
        b"\xff",
        other + b" pilot",
        KEY.to_line().encode().replace(b" pilot", b""),
        b"ssh-ed25519 AAAA pilot",
    ):
        file.write_bytes(line)
        with pytest.raises(FultrError, match=r"signing\.pub: expected an Ed25519 public key in OpenSSH form"):
            ReleaseKey.read(file)
