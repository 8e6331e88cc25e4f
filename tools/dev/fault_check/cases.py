"""The faults, and the expected end of each run."""
import os
import re
import shutil
import signal
import time
from contextlib import closing

from hosts import Hosts, until
from job import RECIPE, SETTINGS, Job, resumes

CASES = []
# With these options mpirun, too, finds a disconnected host in time (docs/mpi.md).
MPIRUN = ["-q", "--mca", "oob_tcp_keepalive_time", "3", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca",
          "oob_tcp_keepalive_probes", "4"]
TIMEOUT_S = 10
TIMES = [f"comm.timeout_s={TIMEOUT_S}"]


class Skipped(Exception):
    pass


class Check:
    """The functions that a case may use, and its result."""

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
        """Checks the end of a job: within the limit, one of these exit codes, one message that matches, and no other output except
        lines that match `others`."""
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
        """Checks that the last checkpoint is complete and that a run resumes from it."""
        steps = max(job.checkpoints())
        problem = resumes(self.lmx, job.folder, steps)
        self.require(problem is None, problem)
        self.line += f"; resumed at {steps}"


def mpirun_here(n):
    """A mpirun command on this machine only."""
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


def hosts(n):
    return closing(Hosts(n))


def disturb_host(check, k, fault, limit_s, pattern, n=3):
    with hosts(n) as net:
        job = Job(check.folder, net.mpirun(n, MPIRUN) + check.run("comm=mpi", *TIMES))
        check.disturb(job, lambda: getattr(net, fault)(k))
        check.expect(job, limit_s, pattern, LOST)
    check.expect_resumable(job)


# mpirun has separate exit codes for a lost host (205) and for the ranks that it ends (143).
LOST = (1, 143, 205)


@case
def host_crashes(check):
    """all processes of a host end at once, including mpirun's daemon"""
    disturb_host(check, 1, "kill_everything", 12, r"rank 1 of 3 on host node1")


@case
def host_of_rank_0_crashes(check):
    """the same for the host whose rank writes checkpoints"""
    disturb_host(check, 0, "kill_everything", 12, r"rank 0 of 3 on host node0")


@case
def host_loses_power(check):
    """a host disappears without a notice to the others"""
    disturb_host(check, 1, "power_cut", 20, r"rank 1 of 3 on host node1")


@case
def link_down(check):
    """a host's link is set down"""
    disturb_host(check, 1, "link_down", 20, r"rank 1 of 3 on host node1")


@case
def link_swallows(check):
    """a link stays up, but loses all packets in both directions"""
    disturb_host(check, 1, "swallow", 20, r"rank 1 of 3 on host node1")


@case
def link_of_rank_0_swallows(check):
    """the same for the host whose rank writes checkpoints"""
    disturb_host(check, 0, "swallow", 20, r"rank 0 of 3 on host node0")


@case
def link_of_two_swallows(check):
    """two hosts lose their connection: neither can know which one is disconnected"""
    disturb_host(check, 1, "swallow", 20, r"rank 1 of 2 on host node1|rank 0 of 2 on host node0", n=2)


@case
def link_swallows_one_way(check):
    """a host can send, but receives nothing"""
    disturb_host(check, 1, "swallow_incoming", 20, r"rank 1 of 3 on host node1|nobody answers rank 1")


@case
def link_swallows_patient_mpirun(check):
    """the same with a mpirun that does not check its hosts: the ranks end, and mpirun continues, as the warning said"""
    with hosts(3) as net:
        job = Job(check.folder, net.mpirun(3, ["-q"]) + check.run("comm=mpi", *TIMES))
        check.disturb(job, lambda: net.swallow(1))
        until(job.errors, 20)
        seconds = time.monotonic() - job.fault
        time.sleep(5)
        check.line = f"{seconds:.1f} s to the message, mpirun killed: {' // '.join(job.errors())}"
        check.require(len(job.errors()) == 1 and re.search("rank 1 of 3 on host node1", job.errors()[0]), job.said()[-600:])
        check.require("oob_tcp_keepalive_time 3" in job.said(), "no warning")
        check.require(set(job.ranks()) <= {1}, f"ranks are left: {job.ranks()}")  # except the rank that receives nothing
        job.wait(0.1)
    check.expect_resumable(job)


def disturb_rank(check, who, sent, limit_s, pattern):
    job = Job(check.folder, check.run("comm=mpi", "comm.ranks=3", *TIMES))
    check.disturb(job, lambda: os.kill(job.ranks()[who], sent))
    check.expect(job, limit_s, pattern)
    check.expect_resumable(job)


@case
def rank_stopped(check):
    """SIGSTOP of a rank"""
    disturb_rank(check, 2, signal.SIGSTOP, TIMEOUT_S + 5, r"rank 2 of 3 on host \S+ has not answered for 10 s")


@case
def rank_0_stopped(check):
    """SIGSTOP of the rank that writes checkpoints"""
    disturb_rank(check, 0, signal.SIGSTOP, TIMEOUT_S + 5, r"rank 0 of 3 on host \S+ has not answered for 10 s")
