"""Writes an ONNX model of BLOCKS residual blocks of eight nodes each: residual_model.py OUT BLOCKS.

By hand, since what reads such files is not always there: the protocol buffers' wire format is a
number and a kind, then a varint or a length with as many bytes.
"""

import struct
import sys


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n)


def text(field, value):
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


FLOAT = 1  # TensorProto.DataType


def node(op, inputs, output):
    return text(1, b"".join(text(1, i) for i in inputs) + text(2, output) + text(3, output)
                + text(4, op))


def weight(name, sizes, seed):
    count = 1
    for n in sizes:
        count *= n
    values = [((seed * 37 + k * 11) % 17 - 8) / 24 for k in range(count)]
    return text(5, b"".join(number(1, n) for n in sizes) + number(2, FLOAT)
                + text(8, name) + text(9, struct.pack(f"<{count}f", *values)))


def value(field, name, sizes):
    dims = b"".join(text(1, number(1, n) if isinstance(n, int) else text(2, n)) for n in sizes)
    return text(field, text(1, name) + text(2, text(1, number(1, FLOAT) + text(2, dims))))


def model(blocks, width=16, name="residual"):
    graph, weights, x = b"", b"", "x"
    for b in range(blocks):
        p = f"block{b}."
        graph += node("MatMul", [x, p + "w0"], p + "up")
        graph += node("Add", [p + "up", p + "b0"], p + "shifted")
        graph += node("Tanh", [p + "shifted"], p + "bent")
        graph += node("MatMul", [p + "bent", p + "w1"], p + "down")
        graph += node("Relu", [p + "down"], p + "gate")
        graph += node("Mul", [p + "gate", p + "bent"], p + "gated")
        graph += node("Sub", [p + "gated", p + "down"], p + "change")
        graph += node("Add", [x, p + "change"], p + "out")
        x = p + "out"
        for k, (w, sizes) in enumerate([("w0", [width, width]), ("b0", [width]),
                                        ("w1", [width, width])]):
            weights += weight(p + w, sizes, 4 * b + k)
    graph += text(2, name) + weights + value(11, "x", ["N", width]) + value(12, x, ["N", width])
    return number(1, 8) + text(7, graph) + text(8, text(1, "") + number(2, 16))


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as f:
        f.write(model(int(sys.argv[2])))
