"""A fitted estimator as an ONNX graph, for runtimes that know nothing of Python (package `onnx`).

The graph is what `predict` computes: columns in units of the first rows, features of them, one
product with w, and for classes the rule of `faces.discriminant`. It does not learn.
"""

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from orfit.features import Drawn
from orfit.sklearn.classifier import ORFitClassifier
from orfit.sklearn.scaled import Scaled
from orfit.validation import Array

OPSET = 17
BENT = {"fourier": "Cos", "relu": "Relu"}


def export(model: Any) -> Any:
    """An `onnx.ModelProto` of a fitted `ORFitRegressor` or `ORFitClassifier`.

    Its input is `X`, (n, d), float64 or float32 as the estimator learned. Its output is `y`,
    (n, q); of a classifier `label`, (n,), and `probabilities`, (n, k), in the order of `classes_`.

    Examples:
        >>> from orfit.sklearn import ORFitRegressor
        >>> from orfit.sklearn.onnx import export
        >>> model = ORFitRegressor().fit([[1.0], [2.0], [3.0]], [1.0, 2.0, 4.0])
        >>> [node.op_type for node in export(model).graph.node]
        ['MatMul', 'Add']
    """
    try:
        from onnx import checker, helper
    except ImportError:
        raise ImportError("an ONNX graph is made by the package onnx: pip install onnx") from None

    check_is_fitted(model)
    scaled: Scaled = model._learned.scaled
    graph = _Graph(np.dtype(scaled.settings.dtype))
    slopes, bias = scaled.linear()
    rows, kind = "X", scaled.features
    if isinstance(kind, Drawn):
        rows = graph.node("Sub", rows, graph.number(scaled.inputs.mean))
        rows = graph.node("Div", rows, graph.number(scaled.inputs.unit))
        rows = _features(graph, rows, kind, len(scaled.inputs.mean))
    if not isinstance(model, ORFitClassifier):
        graph.linear(rows, slopes.T, bias, name="y")
        outputs = [graph.of_rows("y", len(bias))]
    else:
        A, b = scaled.rule()
        order = np.argsort(model._heads)
        A, b = A[:, order], b[order]
        scores = graph.linear(rows, slopes.T @ A, bias @ A + b)
        graph.node("Softmax", scores, name="probabilities", axis=1)
        most = graph.node("ArgMax", scores, axis=1, keepdims=0)
        classes = model.classes_
        texts = classes.dtype.kind in "OSU"
        names = graph.constant(classes.astype(object if texts else np.int64))
        graph.node("Gather", names, most, name="label")
        kinds = helper.np_dtype_to_tensor_dtype(np.dtype(object if texts else np.int64))
        label = helper.make_tensor_value_info("label", kinds, ["n"])
        outputs = [label, graph.of_rows("probabilities", len(classes))]
    inputs = [graph.of_rows("X", model.n_features_in_)]
    made = helper.make_graph(graph.nodes, "orfit", inputs, outputs, graph.constants)
    opset = [helper.make_opsetid("", OPSET)]
    proto = helper.make_model(made, opset_imports=opset, ir_version=8, producer_name="orfit")
    checker.check_model(proto)
    return proto


def _features(graph: "_Graph", Z: str, kind: Drawn, columns: int) -> str:
    """What `Drawn.make` makes of scaled columns; the numbers that a seed gave are in the graph."""
    omega, b = kind.draw(np.random.default_rng(kind.seed), columns)
    bent = graph.node(BENT[kind.kind], graph.linear(Z, omega, b))
    bent = graph.node("Mul", bent, graph.number(np.array(math.sqrt(2 / kind.count))))
    itself = graph.node("Div", Z, graph.number(np.array(math.sqrt(columns))))
    return graph.node("Concat", itself, bent, axis=1)


class _Graph:
    """Nodes in order, and the constants that they read."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.nodes, self.constants = dtype, list[Any](), list[Any]()

    def constant(self, values: Array) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def number(self, values: Array) -> str:
        return self.constant(np.ascontiguousarray(values, self.dtype))

    def node(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        made = name or f"made_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [made], **attributes))
        return made

    def linear(self, rows: str, slopes: Array, bias: Array, name: str | None = None) -> str:
        product = self.node("MatMul", rows, self.number(slopes))
        return self.node("Add", product, self.number(bias), name=name)

    def of_rows(self, name: str, columns: int) -> Any:
        from onnx import helper

        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        return helper.make_tensor_value_info(name, kind, ["n", columns])
