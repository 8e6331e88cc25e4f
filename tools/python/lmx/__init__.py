"""Reads the files that lmx writes: runs, sweeps, plans and experiments as tables, checkpoints as arrays.

    import lmx
    run = lmx.Run("runs/quickstart/2026-05-01_101500")
    run.metrics("valid")                    # a pandas frame; frame="polars", or frame="list" without any package
    run.weights("best")                     # numpy arrays by name
    lmx.runs("runs")                        # one row for each run below a folder

The package needs only Python's standard library (3.8 or newer). pandas, polars, numpy, PyYAML and torch are imported
where a function returns their objects. It writes nothing. docs/python.md describes it.
"""
from .files import LmxError
from .results import Experiment, Sweep, plan
from .runs import Run, runs
from .tensors import tensors

__all__ = ["Experiment", "LmxError", "Run", "Sweep", "plan", "runs", "tensors"]
