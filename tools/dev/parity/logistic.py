#!/usr/bin/env python3
"""Golden values for the probes' logistic regression: scikit-learn's solutions of the same objective.

Needs scikit-learn. Writes tests/inference/golden/logistic.json: features, labels, and for each penalty and C the weights,
the bias and the objective. The bias is not penalised: solvers lbfgs and saga.
"""
import json
import pathlib

import numpy as np
from sklearn.linear_model import LogisticRegression


def objective(w, b, x, y, penalty, c):
    margin = (2 * y - 1) * (x @ w + b)
    norm = np.abs(w).sum() if penalty == "l1" else 0.5 * (w @ w)
    return float(norm + c * np.logaddexp(0, -margin).sum())


def best_bias(w, b, x, y):
    """saga stops when no weight changes, although the bias may still change; so this runs Newton's method for the bias only."""
    for _ in range(50):
        p = 1 / (1 + np.exp(-(x @ w + b)))
        b -= (p - y).sum() / (p * (1 - p)).sum()
    return float(b)


def fit(x, y, penalty, c):
    if penalty == "l2":
        model = LogisticRegression(C=c, tol=1e-12, max_iter=100000)
    else:
        model = LogisticRegression(l1_ratio=1.0, solver="saga", C=c, tol=1e-12, max_iter=1000000, random_state=0)
    model.fit(x, y)
    w = model.coef_[0]
    b = best_bias(w, model.intercept_[0], x, y)
    return {"penalty": penalty, "c": c, "weights": w.tolist(), "bias": b, "objective": objective(w, b, x, y, penalty, c)}


def main():
    rng = np.random.default_rng(3)
    cases = []
    for rows, columns, scale in [(80, 6, 1.0), (60, 90, 0.3)]:
        x = (rng.normal(size=(rows, columns)) * scale * (1 + np.arange(columns) % 5)).astype(np.float32)
        x[:, 1] = 0.7 * x[:, 0] + 0.3 * x[:, 1]  # correlated
        y = (x[:, 0] - 0.5 * x[:, 2] + 0.4 * rng.normal(size=rows) > 0.2).astype(int)
        x = np.round(x, 4).astype(np.float32)
        fits = [fit(x.astype(np.float64), y, p, c) for p in ("l1", "l2") for c in (2.0**-6, 0.25, 1.0)]
        cases.append({"rows": rows, "columns": columns, "features": [round(float(v), 4) for v in x.ravel()],
                      "labels": y.tolist(), "fits": fits})
    path = pathlib.Path(__file__).resolve().parents[3] / "tests/inference/golden/logistic.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
