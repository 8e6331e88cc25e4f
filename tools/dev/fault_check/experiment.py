"""`lmx experiment run --launcher slurm` on several nodes: the results of virtual ranks, and jobs that end early."""
import json
import os
import re

from cases import case
from document import RECIPE
from hosts import until
from job import Job
from slurm import SlurmJob
from starts import cluster

NODES = 4
EXPERIMENT = """
title: Two numbers of ranks
scales:
  desk: {recipe: ../recipe.yaml, overrides: [comm=virtual]}
axes: {G: [2, 4]}
overrides: ["comm.ranks=${G}"]
evaluate: [test]
measures:
  valid: {key: ppl}
  test: {split: test, key: ppl}
  sent: {split: rank, ranks: sum, take: sum, key: comm/rest/*/sent_bytes}
  seconds: {key: train_s, class: hardware}
checks:
  - {claim: takes time, class: hardware, value: "seconds[2]", at_least: 0, incomparable: virtual ranks share cores, unless: launched}
"""


class Experiment:
    """The files of an experiment, and the command that runs it on the head of a cluster."""

    def __init__(self, check, cluster_):
        self.lmx, self.cluster, self.folder = check.lmx, cluster_, check.folder
        os.makedirs(self.folder + "/experiments")
        self.file = self.folder + "/experiments/ranks.yaml"
        for name, text in ((self.folder + "/recipe.yaml", RECIPE), (self.file, EXPERIMENT)):
            with open(name, "w") as file:
                file.write(text)

    def path(self, out, name=""):
        return f"{self.folder}/{out}/{name}"

    def start(self, out, *more):
        command = [*self.cluster.enter("head"), self.lmx, "experiment", "run", self.file, "--out", self.path(out), *more]
        return Job(self.path(out).rstrip("/"), command, {**self.cluster.environment, "OMP_NUM_THREADS": "1"})

    def on_nodes(self, out, comm, *more):
        """Starts it with one rank on each node."""
        return self.start(out, "--launcher", "slurm", "--slurm=--ntasks-per-node=1", f"comm={comm}", *more)

    def job_of(self, watcher, cell):
        """The job that `watcher` has submitted for a cell."""
        pattern = rf"cell {cell}: submitted as job (\d+)"
        if not until(lambda: re.search(pattern, watcher.said()), 90):
            raise RuntimeError(f"cell {cell} was not submitted: {watcher.said()}")
        return SlurmJob(self.cluster, re.search(pattern, watcher.said())[1], lambda: watcher.said() + self.log(watcher, cell))

    def log(self, watcher, cell):
        try:
            with open(f"{watcher.folder}/cells/{cell}.log", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def checkpoint(self, out, cell):
        return max(Job.checkpoints_of(self.path(out, f"cells/{cell}")), default=0)

    def results(self, out):
        with open(self.path(out, "results.json")) as file:
            return json.load(file)

    def measured(self, out):
        """The measures by cell, without times."""
        cells = {c["id"]: dict(c.get("measured", {})) for c in self.results(out)["cells"]}
        for measures in cells.values():
            measures.pop("seconds", None)
        return cells

    def crossing(self, out, cell):
        """Bytes that all ranks have sent to other nodes."""
        with open(self.path(out, f"cells/{cell}/metrics.jsonl")) as file:
            records = [json.loads(line) for line in file]
        return sum(v for r in records for k, v in r.items() if re.match(r"comm/.*/sent_between_nodes_bytes", k))


def finish(check, job, code=0, limit_s=240):
    job.wait(limit_s)
    check.require(job.code == code, f"exit code {job.code}, expected {code}: {job.said()[-3000:]}")


@case
def experiment_on_nodes(check):
    """cells on two and four nodes over Gloo and MPI: bytes and perplexities are those of virtual ranks, and times are judged"""
    with cluster(NODES) as c:
        e = Experiment(check, c)
        finish(check, e.start("virtual"))
        expected = e.measured("virtual")
        check.require(e.results("virtual")["verdicts"][0]["verdict"] == "not comparable", "virtual ranks have times")
        for comm in ("gloo", "mpi"):
            watcher = e.on_nodes(comm, comm)
            jobs = {cell: e.job_of(watcher, cell) for cell in ("2", "4")}
            finish(check, watcher)
            for cell, job in jobs.items():
                check.require(job.field("NumNodes") == cell, f"{comm}: {cell} ranks on {job.field('NumNodes')} nodes")
                said = f"{cell} processes ({'Gloo' if comm == 'gloo' else 'MPI'}, started by srun)"
                check.require(said in e.log(watcher, cell), f"not '{said}': {e.log(watcher, cell)[-1500:]}")
                check.require(e.crossing(comm, cell) > 0, f"{comm}, {cell} ranks: no byte between nodes")
            check.require(e.measured(comm) == expected, f"{comm}: {e.measured(comm)}, expected {expected}")
            check.require(e.results(comm)["verdicts"][0]["verdict"] == "reproduced", f"{comm}: times are not judged")
        check.line = f"{len(expected)} cells over Gloo and MPI have {expected['4']} as virtual ranks"


LONG = ["--only", "2", "train.eval_every=100000", "checkpoint.every=20"]
STEPS = 600


def node_of_rank_1(job):
    """The second of the nodes of a job, node[0-1] or node[0,2]."""
    return int(re.search(r"\d+(?=]?$)", job.field("NodeList"))[0])


def stop_the_command(check, e, watcher, job):
    """Kills the command. Returns another one, which must find the job."""
    watcher.process.kill()
    watcher.process.wait()
    second = e.on_nodes("nodes", "gloo", *LONG, f"train.steps={STEPS}")
    until(lambda: "is job" in second.said(), 90)
    check.require(f"cell 2 is job {job.id} already" in second.said(), second.said())
    return second


def lose_a_node(check, c, watcher, job):
    lost = node_of_rank_1(job)
    c.kill_everything(lost)
    job.wait_for("job in the queue", lambda: job.field("JobState") == "PENDING")
    c.restart(lost)
    # Slurm itself starts it again after two minutes, when all nodes have ended its processes.
    if not until(lambda: c.idle() == NODES, 120):
        raise RuntimeError("the nodes are not idle again")
    check.require(watcher.process.poll() is None, f"the command has ended with the node: {watcher.said()[-1500:]}")


def train(e, job, steps):
    """Waits until the cell has trained so many more steps."""
    goal = e.checkpoint("nodes", "2") + steps
    job.wait_for(f"checkpoint of step {goal}", lambda: e.checkpoint("nodes", "2") >= goal)


def training_job(check, c):
    """Runs the cell with virtual ranks, and starts it on two nodes. Returns the experiment, the command, and the job after 20 steps."""
    e = Experiment(check, c)
    finish(check, e.start("virtual", *LONG, f"train.steps={STEPS}"))
    watcher = e.on_nodes("nodes", "gloo", *LONG, f"train.steps={STEPS}")
    job = e.job_of(watcher, "2")
    train(e, job, 20)
    return e, watcher, job


def require_undisturbed(check, e, command, times):
    """The cell was resumed so many times, and has the results of virtual ranks."""
    resumed = e.log(command, "2").count("resumed from")
    check.require(resumed == times, f"resumed {resumed} times")
    check.require(e.measured("nodes")["2"] == e.measured("virtual")["2"], f"{e.measured('nodes')}, expected {e.measured('virtual')}")
    check.line = f"resumed {resumed} times; {e.measured('nodes')['2']} as in an undisturbed run"


@case
def experiment_jobs_continue(check):
    """a job that is stopped before its time limit and is cancelled, and a command that is killed: the results of an undisturbed run"""
    with cluster(NODES) as c:
        e, watcher, job = training_job(check, c)
        watcher = stop_the_command(check, e, watcher, job)
        c.ask("scancel", "-s", "USR1", job.id)  # what Slurm sends to the ranks before the time limit
        job.wait_for_restart(1)
        train(e, job, 20)
        c.ask("scancel", job.id)
        finish(check, watcher, 1)
        check.require(re.search(r"error: .*2: preempted: ended from outside: CANCELLED", watcher.said(), re.S),
                      f"the cancelled job is not reported: {watcher.said()[-1500:]}")
        last = e.on_nodes("nodes", "gloo", *LONG, f"train.steps={STEPS}")
        second = e.job_of(last, "2")
        finish(check, last)
        check.require(second.id != job.id, "the cancelled job was not submitted again")
        require_undisturbed(check, e, last, 2)


@case
def experiment_node_lost(check):
    """a job that loses a node: Slurm queues it again, with the results of an undisturbed run"""
    with cluster(NODES) as c:
        e, watcher, job = training_job(check, c)
        lose_a_node(check, c, watcher, job)
        job.wait_for_restart(1)
        finish(check, watcher, 0, 400)
        require_undisturbed(check, e, watcher, 1)


@case
def experiment_time_limit(check):
    """a job whose time limit is shorter than its training: it writes a checkpoint, is queued again and continues"""
    with cluster(2) as c:
        e = Experiment(check, c)
        watcher = e.on_nodes("limited", "gloo", *LONG, "train.steps=1_000_000", "--slurm=--time=1")
        job = e.job_of(watcher, "2")
        job.wait_for("start", lambda: job.field("JobState") == "RUNNING")
        job.wait_for("signal before the time limit", lambda: job.field("JobState") == "PENDING")
        stopped = e.checkpoint("limited", "2")
        job.wait_for_restart(1)
        job.wait_for(f"checkpoint after step {stopped}", lambda: e.checkpoint("limited", "2") > stopped)
        check.require("resumed from" in e.log(watcher, "2"), f"not resumed: {e.log(watcher, '2')[-1500:]}")
        check.require(watcher.process.poll() is None, f"the command has ended: {watcher.said()[-1500:]}")
        c.ask("scancel", job.id)
        finish(check, watcher, 1)
        check.line = f"stopped after step {stopped}, resumed"
