"""The server's side of a secure sum: two questions to a cohort, and the sum of what its devices answered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fultr.core.errors import FultrError
from fultr.federated.combining import StageSettings
from fultr.federated.messages import Limits, Task
from fultr.federated.privacy.enrolment import read_enrolment
from fultr.federated.privacy.fixed_point import Block, Layout, Whole
from fultr.federated.privacy.private import PrivateSum
from fultr.federated.privacy.secure_sum import Masked, misfits, shares_for, unmask
from fultr.federated.privacy.stage import Shapes, Sums, stage_of
from fultr.federated.sum_wire import (
    Invitation,
    Question,
    invitation_bytes,
    question_bytes,
    read_masked,
    read_revealed,
)
from fultr.federated.wire import task_bytes


class Carrier(Protocol):
    """What carries the messages of secure sums."""

    @property
    def answered(self) -> Mapping[int, float]:
        """Seconds that each device that answered the last question took, as far as that is known."""

    def enrolment(self) -> bytes:
        """The signed list of the devices' keys."""

    def post(self, contents: Mapping[int, bytes], t: int, timeout: float) -> dict[int, bytes | str]:
        """Send a message of round t to each of some devices; the replies that came in time, or why one is of no use."""


@dataclass(frozen=True, eq=False)
class Summed:
    """What became of a sum.

    Attributes:
        total: by name, if there is one.
        accepted: numbers of the devices that are in it, or would be.
        refused: why, by device.
        silent: devices that did not answer in time.
        answered: seconds that the others took for the first message, by device.
        why: there is no sum, in words.
        liars: numbers of those whose shares do not fit with the others': they are also in `refused`.
    """

    total: Sums | None
    accepted: list[int]
    refused: dict[int, str]
    silent: list[int]
    answered: dict[int, float]
    why: str = ""
    liars: frozenset[int] = frozenset()


def layout_of(task: Task) -> Layout:
    """What stands where in the vector of a device that answers a task: server and devices know it from that alone."""
    return layout_for(task.algorithm.stage, {name: shape for name, (shape, _) in task.arrays().items()})


def layout_for(settings: StageSettings, shapes: Shapes) -> Layout:
    """What stands where in a vector of arrays of some shapes, as they leave the client's half of a stage.

    Each array has a bound of its own, that of the limits for plain replies. With privacy, "vector" is whole numbers
    with a bound that was seen to already, and shares of noise in them that nothing may change.
    """
    limits, stage = Limits(), stage_of(settings)
    bounds = {"update": limits.norm, "trained": 1.0}
    usual = limits.norm * limits.impressions
    blocks: list[Block | Whole] = []
    for name, shape in shapes.items():
        if isinstance(stage, PrivateSum) and name == "vector":
            blocks.append(Whole(math.ceil(stage.largest_norm(math.prod(shape))), ((name, shape),)))
        else:
            blocks.append(Block(bounds.get(name, usual), ((name, shape),)))
    return Layout(tuple(blocks))


def ask_sum(devices: Carrier, task: Task, cohort: list[int], timeout: float, run: bytes, attempt: int) -> Summed:
    """Ask a cohort for the sum of its answers to a task.

    Args:
        devices: who carries the messages.
        task: what each device is asked.
        cohort: numbers of the devices, ascending; those that are not enrolled for sums are left out.
        timeout: seconds for each of the two questions.
        run: 16 bytes, drawn when the server started.
        attempt: at this round, from 1.
    """
    signed = devices.enrolment()
    enrolled = read_enrolment(signed)
    known = sorted(set(cohort) & set(enrolled.devices))
    refused = dict.fromkeys(sorted(set(cohort) - set(known)), "it is not enrolled for secure sums")
    places = {device: i for i, device in enumerate(known)}
    invitation = Invitation(run, attempt, tuple(known), task_bytes(task), signed)
    try:
        session = invitation.session(task, enrolled)
    except FultrError as error:
        return Summed(None, [], refused, known, {}, str(error))
    layout, content = layout_of(task), invitation_bytes(invitation)
    first: dict[int, Masked] = {}
    for device, reply in devices.post(dict.fromkeys(known, content), task.round, timeout).items():
        masked = reply if isinstance(reply, str) else read_masked(session, places[device], layout.size, reply)
        if isinstance(masked, Masked):
            first[places[device]] = masked
        else:
            refused[device] = masked
    accepted, answered = [known[i] for i in sorted(first)], dict(devices.answered)
    silent = sorted(set(known) - set(refused) - set(accepted))
    survivors = np.isin(np.arange(len(known)), list(first))
    if found := session.objection(survivors):
        return Summed(None, accepted, refused, silent, answered, found)
    questions = {
        known[i]: question_bytes(Question(session.digest, survivors, shares_for(session, i, first))) for i in first
    }
    second: dict[int, tuple[bytes, ...]] = {}
    for device, reply in devices.post(questions, task.round, timeout).items():
        revealed = reply if isinstance(reply, str) else read_revealed(session, places[device], reply)
        if isinstance(revealed, tuple):
            second[places[device]] = revealed
    total, why, lied = None, "", list[int]()
    try:
        total = layout.decoded(unmask(session, first, second), len(first))
    except FultrError as error:
        why = f"{error} ({len(first) - len(second)} devices did not answer the second message)"
        odd, lied = misfits(session, first, second)
        if odd:  # a share too few is none too many
            with suppress(FultrError):
                total, why = layout.decoded(unmask(session, first, second, odd), len(first)), ""
    liars = frozenset(known[i] for i in lied)
    refused |= dict.fromkeys(sorted(liars), "its shares in the secure sum do not fit with those of others")
    return Summed(total, accepted, refused, silent, answered, why, liars)
