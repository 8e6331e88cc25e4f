#!/usr/bin/env python3
"""Golden values for tests/optim: 50 updates by optimizers of PyTorch, of the packages transformers and schedulefree, and by the
formulas of the papers, in f64 on the CPU.

Writes tests/optim/golden/optimizers.safetensors: initial values "PARAM.initial", gradients "PARAM.gradients" (50, ...), learning rates
"rates" (50), and for each case of tests/optim/reference_test.cc the values after the last update, "CASE.PARAM". Update 3 uses a
quarter of its gradient. Case names ending in "_warm" use "warm_rates". "CASE.PARAM.average": the average that is used.

usage: tools/dev/parity/optimizers.py        (needs torch, transformers, schedulefree; the tests themselves need no Python)
"""
import pathlib
from importlib.metadata import version

import numpy
import schedulefree
import torch
import transformers
from torch.optim import _muon
from transformers.optimization import Adafactor

import golden_file

golden_file.FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tests/optim/golden"
UPDATES, WARMUP = 50, 5
SHAPES = dict(wide=(4, 7), tall=(9, 3), stacked=(10, 4), vector=(5,))
PARTS = [5, 3, 2]  # of "stacked"

torch.manual_seed(3)
tensors = {"rates": numpy.float32([0.02 * (1 - t / 60) for t in range(UPDATES)]),
           "warm_rates": numpy.float32([0.02 * min(1, (t + 1) / WARMUP) for t in range(UPDATES)])}
for name, shape in SHAPES.items():
    tensors[name + ".initial"] = torch.randn(shape).numpy()
    tensors[name + ".gradients"] = torch.randn((UPDATES, *shape)).numpy()


def run(case, make, params, rates="rates"):
    """make(parameter) returns an optimizer of PyTorch, or a function step(parameter, gradient, rate, number)."""
    for name in params:
        p = torch.nn.Parameter(torch.tensor(tensors[name + ".initial"]).double())
        own = make(p)
        if hasattr(own, "train"):
            own.train()
        for t in range(UPDATES):
            g = torch.tensor(tensors[name + ".gradients"][t]).double() * (0.25 if t == 2 else 1)
            rate = float(tensors[rates][t])
            if isinstance(own, torch.optim.Optimizer):
                own.param_groups[0]["lr"] = rate
                p.grad = g.clone()
                own.step()
            else:
                with torch.no_grad():
                    own(p, g, rate, t + 1)
        tensors[f"{case}.{name}"] = p.detach().float().numpy()
        if hasattr(own, "eval"):
            own.eval()
            tensors[f"{case}.{name}.average"] = p.detach().float().numpy().copy()


DION = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)]


def newton_schulz(u, coefficients, steps, eps):
    """PyTorch computes it in bf16."""
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / (x.norm() + 1e-7)
    for i in range(5):
        a, b, c = DION[i] if newton_schulz.dion else coefficients
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if u.shape[0] > u.shape[1] else x


_muon._zeropower_via_newtonschulz = newton_schulz


class MuonOfParts:
    """Muon for each part of a parameter."""

    def __init__(self, p, **options):
        self.parts = [torch.nn.Parameter(part.clone()) for part in p.detach().split(PARTS)]
        self.own = torch.optim.Muon(self.parts, **options)

    def __call__(self, p, g, rate, number):
        self.own.param_groups[0]["lr"] = rate
        for part, gradient in zip(self.parts, g.split(PARTS)):
            part.grad = gradient.clone()
        self.own.step()
        p.copy_(torch.cat(self.parts))


def muon():
    newton_schulz.dion = False
    cases = dict(muon={}, muon_rms=dict(adjust_lr_fn="match_rms_adamw", weight_decay=0.1, nesterov=False, momentum=0.9))
    for case, options in cases.items():
        options = dict(weight_decay=0) | options
        run(case, lambda p: torch.optim.Muon([p], **options), ["wide", "tall"])
        run(case, lambda p: MuonOfParts(p, **options), ["stacked"])
    newton_schulz.dion = True
    run("muon_dion", lambda p: torch.optim.Muon([p], weight_decay=0, adjust_lr_fn="spectral_unclamped"), ["wide", "tall"])


def lion(betas, decay):
    def make(p):
        m = torch.zeros_like(p)

        def step(p, g, rate, number):
            p.mul_(1 - rate * decay).sub_(rate * torch.sign(betas[0] * m + (1 - betas[0]) * g))
            m.mul_(betas[1]).add_((1 - betas[1]) * g)
        return step
    return make


def lamb(betas, eps, decay):
    def make(p):
        m, v = torch.zeros_like(p), torch.zeros_like(p)

        def step(p, g, rate, number):
            m.mul_(betas[0]).add_((1 - betas[0]) * g)
            v.mul_(betas[1]).add_((1 - betas[1]) * g * g)
            r = m / (1 - betas[0]**number) / ((v / (1 - betas[1]**number)).sqrt() + eps)
            if p.dim() > 1:
                r = r + decay * p
                r = r * p.norm() / r.norm()
            p.sub_(rate * r)
        return step
    return make


def lars(momentum, decay, eta):
    def make(p):
        m = torch.zeros_like(p)

        def step(p, g, rate, number):
            trust = 1
            if p.dim() > 1:
                trust = eta * p.norm() / (g.norm() + decay * p.norm())
                g = g + decay * p
            m.mul_(momentum).add_(rate * trust * g)
            p.sub_(m)
        return step
    return make


def main():
    everything = list(SHAPES)
    muon()
    run("lion", lion((0.9, 0.99), 0), everything)
    run("lion_decay", lion((0.95, 0.98), 0.1), everything)
    run("lamb", lamb((0.9, 0.999), 1e-6, 0.01), everything)
    run("lamb_betas", lamb((0.8, 0.95), 1e-3, 0.1), everything)
    run("lars", lars(0.9, 1e-4, 0.001), everything)
    run("lars_decay", lars(0, 0.1, 0.02), everything)
    factor = dict(relative_step=False, warmup_init=False, lr=1)
    run("adafactor", lambda p: Adafactor([p], **factor), everything)
    run("adafactor_plain", lambda p: Adafactor([p], scale_parameter=False, weight_decay=0.1, clip_threshold=0.5, decay_rate=-0.6, **factor), everything)
    # The package multiplies `lr` by its warm-up, so it gets the whole rate.
    run("schedule_free_warm", lambda p: schedulefree.AdamWScheduleFree([p], foreach=False), everything, "warm_rates")
    run("schedule_free_decay_warm", lambda p: schedulefree.AdamWScheduleFree([p], betas=(0.8, 0.95), weight_decay=0.1, eps=1e-3, foreach=False),
        everything, "warm_rates")
    golden_file.save("optimizers", tensors, dict(torch=torch.__version__, transformers=transformers.__version__, schedulefree=version("schedulefree")))


main()
