"""The post office of the SuperLink, on Flower's own state: who waits, who is woken, what is whole."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterator

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
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute

from fultr.deploy import post
from fultr.deploy.flower.internals import content_of, record_of
from fultr.deploy.parcels import PostError, unpacked
from fultr.deploy.post import HOLD_SECONDS, Post, Turns

# Flower's migrations of an empty database.
pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")


class Office:
    """A post office with the state of a SuperLink, a node and a server app."""

    def __init__(self, state, node: int, token: str, run: int) -> None:
        self.state, self.node, self.token, self.run = state, node, token, run
        self.post = Post(Turns())

    async def ask(self, patience: float = 60.0, gone: asyncio.Future | None = None, had: str = "") -> list[bytes]:
        async def receive() -> object:
            return await (gone or asyncio.get_running_loop().create_future())

        return await self.post.question(self.state, self.node, had, patience, receive)

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
        await self.post.reply(self.state, self.node, [request.SerializeToString(), *objects[missing:]])

    async def fetch(self, id_: str) -> list[bytes | str]:
        request = PullAppMessagesRequest(message_ids=[id_]).SerializeToString()
        rest, *found = await self.post.replies(self.state, self.token, [request])
        assert not PullAppMessagesResponse.FromString(rest).messages_list
        assert all(unpacked(each)[0].decode() == id_ for each in found)
        return [content_of(unpacked(each)[1:]) for each in found]


def whole(message: Message):
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = [each.deflate() for each in get_all_nested_objects(message).values()]
        return message_to_proto(remove_content_from_message(message)), objects, get_object_tree(message)


@pytest.fixture
def office(tmp_path) -> Iterator[Office]:
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
    yield Office(state, node, token, run)
    for part in (state, state.object_store):  # Flower leaves its databases open, of which Python 3.13 warns
        part._engine.dispose()


def test_a_task_and_its_reply_are_one_request_each(office):
    async def round_trip() -> None:
        sent = await office.send(b"task")
        assert await office.fetch(sent) == []
        parts = await office.ask()
        assert content_of(parts[1:]) == b"task"
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
        assert content_of((await asking)[1:]) == b"task"
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
        assert content_of((await newer)[1:]) == b"task"

    asyncio.run(asyncio.wait_for(wait(), 20))


def id_of(parts: list[bytes]) -> str:
    return PullMessagesResponse.FromString(parts[0]).message_object_trees[0].object_id


def test_a_task_that_did_not_arrive_is_handed_out_once_more(office):
    """The node says which one it had last; Flower's own API would have lost it."""

    async def send() -> None:
        sent = await office.send(b"one")
        lost = await office.ask()
        again = await office.ask()
        assert again == lost
        assert content_of(again[1:]) == b"one"
        await office.reply(again, b"reply")
        assert await office.fetch(sent) == [b"reply"]
        assert await office.ask(patience=0.0) == []  # it was replied to

        await office.send(b"two")
        had = await office.ask()
        await office.send(b"three")
        assert content_of((await office.ask(had=id_of(had)))[1:]) == b"three"  # two has arrived
        assert content_of((await office.ask(had=id_of(had)))[1:]) == b"three"
        assert await office.ask(patience=0.0, had=id_of(had)) == []  # perhaps the node fails whenever it gets it
        assert not office.post.handed

    asyncio.run(send())
    assert len(office.state.object_store) == 0


def test_a_lost_task_of_a_run_that_is_over_stays_lost(office):
    async def send() -> None:
        await office.send(b"one")
        await office.ask()
        assert office.state.stop_run(office.run)
        assert await office.ask(patience=0.0) == []

    asyncio.run(send())


def test_who_asks_a_hundred_times_at_once_has_two_turns(office, monkeypatch):
    turns = 0

    def counted(*given: object) -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(post, "next_task", counted)

    async def ask() -> None:
        assert await asyncio.gather(*(office.ask(patience=0.0) for _ in range(100))) == [[]] * 100

    asyncio.run(ask())
    assert turns == 2  # the first, which had its turn already, and the last


def test_a_node_replies_once_at_a_time(office):
    async def send() -> None:
        sent = await office.send(b"task")
        parts = await office.ask()
        found = await asyncio.gather(*(office.reply(parts, b"reply") for _ in range(5)), return_exceptions=True)
        assert [type(each) for each in found] == [type(None), type(None), *[PostError] * 3]
        await office.reply(parts, b"reply")  # sent again, as its answer was lost: it counts once
        assert await office.fetch(sent) == [b"reply"]

    asyncio.run(send())


def test_asking_shows_that_a_node_is_there(office):
    before = online_until(office)
    asyncio.run(office.ask(patience=0.0))
    assert online_until(office) > before


def online_until(office: Office) -> float:
    (info,) = office.state.get_node_info(node_ids=[office.node])
    return info.online_until


def test_a_reply_that_memory_has_no_room_for_is_in_the_database(office, monkeypatch):
    """There, what cannot be taken whole is not taken: no reply counts, and another one still can."""
    monkeypatch.setattr(post, "_MOST_KEPT", 0)

    async def send() -> None:
        sent = await office.send(b"task")
        parts = await office.ask()
        with pytest.raises(PostError, match="not whole"):
            await office.reply(parts, b"reply", missing=1)
        assert await office.fetch(sent) == []
        await office.reply(parts, b"reply")
        assert not office.post.kept
        assert await office.fetch(sent) == [b"reply"]

    asyncio.run(send())


def test_replies_are_for_their_run_and_do_not_stay_for_ever(office, monkeypatch):
    async def send() -> None:
        sent = await office.send(b"task")
        await office.reply(await office.ask(), b"reply")
        kept = office.post.kept[sent]
        office.post.kept[sent] = kept._replace(run=office.run + 1)
        with pytest.raises(PostError, match="another run's"):
            await office.fetch(sent)
        office.post.kept[sent] = kept._replace(until=time.time() - 1)
        await office.send(b"another task")
        assert not office.post.kept

    asyncio.run(send())


def test_a_node_that_is_gone_is_noticed(office, monkeypatch):
    """Flower says so, which is looked for now and then."""

    async def send() -> None:
        sent = await office.send(b"task")
        assert await office.fetch(sent) == []
        assert office.state.deactivate_node(office.node)
        assert await office.fetch(sent) == []
        monkeypatch.setattr(post, "_LOOK_SECONDS", 0.0)
        assert await office.fetch(sent) == ["it cannot be reached"]

    asyncio.run(send())


def test_tasks_need_the_token_of_a_server_app(office):
    async def send() -> None:
        for token in ("", "another"):
            with pytest.raises(PostError, match="nobody's"):
                await office.post.replies(office.state, token, [PullAppMessagesRequest().SerializeToString()])
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
