"""The optimizers of jax_bench.py, and the gathered rows of tables whose gradients they apply."""
from dataclasses import dataclass

from jax import numpy as jnp
from jax import tree


def clip_factor(gradients):
    """The factor that limits the global norm to 1."""
    return jnp.minimum(1, 1 / (jnp.sqrt(sum((g * g).sum() for g in tree.leaves(gradients))) + 1e-6))


@dataclass
class RowSparseSgd:
    """Updates only the rows that the batch uses, in place: the step owns the donated tables. Clips the norm of the other gradients."""
    rate: float

    def start(self, params):
        return {"params": params}

    def update(self, state, ids, gradients, row_gradients):
        params = dict(state["params"])
        for table, rows in ids.items():
            params[table] = params[table].at[rows].add(-self.rate * row_gradients[table])
        dense = [name for name in params if name not in ids]
        rate = self.rate * clip_factor([gradients[name] for name in dense])
        for name in dense:
            params[name] = tree.map(lambda p, g: p - rate * g, params[name], gradients[name])
        return {"params": params}


@dataclass
class Adam:
    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    clipped: bool = True
    decay: float = 0  # of the values themselves, as in AdamW

    def start(self, params):
        return {"params": params, "mean": tree.map(jnp.zeros_like, params), "square": tree.map(jnp.zeros_like, params),
                "updates": jnp.zeros(())}

    def update(self, state, ids, gradients, row_gradients):
        gradients = with_rows(gradients, ids, row_gradients)
        if self.clipped:
            factor = clip_factor(gradients)
            gradients = tree.map(lambda g: factor * g, gradients)
        updates = state["updates"] + 1
        rate, correction = self.rate / (1 - self.beta1**updates), 1 / (1 - self.beta2**updates)
        mean = tree.map(lambda m, g: self.beta1 * m + (1 - self.beta1) * g, state["mean"], gradients)
        square = tree.map(lambda v, g: self.beta2 * v + (1 - self.beta2) * g * g, state["square"], gradients)
        kept = 1 - self.rate * self.decay
        params = tree.map(lambda p, m, v: kept * p - rate * m / (jnp.sqrt(v * correction) + 1e-8), state["params"], mean, square)
        return {"params": params, "mean": mean, "square": square, "updates": updates}


def table_rows(params, ids):
    """{table: the rows of its ids}. The promise that all ids are in bounds saves the comparisons."""
    return {table: params[table].at[rows].get(mode="promise_in_bounds") for table, rows in ids.items()}


def with_rows(gradients, ids, row_gradients):
    """Adds the gradients of gathered rows to those of the tables."""
    return gradients | {table: gradients[table].at[rows].add(row_gradients[table]) for table, rows in ids.items()}
