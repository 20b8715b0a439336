"""Rankers for other programs: an ONNX graph, and JSON that an application on a phone can read.

Both take raw features. The export of a ranker that was trained on normalised features includes the normalisation, so it
needs all documents of one query at once, and no others.
"""

from __future__ import annotations

import json

import numpy as np

from fultr.core.arrays import Float32s, Float64s
from fultr.core.errors import FultrError
from fultr.data.ranking import RankingData
from fultr.rankers.plain import Node, parts_of
from fultr.rankers.ranker import Ranker, digest_of
from fultr.rankers.versions import Version

_PHONE_FORMAT = "fultr phone ranker 1"
_OPSET, _IR = 13, 7  # of 2020: old enough for the onnxruntime of most phones
# Of `Plain.magnitudes`, for float32 sums in any order: their errors are at most n 2^-24 of it and behave like
# sqrt(n) 2^-24.
_TOLERANCE = 1e-5
_MISSING = "{}: not installed; pip install 'fultr[export]'"


def to_onnx(ranker: Ranker | Version) -> bytes:
    """The ranker as an ONNX model: "features", float32 [documents, features], to "scores", float32 [documents].

    Normalised values are those of `RankingData.normalise` to the last bit. Scores are summed in float64 and rounded
    once, so they differ from `Ranker.score` by the latter's float32 rounding. The metadata contain version,
    digest, feature ids and names.

    >>> model = to_onnx(Ranker(np.float32([1, 0.25]), np.array([1, 2])))
    """
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise FultrError(_MISSING.format("onnx")) from None
    given, name, digest = _described(ranker)
    width, constants = given.feature_ids.size, dict(given.plain.parts)
    nodes = [Node("Cast", ("features",), "raw" if given.normalised else "x", {"to": TensorProto.DOUBLE})]
    if given.normalised:
        nodes += _normalisation()
        constants |= {"zero": np.array(0.0), "one": np.array(1.0)}
    nodes += given.plain.model.graph()
    nodes.append(Node("Cast", ("sums",), "scores", {"to": TensorProto.FLOAT}))
    read = {name for node in nodes for name in node.inputs}
    graph = helper.make_graph(
        [helper.make_node(node.operator, node.inputs, [node.output], **node.attributes) for node in nodes],
        f"fultr {given.model.kind} ranker",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["documents", width])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["documents"])],
        [numpy_helper.from_array(value, key) for key, value in constants.items() if key in read],
    )
    model = helper.make_model(
        graph,
        producer_name="fultr",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        doc_string="\n".join(_in_words(given)),
    )
    properties = {
        "version": name or "",
        "digest": digest,
        "normalised": json.dumps(given.normalised),
        "feature_ids": json.dumps(given.feature_ids.tolist()),
        "feature_names": json.dumps(given.feature_names),
    }
    helper.set_model_props(model, properties)
    return model.SerializeToString(deterministic=True)


def _normalisation() -> list[Node]:
    """From "raw" to "x": the arithmetic of `RankingData.normalise`, in float64 and rounded to float32."""
    from onnx import TensorProto

    return [
        Node("ReduceMin", ("raw",), "low", {"axes": [0], "keepdims": 1}),
        Node("ReduceMax", ("raw",), "high", {"axes": [0], "keepdims": 1}),
        Node("Sub", ("high", "low"), "span"),
        Node("Greater", ("span", "zero"), "varies"),
        Node("Where", ("varies", "span", "one"), "divisor"),  # a constant feature gives 0 / 1
        Node("Sub", ("raw", "low"), "above"),
        Node("Div", ("above", "divisor"), "quotient"),
        Node("Cast", ("quotient",), "rounded", {"to": TensorProto.FLOAT}),
        Node("Cast", ("rounded",), "x", {"to": TensorProto.DOUBLE}),
    ]


def check_onnx(model: bytes, ranker: Ranker) -> float:
    """Run an ONNX model with onnxruntime on an example; the largest difference from the ranker's own scores.

    Refuses a model that differs by more than float32 rounding explains.
    """
    try:
        import onnxruntime
    except ImportError:
        raise FultrError(_MISSING.format("onnxruntime")) from None
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    features = _example(ranker.feature_ids.size)
    expected, tolerance = _scores(ranker, features)
    own = ranker.score(_query(ranker, features))
    found = session.run(["scores"], {"features": features})[0]
    difference = float(np.abs(found - own.astype(np.float64)).max())
    if not max(difference, float(np.abs(found - expected).max())) <= tolerance:  # NaN does not count as agreement
        raise FultrError(f"the ONNX model's scores differ from fultr's by {difference:.1e}: do not use it")
    return difference


def to_json(ranker: Ranker | Version) -> str:
    """The ranker for an application on a phone, with the scoring rule in words and an example to check it with.

    >>> content = json.loads(to_json(Ranker(np.float32([1, 0.25]), np.array([1, 2]))))
    >>> content["weights"], content["normalised"], content["example"]["scores"]
    ([1.0, 0.25], True, [0.4375, 1.0, 0.25])
    """
    given, name, digest = _described(ranker)
    features = _example(given.feature_ids.size)
    scores, tolerance = _scores(given, features)
    weights = np.array(given.to_content()["weights"])
    content = {
        "format": _PHONE_FORMAT,
        "model": given.model.kind,
        "version": name,
        "digest": digest,
        "normalised": given.normalised,
        "feature_ids": given.feature_ids.tolist(),
        "feature_names": given.feature_names,
        **{name: part.tolist() for name, part in parts_of(given.plain.model, weights).items()},
        "how_to_score": _in_words(given),
        "example": {"features": features.tolist(), "scores": scores.tolist(), "tolerance": tolerance},
    }
    lines = (f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _described(ranker: Ranker | Version) -> tuple[Ranker, str | None, str]:
    """The ranker, the name of its version and its digest."""
    if isinstance(ranker, Version):
        return ranker.ranker, ranker.name, ranker.digest
    return ranker, None, digest_of(ranker.to_content())


def _in_words(ranker: Ranker) -> list[str]:
    normalised = ranker.normalised
    scaled = [
        "For each feature, take the lowest and the highest value among these documents.",
        "Replace each value by (value - lowest) / (highest - lowest), or by 0 where highest equals lowest.",
    ]
    return [
        "Take all documents of one query together." if normalised else "Take the documents of a query.",
        "A document has one number for each of feature_names, in that order; a missing feature is 0.",
        *(scaled if normalised else []),
        *ranker.plain.model.words(),
        "Show the document with the highest score first.",
        "To check a program: example.features holds one query's documents, one row each; its scores must equal "
        "example.scores within example.tolerance.",
    ]


def _example(width: int) -> Float32s:
    """Three documents; halves are exact in float32, and features 5, 12, 19, ... are constant."""
    document, feature = np.ogrid[1:4, 3 : width + 3]
    return ((document * feature % 7 - 1) / 2).astype(np.float32)


def _query(ranker: Ranker, features: Float32s) -> RankingData:
    """The rows as one query's documents, normalised if the ranker wants it."""
    rows = features.shape[0]
    offsets, labels = np.array([0, rows], np.int64), np.zeros(rows, np.int32)
    data = RankingData(features, labels, offsets, np.zeros(1, np.int64), ranker.feature_ids)
    return data.normalise() if ranker.normalised else data


def _scores(ranker: Ranker, features: Float32s) -> tuple[Float64s, float]:
    """Scores of one query's documents, in digits that are the same on any machine, and by how much others may differ.

    Sums in float64 may differ in their last digits with the processor, so these are left out.
    """
    model, parts = ranker.plain
    x = _query(ranker, features).features.astype(np.float64)
    sums = np.array([float(f"{score:.12g}") for score in model.sums(parts, x)])
    return sums, float(_TOLERANCE * model.magnitudes(parts, x).max())
