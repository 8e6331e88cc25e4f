#!/usr/bin/env python3
"""Golden values for tests/ops: results of PyTorch for the array and attention ops, fp32 on the CPU.

Writes tests/ops/golden/array_ops.safetensors. The cases are those of tests/ops/array_op_cases.h, by name: inputs "NAME.x0", ..., the
result "NAME.y", weights "NAME.w", and the gradients "NAME.d0", ... of sum(y w).
They are computed in f64 from inputs that f32 represents exactly.

usage: tools/dev/parity/array_ops.py        (needs torch; the tests themselves need no Python)
"""
import math
import pathlib

import torch
import torch.nn.functional as F

import golden_file

golden_file.FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tests/ops/golden"
tensors = {}


def case(name, f, *shapes, positive=False):
    numpy = lambda t: t.detach().float().numpy().copy()
    inputs = [torch.randn(s) for s in shapes]
    if positive:
        inputs = [0.5 + x.abs() for x in inputs]
    wide = [x.double().requires_grad_() for x in inputs]
    y = f(*wide)
    y = y.reshape(1) if y.dim() == 0 else y
    w = torch.randn(y.shape)
    gradients = torch.autograd.grad((y * w.double()).sum(), wide, allow_unused=True)
    tensors[name + ".y"], tensors[name + ".w"] = numpy(y), numpy(w)
    for i, (x, d) in enumerate(zip(inputs, gradients)):
        tensors[f"{name}.x{i}"] = numpy(x)
        tensors[f"{name}.d{i}"] = numpy(torch.zeros_like(x) if d is None else d)


def shapes():
    case("slice_rows", lambda x: x[1:3], (4, 3))
    case("slice_middle", lambda x: x[:, -3:-1], (2, 5, 3))
    case("split_last", lambda x: torch.mul(*x.split([1, 3], -1)), (2, 3, 4))
    case("concat_rows", lambda a, b: torch.cat([a, b, a]), (2, 3), (1, 3))
    case("concat_last", lambda a, b: torch.cat([a, b], -1), (2, 1, 3), (2, 1, 2))
    case("stack_first", lambda a, b: torch.stack([a, b]), (2, 3), (2, 3))
    case("stack_last", lambda a, b: torch.stack([a, b], -1), (2, 3), (2, 3))
    case("transpose_matrix", lambda x: x.transpose(0, 1), (3, 5))
    case("transpose_heads", lambda x: x.transpose(1, -2), (2, 3, 4, 2))
    case("transpose_batches", lambda x: x.transpose(-1, -2), (2, 3, 4))
    case("permute_cycle", lambda x: x.permute(2, 0, -2), (2, 3, 4))
    case("permute_same", lambda x: x.permute(0, 1, 2), (2, 1, 4))
    case("broadcast_rows", lambda x: x.expand(2, 4, 3), (3,))
    case("broadcast_middle", lambda x: x.expand(2, 4, 3), (2, 1, 3))


def arithmetic():
    operands = dict(same=[(2, 3), (2, 3)], row=[(2, 4, 3), (3,)], column=[(2, 3), (2, 1)], left=[(1, 3), (2, 4, 3)],
                    outer=[(2, 1, 3), (4, 1)], scalar=[(2, 3), (1,)], middle=[(2, 3, 4), (2, 1, 4)])
    for op, f in dict(add=torch.add, subtract=torch.sub, multiply=torch.mul, divide=torch.div).items():
        for name, s in operands.items():
            case(f"{op}_{name}", f, *s, positive=op == "divide")
    case("subtract_itself", lambda x: x - x, (2, 3))
    functions = dict(exp=torch.exp, silu=F.silu, gelu=F.gelu, gelu_tanh=lambda x: F.gelu(x, approximate="tanh"), log=torch.log, sqrt=torch.sqrt)
    for op, f in functions.items():
        case(op, f, (3, 17), positive=op in ("log", "sqrt"))
    for p in (-1.5, 0, 1, 2, 3):
        case(f"pow_{p}", lambda x, p=p: x.pow(p), (2, 3), positive=p == -1.5)
    case("add_constant", lambda x: x + -1.25, (2, 3))
    products = dict(matrices=[(3, 4), (4, 2)], batched=[(2, 3, 4), (2, 4, 5)], flat=[(2, 3, 4), (4, 5)], one_left=[(3, 4), (2, 4, 5)],
                    repeated=[(2, 1, 3, 4), (3, 4, 2)], vectors=[(2, 1, 3), (2, 3, 1)])
    for name, (a, b) in products.items():
        case("matmul_" + name, torch.matmul, a, b)
        case("matmul_transposed_" + name, lambda x, y: x @ y.transpose(-1, -2), a, b[:-2] + (b[-1], b[-2]))


def reductions():
    for name, dims in dict(first=[0], last=[-1], middle=[1], ends=[0, -1], all=[0, 1, 2]).items():
        for keep in (False, True):
            tail = name + ("_kept" if keep else "")
            case("sum_" + tail, lambda x: x.sum(dims, keep), (2, 3, 4))
            case("mean_" + tail, lambda x: x.mean(dims, keep), (2, 3, 4))
            if len(dims) == 1:
                case("max_" + tail, lambda x: x.max(dims[0], keep)[0], (2, 3, 4))
    case("sum_of_one", lambda x: x.sum(1), (3, 1))
    for dim in (0, 1, -1):
        tail = "last" if dim < 0 else dim
        case(f"softmax_{tail}", lambda x: x.softmax(dim), (2, 3, 5))
        case(f"log_softmax_{tail}", lambda x: x.log_softmax(dim), (2, 3, 5))
    for s in ((2, 3, 5), (4, 1), (1, 7)):
        case(f"rms_norm_{math.prod(s)}", lambda x, g: F.rms_norm(x, s[-1:], g, 1e-2), s, s[-1:])


def indices():
    rows, columns = torch.tensor([[3, 0, 3], [1, 2, 0]]), torch.tensor([[2, 2], [0, 1]])
    narrow, apart = torch.tensor([[[0, 1]], [[1, 0]], [[0, 0]]]), torch.tensor([[2, 0], [0, 1]])
    case("gather_rows", lambda x: x.gather(0, rows), (4, 3))
    case("gather_columns", lambda x: x.gather(-1, columns), (2, 3))
    case("gather_middle", lambda x: x.gather(1, narrow), (3, 2, 2))
    case("scatter_columns", lambda x, s: x.scatter(1, apart, s), (2, 3), (2, 2))
    case("scatter_add_rows", lambda x, s: x.scatter_add(0, rows, s), (4, 3), (2, 3))
    case("scatter_add_columns", lambda x, s: x.scatter_add(1, columns, s), (2, 3), (2, 2))
    full = torch.tensor([[1, 0, 0], [1, 1, 0]]).bool()
    case("where_full", lambda a, b: torch.where(full, a, b), (2, 3), (1,))
    case("where_column", lambda a, b: torch.where(torch.tensor([[True], [False]]), a, b), (2, 3), (2, 3))


LENGTHS, LONGER = (3, 1, 4), (2, 5, 1)


def rope(x, interleaved, heads=2, base=100, frequencies=None):
    """Su et al. 2021 by complex products: pair i of a head is rotated by position * frequencies[i], else base^(-2 i / size)."""
    n, size = x.shape[0], x.shape[1] // heads
    positions = torch.cat([torch.arange(k) for k in LENGTHS]).double()
    speeds = base ** (-torch.arange(0, size, 2).double() / size) if frequencies is None else torch.tensor(frequencies).double()
    angles = positions[:, None] * speeds
    x = x.reshape(n, heads, size)
    pairs = x.reshape(n, heads, -1, 2) if interleaved else torch.stack(x.chunk(2, -1), -1)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles)[:, None])
    return (turned.flatten(-2) if interleaved else torch.cat(turned.unbind(-1), -1)).reshape(n, -1)


def attention(q, k, v, kv_heads, keys, causal=False, bias=None, heads=4):
    rows = []
    for b, (q1, k1, v1) in enumerate(zip(q.split(LENGTHS), k.split(keys), v.split(keys))):
        apart = lambda x, n: x.reshape(len(x), n, -1).transpose(0, 1)[None]
        mask = None
        if bias is not None:
            mask = (bias[b] if bias.dim() == 4 else bias)[..., : len(q1), : len(k1)]
            if causal:
                mask = mask + torch.full(mask.shape[-2:], -math.inf).triu(1)
        y = F.scaled_dot_product_attention(apart(q1, heads), apart(k1, kv_heads), apart(v1, kv_heads), attn_mask=mask,
                                           is_causal=causal and mask is None, enable_gqa=True)
        rows.append(y[0].transpose(0, 1).reshape(len(q1), -1))
    return torch.cat(rows)


def attentions():
    case("rope_interleaved", lambda x: rope(x, True), (8, 12))
    case("rope_halves", lambda x: rope(x, False), (8, 12))
    for kv in (4, 2, 1):
        widths = [12, 3 * kv, 3 * kv]
        for causal in (False, True):
            case(f"attention_grouped_{kv}" + ("_causal" if causal else ""),
                 lambda x: attention(*x.split(widths, 1), kv, LENGTHS, causal), (8, sum(widths)))
        case(f"attention_across_{kv}", lambda q, x: attention(q, *x.chunk(2, 1), kv, LONGER), (8, 12), (8, 6 * kv))
    for name, s in dict(all=(5, 6), heads=(4, 4, 5), sequences=(3, 1, 4, 5), each=(3, 4, 4, 5)).items():
        case("attention_bias_" + name, lambda q, k, v, b: attention(q, k, v, 2, LONGER, bias=b), (8, 12), (8, 6), (8, 6), s)
    case("attention_bias_causal", lambda x, b: attention(*x.split([12, 6, 6], 1), 2, LENGTHS, True, b), (8, 24), (4, 4, 4))


def gated():
    case("swiglu", lambda x: F.silu(x[..., :17]) * x[..., 17:], (2, 3, 34))
    case("rope_first_heads", lambda x: torch.cat([rope(x[:, :8], False, frequencies=(1.5, 0.25)), x[:, 8:]], 1), (8, 12))


torch.manual_seed(1)
for group in (shapes, arithmetic, reductions, indices, attentions, gated):
    group()
golden_file.save("array_ops", tensors, dict(torch=torch.__version__))
print(len([n for n in tensors if n.endswith(".y")]), "cases")
