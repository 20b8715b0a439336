"""The post office of the SuperLink, on Flower's own state: who waits, who is woken, what is whole."""

from __future__ import annotations

import asyncio
import importlib.util
import time

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from flwr.app import Message, MessageType
from flwr.app.message import make_message, remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import BytesList
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute

from fultr.deploy import post
from fultr.deploy.flower.internals import _content_of, record_of
from fultr.deploy.post import HOLD_SECONDS, Post, PostError, Turns

# Flower's migrations of an empty database.
pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")


class Office:
    """A post office with the state of a SuperLink, a node and a server app."""

    def __init__(self, state, node: int, token: str, run: int) -> None:
        self.state, self.node, self.token, self.run = state, node, token, run
        self.post = Post(Turns())

    async def ask(self, patience: float = 60.0, gone: asyncio.Future | None = None) -> list[bytes]:
        async def receive() -> object:
            return await (gone or asyncio.get_running_loop().create_future())

        return await self.post.question(self.state, self.node, patience, receive)

    async def send(self, content: bytes, token: str | None = None) -> str:
        about = {"run_id": self.run, "message_id": "", "src_node_id": SUPERLINK_NODE_ID, "dst_node_id": self.node}
        metadata = Metadata(**about, reply_to_message_id="", group_id="", created_at=time.time(), ttl=60.0,
                            message_type=MessageType.TRAIN)  # fmt: skip
        message, objects, tree = whole(make_message(metadata, record_of(content)))
        request = PushAppMessagesRequest(messages_list=[message], message_object_trees=[tree])
        (answer,) = await self.post.tasks(self.state, token or self.token, [request.SerializeToString(), *objects])
        (id_,) = PushAppMessagesResponse.FromString(answer).message_ids
        return id_

    async def reply(self, parts: list[bytes], content: bytes, missing: int = 0) -> None:
        asked = message_from_proto(PullMessagesResponse.FromString(parts[0]).messages_list[0])
        message, objects, tree = whole(Message(record_of(content), reply_to=asked))
        request = PushMessagesRequest(
            node=Node(node_id=self.node), messages_list=[message], message_object_trees=[tree]
        )
        await self.post.reply(self.state, [request.SerializeToString(), *objects[missing:]])

    async def fetch(self, id_: str) -> list[bytes | str]:
        request = PullAppMessagesRequest(message_ids=[id_]).SerializeToString()
        answer, *found = await self.post.replies(self.state, self.token, [request])
        assert len(PullAppMessagesResponse.FromString(answer).messages_list) == len(found)
        return [_content_of(BytesList.FromString(each).vals) for each in found]


def whole(message: Message):
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = [each.deflate() for each in get_all_nested_objects(message).values()]
        return message_to_proto(remove_content_from_message(message)), objects, get_object_tree(message)


@pytest.fixture
def office(tmp_path) -> Office:
    from flwr.supercore.constant import NOOP_FEDERATION_ID
    from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories

    manager = get_federation_manager(is_simulation=False)
    state = get_objectstore_linkstate_factories(str(tmp_path / "state.db"), manager)[1].state()
    node = state.create_node("owner", "owner", b"key", 0)
    assert state.activate_node(node, 30)
    run = state.create_run(None, None, "hash", {}, NOOP_FEDERATION_ID, None, "owner", "flwr-serverapp")
    (task,) = state.get_tasks()
    token = state.claim_task(task.task_id)
    assert state.activate_task(task.task_id)
    return Office(state, node, token, run)


def test_a_task_and_its_reply_are_one_request_each(office):
    async def round_trip() -> None:
        sent = await office.send(b"task")
        assert await office.fetch(sent) == []
        parts = await office.ask()
        assert _content_of(parts[1:]) == b"task"
        await office.reply(parts, b"reply")
        assert await office.fetch(sent) == [b"reply"]

    asyncio.run(round_trip())
    assert [office.state.num_message_ins(), office.state.num_message_res(), len(office.state.object_store)] == [0, 0, 0]


def test_a_question_waits_for_a_task(office):
    async def wait() -> None:
        asking = asyncio.create_task(office.ask())
        while not office.post.held:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert not asking.done()
        begun = time.monotonic()
        await office.send(b"task")
        assert _content_of((await asking)[1:]) == b"task"
        assert time.monotonic() - begun < HOLD_SECONDS / 2  # it was woken
        assert not office.post.held

    asyncio.run(wait())


def test_nobody_waits_for_ever(office, monkeypatch):
    """Not a question without a task, nor one of a node that is gone, or that asks again."""

    async def wait() -> None:
        assert await office.ask(patience=0.1) == []
        monkeypatch.setattr(post, "HOLD_SECONDS", 0.1)
        assert await office.ask(patience=60.0) == []
        monkeypatch.setattr(post, "HOLD_SECONDS", 60.0)
        gone = asyncio.get_running_loop().create_future()
        gone.set_result({"type": "http.disconnect"})
        assert await office.ask(gone=gone) == []
        older = asyncio.create_task(office.ask())
        while not office.post.held:
            await asyncio.sleep(0.01)
        newer = asyncio.create_task(office.ask())
        assert await older == []
        await office.send(b"task")
        assert _content_of((await newer)[1:]) == b"task"

    asyncio.run(asyncio.wait_for(wait(), 20))


def test_asking_shows_that_a_node_is_there(office):
    before = online_until(office)
    asyncio.run(office.ask(patience=0.0))
    assert online_until(office) > before


def online_until(office: Office) -> float:
    (info,) = office.state.get_node_info(node_ids=[office.node])
    return info.online_until


def test_half_a_reply_is_none(office):
    """What cannot be taken whole is not taken: no reply counts, and another one still can."""

    async def send() -> None:
        sent = await office.send(b"task")
        parts = await office.ask()
        with pytest.raises(PostError, match="not whole"):
            await office.reply(parts, b"half", missing=1)
        assert await office.fetch(sent) == []
        await office.reply(parts, b"whole")
        assert await office.fetch(sent) == [b"whole"]

    asyncio.run(send())


def test_tasks_need_the_token_of_a_server_app(office):
    async def send() -> None:
        for token in ("", "another"):
            with pytest.raises(PostError, match="nobody's"):
                await office.post.replies(office.state, token, [b""])
        with pytest.raises(PostError, match="nobody's"):
            await office.send(b"task", token="another")
        assert await office.ask(patience=0.0) == []

    asyncio.run(send())


def test_a_run_that_is_over_asks_nothing(office):
    async def send() -> None:
        await office.send(b"one")
        parts = await office.ask()
        await office.send(b"two")
        assert office.state.stop_run(office.run)
        assert await office.ask(patience=0.0) == []
        with pytest.raises(FlowerError):
            await office.reply(parts, b"late")

    asyncio.run(send())
