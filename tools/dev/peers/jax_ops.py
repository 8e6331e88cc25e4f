"""The parts of jax_bench.py's models: matrix products, recurrent cores, the Transformer's loss, dropout and layer norm.

Products, cores and loss have hand-written backward passes; `jax_bench.py --check` compares them with JAX's own.
Axes are named T (time), B (sequences of a batch), N (features), and V (vocabulary).
"""
import itertools

import jax
from jax import lax
from jax import numpy as jnp
from jax.nn import logsumexp, sigmoid

U32 = jnp.uint32


class Products:
    """Matrix products that round their inputs to `dtype` and accumulate in float32 (float64 if `dtype` is float64)."""

    def __init__(self, dtype, by_hand=True):
        self.dtype, self.result, self.by_hand = dtype, jnp.promote_types(dtype, jnp.float32), by_hand
        self.matmul = self.differentiable(lambda a, b: (self.dot(a, b), self.rounded(a, b)), self.matmul_backward)
        self.matmul_nt = self.differentiable(lambda a, b: (self.dot_nt(a, b), self.rounded(a, b)), self.matmul_nt_backward)

    def differentiable(self, forward, backward):
        """forward(*args) returns (result, saved); backward(saved, gradient) returns the gradients of args.

        Without `by_hand` JAX differentiates `forward` by itself: the reference of --check.
        """
        function = lambda *args: forward(*args)[0]
        if self.by_hand:
            function = jax.custom_vjp(function)
            function.defvjp(forward, backward)
        return function

    def rounded(self, *arrays):
        return [x.astype(self.dtype) for x in arrays]

    def product(self, a, b, contracted):
        """Contracts a's last axis with b's axis `contracted`. All axes but the last two are batch axes."""
        batch = tuple(range(a.ndim - 2))
        axes = ((a.ndim - 1,), (contracted,)), (batch, batch)
        return lax.dot_general(*self.rounded(a, b), axes, preferred_element_type=self.result)

    def dot(self, a, b):  # a @ b
        return self.product(a, b, b.ndim - 2)

    def dot_nt(self, a, b):  # a @ b^T
        return self.product(a, b, b.ndim - 1)

    def transposed(self, x):
        """A copy of x with its last two axes exchanged.

        XLA computes A @ B and A @ B^T fast on CPUs, but A^T @ B more slowly, and in bf16 after a conversion of both factors to float32.
        So every A^T @ B below is dot(transposed(A), B). The barrier follows a reshape to one axis; otherwise XLA merges the copy with
        the product. How much the copy helps depends on the CPU: without it, steps on an Intel Xeon with AVX512-BF16 took 1 % less to
        3 % more time in fp32, and up to 12 % less in bf16.
        """
        y = x.astype(self.dtype).swapaxes(-1, -2)
        return lax.optimization_barrier(y.reshape(-1)).reshape(y.shape)

    def matmul_backward(self, saved, gradient):
        a, b = saved
        return self.dot_nt(gradient, b), self.dot(self.transposed(a), gradient)

    def matmul_nt_backward(self, saved, gradient):
        a, b = saved
        return self.dot(gradient, b), self.dot(self.transposed(gradient), a)

    def pack(self, x):
        """x as a scan should store it: XLA would convert a whole bf16 array whenever a step of the scan writes its slice of it. The
        same bits as integers are written without conversions. Without this, steps of the character models took 1.4 times as long."""
        return lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16) if self.dtype == jnp.bfloat16 else x


def unpack(x):
    return lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x


# Recurrent cores. If JAX differentiated a scan, each of its steps would add to the gradients of the weights. Instead, each core has a
# backward pass that computes the gradient of a weight after the scan, as one product over all T * B columns. Input projections are
# computed before the scan in the same way. If JAX differentiated everything, steps of word_lstm and char_rhn would take 1.7 and 1.9
# times as long. Inside a scan the state is (N, B), because W @ state is the fastest order and layout of that small product. `o`
# is a Products object.


def as_columns(sequence):  # (T, N, B), packed or not -> (N, T * B)
    return unpack(sequence).swapaxes(0, 1).reshape(sequence.shape[1], -1)


def as_rows(sequence):  # (T, N, B), packed or not -> (T * B, N)
    return unpack(sequence).swapaxes(1, 2).reshape(-1, sequence.shape[1])


def from_rows(rows, steps):  # (T * B, N) -> (T, N, B)
    return rows.reshape(steps, -1, rows.shape[1]).swapaxes(1, 2)


def column_sums(rows, dtype):  # the gradient of a bias
    return rows.sum(0, dtype=dtype)


def lstm_gates(z, c):
    """Gates z (4N, B) and cells c (N, B) -> the new cells, the new output, and the values that lstm_gates_backward needs."""
    i, f, u, o = jnp.split(z, 4)
    i, f, u, o = sigmoid(i), sigmoid(f), jnp.tanh(u), sigmoid(o)
    new = f * c + i * u
    squashed = jnp.tanh(new)
    return new, o * squashed, (c, squashed, i, f, u, o)


def lstm_gates_backward(d_output, d_new, saved):
    """Gradients of the new output and the new cells -> gradients of the old cells and of z."""
    c, squashed, i, f, u, o = saved
    d_new = d_new + d_output * o * (1 - squashed * squashed)
    d_i, d_f = d_new * u * i * (1 - i), d_new * c * f * (1 - f)
    d_u, d_o = d_new * i * (1 - u * u), d_output * squashed * o * (1 - o)
    return d_new * f, jnp.concatenate([d_i, d_f, d_u, d_o])


def lstm_core(o, steps):
    """LSTM with projection: wh (P, 4N), wr (N, P), bias (4N), input projections (T * B, 4N) -> states (T, P, B)."""

    def forward(wh, wr, bias, projections):
        wh_t, wr_t, inputs = o.transposed(wh), o.transposed(wr), from_rows(projections, steps)

        def cell(carry, x):
            h, c = carry
            c, m, gates = lstm_gates(x + bias[:, None] + o.dot(wh_t, h), c)
            new = o.dot(wr_t, m)
            return (new, c), (new, o.pack(h), o.pack(m), gates)

        zeros = lambda n: jnp.zeros((n, inputs.shape[2]), inputs.dtype)
        _, (states, *saved) = lax.scan(cell, (zeros(wr.shape[1]), zeros(wr.shape[0])), inputs)
        return states, (o.rounded(wh, wr), saved)

    def backward(saved, d_states):
        (wh, wr), (h, m, gates) = saved

        def cell(carry, x):
            (d_h, d_c), (d_state, gates) = carry, x
            d_h = d_h + d_state
            d_c, d_z = lstm_gates_backward(o.dot(wr, d_h), d_c, gates)
            return (o.dot(wh, d_z), d_c), (o.pack(d_h), o.pack(d_z))

        zeros = jnp.zeros_like(d_states[0]), jnp.zeros_like(gates[0][0])
        d_h, d_z = map(as_rows, lax.scan(cell, zeros, (d_states, gates), reverse=True)[1])
        d_wh, d_wr = o.dot(as_columns(h), d_z), o.dot(as_columns(m), d_h)
        return d_wh, d_wr, column_sums(d_z, o.result), d_z.astype(o.result)

    return o.differentiable(forward, backward)


def mlstm_core(o, steps):
    """Multiplicative LSTM with weight norm: vm (N, N), vh (N, 4N), a gain for each of their columns, bias (4N), the projections of the
    input to the factors (T * B, N) and to the gates (T * B, 4N) -> states (T, N, B)."""

    def forward(vm, vh, gain_m, gain_h, bias, to_factors, to_gates):
        vm_t, vh_t, inputs = o.transposed(vm), o.transposed(vh), (from_rows(to_factors, steps), from_rows(to_gates, steps))

        def cell(carry, x):
            (h, c), (factor, x) = carry, x
            a = gain_m[:, None] * o.dot(vm_t, h)  # the gains scale results, (N, B), which are smaller than the weights, (N, N)
            m = factor * a
            c, new, gates = lstm_gates(x + bias[:, None] + gain_h[:, None] * o.dot(vh_t, m), c)
            return (new, c), (new, o.pack(h), o.pack(m), (a, factor, gates))

        _, (states, *saved) = lax.scan(cell, (jnp.zeros_like(inputs[0][0]),) * 2, inputs)
        return states, (vm, vh, gain_m, gain_h, saved)

    def backward(saved, d_states):
        vm, vh, gain_m, gain_h, (h, m, saved_cells) = saved
        rounded_vm, rounded_vh = o.rounded(vm, vh)

        def cell(carry, x):
            (d_h, d_c), (d_state, (a, factor, gates)) = carry, x
            d_c, d_z = lstm_gates_backward(d_h + d_state, d_c, gates)
            d_m = o.dot(rounded_vh, gain_h[:, None] * d_z)
            d_a = d_m * factor
            return (o.dot(rounded_vm, gain_m[:, None] * d_a), d_c), (o.pack(d_a), o.pack(d_z), d_m * a)

        zeros = (jnp.zeros_like(d_states[0]),) * 2
        d_a, d_z, d_factors = map(as_rows, lax.scan(cell, zeros, (d_states, saved_cells), reverse=True)[1])
        d_wm, d_wh = o.dot(as_columns(h), d_a), o.dot(as_columns(m), d_z)  # of the weights, which are v * gain
        d_gains = (d_wm * vm).sum(0), (d_wh * vh).sum(0)
        return d_wm * gain_m, d_wh * gain_h, *d_gains, column_sums(d_z, o.result), d_factors, d_z.astype(o.result)

    return o.differentiable(forward, backward)


def rhn_core(o, steps):
    """Recurrent highway network: a weight (N, 2N) and a bias (2N) for each layer, input projections (T * B, 2N) -> states (T, N, B)."""

    def forward(weights, biases, projections):
        transposed, width, inputs = [o.transposed(w) for w in weights], len(weights[0]), from_rows(projections, steps)

        def cell(s, x):
            layers = []
            for w, bias in zip(transposed, biases):
                z = o.dot(w, s) + (bias[:, None] + x)
                h, gate = jnp.tanh(z[:width]), sigmoid(z[width:])
                layers.append((s, h, gate))
                s, x = h * gate + s * (1 - gate), 0  # the input enters the first layer only
            return s, (s, layers)

        _, (states, saved) = lax.scan(cell, jnp.zeros((width, inputs.shape[2]), inputs.dtype), inputs)
        return states, (o.rounded(*weights), saved)

    def backward(saved, d_states):
        weights, saved_layers = saved

        def cell(d_s, x):
            d_state, layers = x
            d_s, d_zs = d_s + d_state, []
            for w, (s, h, gate) in zip(reversed(weights), reversed(layers)):
                d_z = jnp.concatenate([d_s * gate * (1 - h * h), d_s * (h - s) * gate * (1 - gate)])
                d_s = d_s * (1 - gate) + o.dot(w, d_z)
                d_zs.insert(0, o.pack(d_z))
            return d_s, d_zs

        d_zs = lax.scan(cell, jnp.zeros_like(d_states[0]), (d_states, saved_layers), reverse=True)[1]
        d_zs = [as_rows(d_z) for d_z in d_zs]
        d_weights = [o.dot(as_columns(s), d_z) for d_z, (s, _, _) in zip(d_zs, saved_layers)]
        return d_weights, [column_sums(d_z, o.result) for d_z in d_zs], d_zs[0].astype(o.result)

    return o.differentiable(forward, backward)


# The other parts of the models.


def smoothed_cross_entropy(o, smoothing):
    """Output table (V, N), hidden states (tokens, N), targets -> mean cross entropy with label smoothing."""

    def forward(table, hidden, targets):
        logits = o.dot_nt(hidden, table)
        normaliser, hit = logsumexp(logits, 1), jnp.take_along_axis(logits, targets[:, None], 1)[:, 0]
        loss = (normaliser - (1 - smoothing) * hit - smoothing * logits.mean(1)).mean()
        return loss, (*o.rounded(table, hidden), targets, logits, normaliser)

    def backward(saved, d_loss):
        table, hidden, targets, logits, normaliser = saved
        wanted = jnp.where(jnp.arange(len(table)) == targets[:, None], 1 - smoothing, 0) + smoothing / len(table)
        d_logits = ((jnp.exp(logits - normaliser[:, None]) - wanted) * (d_loss / len(targets))).astype(o.dtype)
        # d_logits^T @ hidden would copy the largest array of the step; its transpose, hidden^T @ d_logits, copies `hidden` instead. The
        # barrier prevents XLA from exchanging the factors again.
        d_table = lax.optimization_barrier(o.dot(o.transposed(hidden), d_logits)).T
        return d_table, o.dot(d_logits, table), None

    return o.differentiable(forward, backward)


class Dropout:
    """Each element of a mask is a hash of (seed, call, index). XLA computes it in the loops that use it, forward and backward, so masks
    are not stored, and no time is spent on JAX's slower random numbers."""

    def __init__(self, rate, seed):
        self.rate, self.seed, self.calls = rate, seed, itertools.count(1)

    def __call__(self, x):
        offset = (self.seed * U32(1000) + U32(next(self.calls))) * U32(0x9E3779B1)
        bits = lax.iota(U32, x.size).reshape(x.shape) + offset
        bits = (bits ^ (bits >> 16)) * U32(0x21F0AAAD)
        bits = (bits ^ (bits >> 15)) * U32(0x735A2D97)
        return jnp.where((bits >> 8) >= U32(self.rate * 2**24), x * (1 / (1 - self.rate)), 0)


def layer_norm(x, p):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["shift"]


def rms_norm(x, gain):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain
