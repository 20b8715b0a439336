"""The list of a federation's nodes that can take part in secure sums: kept up to date, and signed, by the operator."""

from __future__ import annotations

import re
from pathlib import Path

from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.deploy.keys import load_signing_key, load_sum_public
from fultr.federated.privacy.enrolment import Enrolment, open_enrolment, read_enrolment, sign_enrolment
from fultr.rankers.release import ReleaseKey


def enrol(superlink: Path, federation: str) -> Enrolment:
    """Sign a list of the nodes that have a key in `node-keys` and one in `sum-keys`, unless the last one is the same.

    The private key is needed only for a list that has changed, so that it may be kept elsewhere.

    Args:
        superlink: the SuperLink's folder.
        federation: its name.
    """
    path = superlink / "enrolment.txt"
    found: dict[int, bytes] = {}
    for public in (superlink / "sum-keys").glob("node-*.pub"):
        number = re.fullmatch(r"node-([1-9]\d{0,8})", public.stem)
        if number is not None and (superlink / "node-keys" / public.name).exists():
            found[int(number[1]) - 1] = load_sum_public(public)
    devices = tuple(sorted(found))
    keys = tuple(found[device] for device in devices)
    before: Enrolment | None = None
    if path.exists():
        before = read_enrolment(_read(path))
        if (before.federation, before.devices, before.keys) == (federation, devices, keys) and _is_signed(superlink):
            return before
    enrolment = Enrolment(1 if before is None else before.serial + 1, federation, devices, keys)
    signed = sign_enrolment(enrolment, load_signing_key(superlink / "signing.key"))
    with written_whole(path) as temporary:
        temporary.write_bytes(signed)
    return enrolment


def _is_signed(superlink: Path) -> bool:
    """Is the list signed with the federation's present key?"""
    try:
        open_enrolment(_read(superlink / "enrolment.txt"), ReleaseKey.read(superlink / "signing.pub"))
    except FultrError:
        return False
    return True


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
