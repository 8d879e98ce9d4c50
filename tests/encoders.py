"""Small networks in ONNX's format, in the place of a neural encoder: mean over frames of tanh(x W)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

from pipeline.config import EmbeddingConfig

WEIGHTS = np.random.default_rng(7).normal(0.0, 0.1, (80, 16)).astype(np.float32)


def network(
    weights: np.ndarray = WEIGHTS,
    *,
    bands: int = 80,
    frames: int | str = "frames",
    inputs: int = 1,
    pooled: bool = True,
) -> bytes:
    """Return the file of a network from (windows, ``frames``, ``bands``) to embeddings, or to a row a frame."""
    matrix = np.resize(weights, (bands, weights.shape[1])).astype(np.float32)
    given = [
        helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, ["windows", frames, bands]) for k in range(inputs)
    ]
    nodes = [helper.make_node("MatMul", ["x0", "w"], ["product"]), helper.make_node("Tanh", ["product"], ["rows"])]
    nodes += [helper.make_node("ReduceMean", ["rows", "axes"], ["mean"], keepdims=0)] if pooled else []
    shape = ["windows", matrix.shape[1]] if pooled else ["windows", frames, matrix.shape[1]]
    made = helper.make_tensor_value_info("mean" if pooled else "rows", TensorProto.FLOAT, shape)
    constants = [numpy_helper.from_array(matrix, "w"), numpy_helper.from_array(np.array([1], dtype=np.int64), "axes")]
    graph = helper.make_graph(nodes, "encoder", given, [made], constants[: 1 + pooled])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def write_network(path: Path, weights: np.ndarray = WEIGHTS) -> EmbeddingConfig:
    """Write a network and return the settings that name it."""
    content = network(weights)
    path.write_bytes(content)
    return EmbeddingConfig(path=str(path), sha256=hashlib.sha256(content).hexdigest())
