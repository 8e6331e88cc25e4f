"""What goes wrong, and what must come of it."""
import os
import re
import shutil
import signal
import time
from contextlib import contextmanager

from hosts import Hosts, until
from job import RECIPE, SETTINGS, Job, resumes

CASES = []
# With these a host that is cut off is found in time by mpirun, too (docs/mpi.md).
MPIRUN = ["-q", "--mca", "oob_tcp_keepalive_time", "3", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca",
          "oob_tcp_keepalive_probes", "4"]
TIMEOUT_S = 10
TIMES = [f"comm.timeout_s={TIMEOUT_S}"]


class Skipped(Exception):
    pass


class Check:
    """What a case may use, and what it found."""

    def __init__(self, name, lmx, folder):
        self.name, self.lmx, self.folder, self.problems, self.line = name, lmx, os.path.join(folder, name), [], ""
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *more, steps=None):
        words = [self.lmx, "run", RECIPE, "run.dir=" + self.folder, *SETTINGS, *more]
        return words + ([f"train.steps={steps}"] if steps else [])

    def require(self, condition, text):
        if not condition:
            self.problems.append(text)

    def expect(self, job, limit_s, pattern, codes=(1,), others="$^"):
        """The end: in time, one of these codes, one message of this form, nothing else said except by `others`."""
        seconds = job.wait(limit_s)
        errors = job.errors()
        strange = [line for line in job.strange() if not re.match(others, line)]
        self.line = f"{seconds:.1f} s (limit {limit_s}), exit {job.code}: {' // '.join(errors)}"
        self.require(job.code is not None, f"has not ended after {limit_s} s; it said: {job.said()[-600:]}")
        self.require(job.code in codes, f"exit code {job.code}, expected {codes}")
        self.require(len(errors) == 1, f"{len(errors)} messages")
        self.require(errors and re.search(pattern, errors[0]), f"no message like '{pattern}': {job.said()[-600:]}")
        self.require(not strange, f"also said: {strange[:6]}")
        self.require("warning:" not in job.said(), "a warning")
        until(lambda: not job.ranks(), 5)
        self.require(not job.ranks(), f"ranks are left: {job.ranks()}")

    def disturb(self, job, fault):
        problem = job.wait_for_checkpoints()
        if problem:
            raise RuntimeError(problem)
        time.sleep(0.3)
        job.fault = time.monotonic()
        fault()

    def expect_resumable(self, job):
        """The last checkpoint is whole, and a run goes on from it."""
        steps = max(job.checkpoints())
        problem = resumes(self.lmx, job.folder, steps)
        self.require(problem is None, problem)
        self.line += f"; resumed at {steps}"


def mpirun_here(n):
    """A mpirun of one's own on this machine alone."""
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *MPIRUN, "--mca", "btl_tcp_if_include",
            "lo", "--mca", "oob_tcp_if_include", "lo", "-n", str(n)]


def run(case, lmx, folder):
    check = Check(case.__name__, lmx, folder)
    try:
        case(check)
    except Skipped as reason:
        return "SKIP", str(reason)
    return ("FAIL" if check.problems else "PASS"), "; ".join([check.line, *check.problems])


def case(function):
    CASES.append(function)
    return function


@contextmanager
def hosts(n):
    made = Hosts(n)
    try:
        yield made
    finally:
        made.close()


def disturb_host(check, k, fault, limit_s, pattern, n=3, codes=(1,), options=MPIRUN):
    with hosts(n) as net:
        job = Job(check.folder, net.mpirun(n, options) + check.run("comm=mpi", *TIMES))
        check.disturb(job, lambda: getattr(net, fault)(k))
        check.expect(job, limit_s, pattern, codes)
    check.expect_resumable(job)


CUT = rf"rank 1 of 3 on host node1 has not answered for {TIMEOUT_S} s"
# mpirun has its own codes for a host that is gone (205) and for the ranks that it ends (143).
LOST = (1, 143, 205)


@case
def host_crashes(check):
    """all processes of a host vanish, mpirun's daemon among them"""
    disturb_host(check, 1, "kill_everything", 12, r"rank 1 of 3 on host node1", codes=LOST)


@case
def host_of_rank_0_crashes(check):
    """the same, of the host whose rank writes checkpoints"""
    disturb_host(check, 0, "kill_everything", 12, r"rank 0 of 3 on host node0", codes=LOST)


@case
def host_loses_power(check):
    """a host is gone, and nobody hears of it"""
    disturb_host(check, 1, "power_cut", 20, r"rank 1 of 3 on host node1", codes=LOST)


@case
def link_down(check):
    """a host's link is set down"""
    disturb_host(check, 1, "link_down", 20, r"rank 1 of 3 on host node1", codes=LOST)


@case
def link_swallows(check):
    """a link stays up and swallows everything, in both directions"""
    disturb_host(check, 1, "swallow", 20, r"rank 1 of 3 on host node1", codes=LOST)


@case
def link_of_rank_0_swallows(check):
    """the same, of the host whose rank writes checkpoints"""
    disturb_host(check, 0, "swallow", 20, r"rank 0 of 3 on host node0", codes=LOST)


@case
def link_of_two_swallows(check):
    """two hosts lose each other: neither can know which is cut off"""
    disturb_host(check, 1, "swallow", 20, r"rank 1 of 2 on host node1|rank 0 of 2 on host node0", n=2, codes=LOST)


@case
def link_swallows_one_way(check):
    """a host can be heard and hears nothing"""
    disturb_host(check, 1, "swallow_incoming", 20, r"rank 1 of 3 on host node1|nobody answers rank 1", codes=LOST)


@case
def link_swallows_patient_mpirun(check):
    """the same below a mpirun that nobody told to look: the ranks end, mpirun stays, as a warning has said"""
    with hosts(3) as net:
        job = Job(check.folder, net.mpirun(3, ["-q"]) + check.run("comm=mpi", *TIMES))
        check.disturb(job, lambda: net.swallow(1))
        until(job.errors, 20)
        seconds = time.monotonic() - job.fault
        time.sleep(5)
        check.line = f"{seconds:.1f} s to the message, mpirun killed: {' // '.join(job.errors())}"
        check.require(len(job.errors()) == 1 and re.search("rank 1 of 3 on host node1", job.errors()[0]), job.said()[-600:])
        check.require("oob_tcp_keepalive_time 3" in job.said(), "no warning")
        check.require(set(job.ranks()) <= {1}, f"ranks are left: {job.ranks()}")  # but the one that hears of nothing
        job.wait(0.1)
    check.expect_resumable(job)


def disturb_rank(check, who, sent, limit_s, pattern):
    job = Job(check.folder, check.run("comm=mpi", "comm.ranks=3", *TIMES))
    check.disturb(job, lambda: os.kill(job.ranks()[who], sent))
    check.expect(job, limit_s, pattern)
    check.expect_resumable(job)


@case
def rank_killed(check):
    """kill -9 of a rank that lmx's own mpirun started"""
    disturb_rank(check, 1, signal.SIGKILL, 5, r"rank 1 of 3 on host \S+ has ended without a word")


@case
def rank_0_killed(check):
    """kill -9 of the rank that writes checkpoints"""
    disturb_rank(check, 0, signal.SIGKILL, 5, r"rank 0 of 3 on host \S+ has ended without a word")


@case
def rank_stopped(check):
    """SIGSTOP of a rank"""
    disturb_rank(check, 2, signal.SIGSTOP, TIMEOUT_S + 5, r"rank 2 of 3 on host \S+ has not answered for 10 s")


@case
def rank_0_stopped(check):
    """SIGSTOP of the rank that writes checkpoints"""
    disturb_rank(check, 0, signal.SIGSTOP, TIMEOUT_S + 5, r"rank 0 of 3 on host \S+ has not answered for 10 s")
