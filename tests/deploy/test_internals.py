"""What is internal to Flower is as this version expects it: a newer Flower that changed it fails here first."""

from __future__ import annotations

import importlib.util
import inspect
from importlib.metadata import version

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.server.superlink.linkstate.sql_linkstate import SqlLinkState as LinkState
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_body, get_object_tree
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from flwr.supernode.fleet_http_client import FleetHttpClient

from fultr.deploy.flower.fleet import _bounded, why
from fultr.deploy.flower.internals import MOST_BYTES, OBJECTS, _only_bytes, content_of, ids_of, record_of


def message(record: RecordDict) -> Message:
    about = {
        "run_id": 1,
        "message_id": "",
        "src_node_id": 1,
        "dst_node_id": 5,
        "reply_to_message_id": "",
        "group_id": "",
    }
    return make_message(Metadata(**about, created_at=1.0, ttl=60.0, message_type="train"), record)


def contents(record: RecordDict) -> list[bytes]:
    return [each.deflate() for each in get_all_nested_objects(message(record)).values()]


def test_the_version_is_the_one_that_was_studied():
    assert version("flwr") == "1.41.0"


def test_a_message_is_three_objects():
    sent = message(record_of(b"content"))
    assert len(ids_of(get_object_tree(sent))) == len(OBJECTS)
    assert content_of(contents(record_of(b"content"))) == b"content"
    assert len(remove_content_from_message(sent).content) == 0


@pytest.mark.parametrize(
    "record",
    [
        RecordDict(),
        RecordDict({"fultr": ConfigRecord({"content": "text"})}),
        RecordDict({"fultr": ConfigRecord({"content": b"x", "more": 1})}),
        RecordDict({"other": ConfigRecord()}),
        RecordDict({"arrays": ArrayRecord({"a": Array("float32", (1,), "numpy.ndarray", b"abcd")})}),
    ],
)
def test_other_messages_are_not_looked_into(record):
    assert content_of(contents(record)) == "it is another program's message"


def test_the_names_that_are_used_are_there():
    calls = ("ActivateNode", "DeactivateNode", "SendNodeHeartbeat", "_unary_unary", "_send", "from_server_address")
    for name in calls:
        assert callable(getattr(FleetHttpClient, name)), name
    for name in ("PullObject", "ConfirmMessageReceived", "_unary_unary"):
        assert callable(getattr(RuntimeHttpClient, name)), name
    for handlers, names in (
        (fleet_handlers, ("pull_messages", "push_messages")),
        (runtime_handlers, ("pull_messages", "push_messages")),
        (LinkState, ("session", "store_object", "get_object", "get_task_by_token", "acknowledge_node_heartbeat")),
    ):
        for name in names:
            assert callable(getattr(handlers, name)), name
    assert isinstance(HttpGrid._runtime_client, property)
    assert isinstance(HttpGrid.run, property)
    assert "get_node_ids" in dir(HttpGrid)
    assert "self.node = " in inspect.getsource(HttpGrid.__init__)


def served(response: httpx.Response) -> httpx.Response:
    hooks = {"response": [_bounded]}
    with httpx.Client(transport=httpx.MockTransport(lambda request: response), event_hooks=hooks) as client:
        return client.get("https://server/v1/fleet/pull-object")


def test_a_record_is_read_without_making_objects_of_it():
    """Any byte string of the right layout, and nothing else: millions of entries are not even counted."""
    for size in (0, 1, 127, 128, 16_383, 16_384, 3_000_000):
        content = bytes(size)
        assert content_of(contents(record_of(content))) == content
    body = get_object_body(contents(record_of(b"content"))[0], ConfigRecord)
    assert _only_bytes(body) == b"content"
    for bad in (
        b"",
        body[:-1],
        body + b"\x0a\x00",
        b"\x0a\x00" * 1000,
        b"\xff" * 20,
        body[1:],
        b"\x0a\xff\xff\xff\xff\x7f",
    ):
        assert _only_bytes(bad) is None


def test_an_answer_that_is_too_long_is_not_read():
    read = 0

    def parts():
        nonlocal read
        while True:
            read += 1_000_000
            yield bytes(1_000_000)

    with pytest.raises(httpx.DecodingError, match="more than 17,000,000 bytes"):
        served(httpx.Response(200, content=parts()))
    assert MOST_BYTES < read < MOST_BYTES + 3_000_000
    with pytest.raises(httpx.DecodingError, match="compressed"):
        served(httpx.Response(200, headers={"content-encoding": "gzip"}, content=b""))
    assert served(httpx.Response(200, content=b"short")).content == b"short"


def test_what_trying_again_cannot_mend_is_named():
    request = httpx.Request("GET", "https://server/")
    expired = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired")
    assert "certificate has expired: renew it there" in str(why(expired, "server:1"))
    unknown = httpx.HTTPStatusError("no", request=request, response=httpx.Response(401, text="who?", request=request))
    assert "does not admit this node (status 401: who?)" in str(why(unknown, "server:1"))
    for passing in (httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), ValueError("half")):
        assert why(passing, "server:1") is None
