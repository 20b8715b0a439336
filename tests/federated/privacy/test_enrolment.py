"""Lists of devices: whose keys a device masks with."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr import FultrError
from fultr.federated.privacy.enrolment import Enrolment, open_enrolment, read_enrolment, sign_enrolment
from fultr.rankers.release import ReleaseKey

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PINNED = ReleaseKey("pilot", KEY.public_key().public_bytes_raw())
LIST = Enrolment(3, "pilot", (0, 2, 7), (b"a" * 32, b"b" * 32, b"c" * 32))
SIGNED = sign_enrolment(LIST, KEY)


def test_a_list_comes_back_as_it_was_signed():
    assert open_enrolment(SIGNED, PINNED) == read_enrolment(SIGNED) == LIST
    assert LIST.key_of(2) == b"b" * 32
    with pytest.raises(FultrError, match="device 1 is not enrolled"):
        LIST.key_of(1)


def test_a_list_of_others_is_refused():
    with pytest.raises(FultrError, match="not signed with the key of the federation 'pilot'"):
        open_enrolment(sign_enrolment(LIST, Ed25519PrivateKey.generate()), PINNED)
    with pytest.raises(FultrError, match="is for the federation 'pilot', expected 'other'"):
        open_enrolment(SIGNED, ReleaseKey("other", PINNED.public))


def test_another_text_that_the_federation_signed_is_no_list():
    text = json.dumps({"format": "fultr release 1"}).encode()
    with pytest.raises(FultrError, match="expected a list of devices in the format 'fultr enrolment 1'"):
        open_enrolment(KEY.sign(text).hex().encode() + b"\n" + text, PINNED)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ((0, "pilot", (0,), (b"a" * 32,)), "serial"),
        ((1, "", (0,), (b"a" * 32,)), "federation"),
        ((1, "pilot", (1, 0), (b"a" * 32, b"b" * 32)), "ascending"),
        ((1, "pilot", (True,), (b"a" * 32,)), "whole numbers"),
        ((1, "pilot", (0, 1), (b"a" * 32, b"a" * 32)), "two devices have the same"),
        ((1, "pilot", (0, 1), (b"a" * 32,)), "32 bytes for each device"),
    ],
)
def test_a_list_that_cannot_be_one(given_, message):
    with pytest.raises(FultrError, match=message):
        Enrolment(*given_)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SIGNED) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_changed_list_is_refused(changes):
    content = bytearray(SIGNED)
    for place, value in changes:
        content[place] = value
    if bytes(content) != SIGNED:
        with pytest.raises(FultrError, match=r"^enrolment: "):
            open_enrolment(bytes(content), PINNED)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_list_or_one_line(content):
    with pytest.raises(FultrError, match=r"^enrolment: "):
        read_enrolment(content)
