"""Ranks of comm=gloo that are lost at given moments, and what they leave."""
import glob
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import time

import moments
from cases import TIMEOUT_S, TIMES, Skipped, case, hosts
from hosts import until
from job import Job
from starts import FEW, SRUN, cluster, expect_success

GLOO = ["comm=gloo", *TIMES]
PORT = 29400


class Traces:
    """What a job uses outside of its run folder, and must not leave."""

    def __init__(self, check):
        self.check, self.temporary, self.folders, self.ports = check, check.folder + ".tmp", set(), set()
        os.makedirs(self.temporary, exist_ok=True)
        self.environment = {"TMPDIR": self.temporary}

    def note(self, job):
        """To be called while the ranks live."""
        self.folders |= job.folders()
        self.ports |= {address for address, pids in listening() if pids & {f"pid={p}," for p in job.ranks().values()}}

    def expect_none(self, own_folder=True):
        check = self.check
        check.require(bool(self.folders) == own_folder, f"folders of the job: {self.folders}")
        left = [f for f in self.folders if os.path.exists(f)]
        check.require(not left, f"left in shared memory: {left}")
        check.require(not os.listdir(self.temporary), f"left temporary files: {os.listdir(self.temporary)}")
        ports = self.ports & {address for address, _ in listening()}
        check.require(not ports, f"left ports: {ports}")


def listening():
    """(address and port, words like 'pid=12,' of the processes) of each TCP socket that listens on this machine."""
    out = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    return [(line.split()[3], set(line.replace("pid=", " pid=").replace(",fd", ", fd").split())) for line in out.splitlines()]


def expect_lost(check, job, traces, who, limit_s, why):
    check.expect(job, limit_s, rf"rank {who}\b.*{why}")
    traces.expect_none()
    check.expect_resumable(job)


def disturb(check, who, fault, limit_s, why):
    """Disturbs a running job of three ranks that lmx has started; `fault` is called with the process of rank `who` and those of
    all ranks."""
    traces = Traces(check)
    job = Job(check.folder, check.run(*GLOO, "comm.ranks=3"), traces.environment)

    def note_and_disturb():
        traces.note(job)
        ranks = job.ranks()
        fault(ranks[who], ranks)
        job.fault = time.monotonic()

    check.disturb(job, note_and_disturb)
    expect_lost(check, job, traces, who, limit_s, why)


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def kill_inside(functions, thread="thread 1"):
    if not moments.available():
        raise Skipped("needs gdb")
    return lambda pid, _: moments.kill_inside(pid, functions, thread)


ENDED = r"(has ended without a word|SIGKILL)"


@case
def gloo_rank_killed_in_collective(check):
    """kill -9 of a rank that waits for another one in an all-gather"""
    disturb(check, 1, kill_inside(moments.COLLECTIVE), 5, ENDED)


@case
def gloo_rank_killed_in_backward(check):
    """kill -9 of a rank in a matrix product of its backward pass"""
    disturb(check, 2, kill_inside(moments.BACKWARD), 5, ENDED)


@case
def gloo_rank_killed_while_it_reads(check):
    """kill -9 of a rank that reads another one's memory, while that one waits for its answer"""
    disturb(check, 1, kill_inside(moments.READ, ""), 5, ENDED)


@case
def gloo_rank_killed_before_its_answer(check):
    """kill -9 of a rank that waits until another one has read its memory"""
    disturb(check, 2, kill_inside(moments.ANSWER, ""), 5, ENDED)


@case
def gloo_rank_killed_before_it_is_read(check):
    """kill -9 of a rank whose memory another one is about to read"""
    if not moments.available():
        raise Skipped("needs gdb")
    # In the first round of an exchange, rank r reads the memory of rank r - 1.
    disturb(check, 0, lambda pid, ranks: moments.kill_before_read(ranks[1], pid), 5, ENDED)


@case
def gloo_rank_killed_in_checkpoint(check):
    """kill -9 of rank 0 while it writes the files of a checkpoint: the one before is the last"""
    unfinished = []

    def fault(pid, ranks):
        kill_inside(moments.CHECKPOINT)(pid, ranks)
        unfinished.extend(glob.glob(check.folder + "/checkpoints/.*"))

    disturb(check, 0, fault, 5, ENDED)
    check.require(unfinished, "no checkpoint was being written")
    left = glob.glob(check.folder + "/checkpoints/.*")
    check.require(not left, f"the resumed run has left {left}")


@case
def gloo_rank_stopped(check):
    """SIGSTOP of a rank"""
    disturb(check, 2, lambda pid, _: os.kill(pid, signal.SIGSTOP), TIMEOUT_S + 5, r"has not answered for 10(\.\d)? s")


@case
def gloo_rank_0_stopped(check):
    """SIGSTOP of the rank that writes checkpoints"""
    disturb(check, 0, lambda pid, _: os.kill(pid, signal.SIGSTOP), TIMEOUT_S + 5, r"has not answered for 10(\.\d)? s")


@case
def gloo_starter_killed(check):
    """kill -9 of the lmx that has started the ranks: they save a checkpoint and end"""
    traces = Traces(check)
    job = Job(check.folder, check.run(*GLOO, "comm.ranks=3"), traces.environment)
    check.disturb(job, lambda: (traces.note(job), kill(job.process.pid)))
    until(lambda: not job.ranks(), 10)
    check.line = f"{time.monotonic() - job.fault:.1f} s to the end of the ranks"
    check.require(not job.ranks(), f"ranks are left: {job.ranks()}")
    check.require(not job.errors(), f"also said: {job.errors()}")
    job.wait(5)
    traces.expect_none()
    check.expect_resumable(job)


def disturb_host(check, fault, limit_s, pattern, messages):
    """One rank on each of three hosts, started by hand. `messages`: how many ranks can report, because no process ends a rank
    that is cut off."""
    with hosts(3) as net:
        ranks = [f"RANK={k} {shlex.join(net.enter(f'node{k}') + check.run(*GLOO))} & ranks+=($!)" for k in range(3)]
        script = "\n".join([*ranks, 'code=0; for r in "${ranks[@]}"; do wait "$r" || code=$?; done; exit $code'])
        job = Job(check.folder, ["bash", "-c", script],
                  {"WORLD_SIZE": "3", "MASTER_ADDR": "10.97.0.1", "MASTER_PORT": str(PORT), "LMX_JOB_SECRET": secrets.token_hex(16)})
        check.disturb(job, lambda: fault(net))
        seconds = job.wait(limit_s)
        errors = job.errors()
        check.line = f"{seconds:.1f} s (limit {limit_s}): {' // '.join(errors)}"
        check.require(job.code is not None, f"has not ended after {limit_s} s; it said: {job.said()[-600:]}")
        check.require(len(errors) == messages, f"{len(errors)} messages")
        check.require(sum(pattern in e for e in errors) == 1, f"not one message with '{pattern}': {job.said()[-600:]}")
        until(lambda: not job.ranks(), 5)
        check.require(not job.ranks(), f"ranks are left: {job.ranks()}")
    check.expect_resumable(job)


@case
def gloo_host_crashes(check):
    """all processes of a host end at once; no launcher ends the others"""
    disturb_host(check, lambda net: net.kill_everything(1), 12, "rank 1 of 3 on host node1", 1)


@case
def gloo_host_loses_power(check):
    """a host disappears without a notice to the others"""
    disturb_host(check, lambda net: net.power_cut(1), TIMEOUT_S + 10, "rank 1 of 3 on host node1", 1)


@case
def gloo_link_swallows(check):
    """a link loses all packets: its rank ends, too, and reports it"""
    disturb_host(check, lambda net: net.swallow(1), TIMEOUT_S + 20, "rank 1 of 3 on host node1", 2)


@case
def gloo_srun(check):
    """srun over two nodes, two ranks each, and a rank that is killed"""
    with cluster(2) as c:
        meeting = {"MASTER_ADDR": "10.97.0.1", "MASTER_PORT": str(PORT), "LMX_JOB_SECRET": secrets.token_hex(16), **c.environment}
        srun = c.enter("head") + ["srun", "-Q", "--kill-on-bad-exit=1", "-N2", "-n4"]
        expect_success(check, srun + check.run("comm=gloo", steps=FEW), "4 processes (Gloo, started by srun)", meeting)
        job = Job(check.folder, srun + check.run(*GLOO, "--resume", "auto", steps=100000), meeting)
        until(lambda: max(job.checkpoints(), default=0) > FEW, 60)
        check.disturb(job, lambda: kill(job.ranks()[3]))
        check.expect(job, 20, r"rank 3 of 4 on host node1", codes=(1, 137, 143), others=SRUN)
    check.expect_resumable(job)


@case
def gloo_torchrun(check):
    """torchrun itself, which starts all ranks again after one was killed"""
    if not shutil.which("torchrun"):
        raise Skipped("needs torchrun")
    job = Job(check.folder, ["torchrun", "--nproc-per-node", "2", "--max-restarts", "1", "--no-python"]
              + check.run(*GLOO, "--resume", "auto", steps=400), {"LMX_JOB_SECRET": secrets.token_hex(16)})
    check.disturb(job, lambda: kill(job.ranks()[1]))
    seconds = job.wait(60)
    check.line = f"{seconds:.1f} s to the end, exit {job.code}"
    check.require(job.code == 0, f"exit code {job.code}: {job.said()[-900:]}")
    check.require("2 processes (Gloo, started by torchrun)" in job.said(), job.said()[-900:])
    check.require("resumed from" in job.said(), "the run was not resumed")
    check.require(len(job.errors()) == 1 and re.search(r"rank 1 of 2 on host", job.errors()[0]), f"messages: {job.errors()}")
    check.require(job.checkpoints()[-1:] == [400], f"checkpoints {job.checkpoints()}")
    until(lambda: not job.ranks(), 5)
    check.require(not job.ranks(), f"ranks are left: {job.ranks()}")
