"""The batch script of docs/cluster.md, word for word: its end before a time limit, a lost node, and its results."""
import os
import re
import time

from cases import case
from job import ROOT, Job, weights
from slurm import SlurmJob
from starts import cluster

STEPS = 120
NODES, RANKS = 4, 8  # of the script
# Stored under the name of the recipe that the script trains.
RECIPE = f"""
defaults:
  - data: quickstart
  - batcher: tbptt
  - model: lstm
  - loss: full_softmax
  - optimizer: adam
  - schedule: linear
  - sync: allreduce
  - comm: self
  - _self_
batcher: {{sequence_length: 10}}
batch: {{global: 16}}
model: {{embedding: 24, cells: 24}}
optimizer: {{lr: 0.004}}
train: {{steps: {STEPS}, log_every: 10, eval_every: {STEPS}}}
checkpoint: {{every: 10}}
run: {{tensorboard: false}}
threads: 1
"""


def script_of(page):
    """The code block that begins with the line of an interpreter and has options for sbatch."""
    with open(os.path.join(ROOT, page)) as file:
        blocks = re.findall(r"^```\w*\n(#!.*?)^```", file.read(), re.M | re.S)
    found = [b for b in blocks if "#SBATCH" in b]
    if len(found) != 1:
        raise RuntimeError(f"{page} has {len(found)} scripts for sbatch")
    return found[0]


class Batch(SlurmJob):
    """A job of this script. Its working folder has the files that the script names."""

    def __init__(self, check, cluster_):
        self.folder = check.folder
        os.makedirs(self.folder + "/recipes")
        script = script_of("docs/cluster.md")
        recipe, run = re.search(r"lmx run (recipes/\S+)", script)[1], re.search(r"run\.dir=(\S+)", script)[1]
        self.run, self.log = f"{self.folder}/{run}", self.folder + "/slurm.log"
        for name, text in ((recipe, RECIPE), ("script", script)):
            with open(f"{self.folder}/{name}", "w") as file:
                file.write(text)
        environment = {"OMP_NUM_THREADS": "1", "PATH": os.path.dirname(check.lmx) + ":" + os.environ["PATH"]}
        answer = cluster_.ask("sbatch", "--parsable", "-D", self.folder, "-o", self.log, "--open-mode=append",
                              self.folder + "/script", environment=environment)
        super().__init__(cluster_, answer.strip(), self.said)

    def said(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def last_checkpoint(self):
        return max(Job.checkpoints_of(self.run), default=0)

    def wait_for_checkpoint(self, step):
        self.wait_for(f"checkpoint of step {step}", lambda: self.last_checkpoint() >= step)


@case
def document_slurm_script(check):
    """the script of docs/cluster.md: the signal before its time limit, a node that fails, and the bits of an undisturbed run"""
    with cluster(NODES) as c:
        begin = time.monotonic()
        batch = Batch(check, c)
        batch.wait_for_checkpoint(20)
        c.ask("scancel", "-s", "USR1", batch.id)  # what Slurm sends to the ranks before the time limit
        batch.wait_for_restart(1)
        stopped = batch.last_checkpoint()
        check.require("stopped after step" in batch.said(), f"no checkpoint at the signal: {batch.said()[-1500:]}")
        batch.wait_for_checkpoint(stopped + 20)
        c.kill_everything(1)
        batch.wait_for("job in the queue", lambda: batch.field("JobState") == "PENDING")
        c.restart(1)
        batch.wait_for_restart(2)
        batch.wait_for("end", lambda: batch.field("JobState") == "COMPLETED")
        seconds = time.monotonic() - begin
        check.require(batch.said().count("resumed from") == 2, f"not resumed twice: {batch.said()[-3000:]}")
        check.require(f"{RANKS} processes (Gloo, started by srun)" in batch.said(), batch.said()[-1500:])
    whole = check.folder + "/whole"
    job = Job(whole, [check.lmx, "run", check.folder + "/recipes/ott_wmt.yaml", "comm=gloo", f"comm.ranks={RANKS}", "run.dir=" + whole])
    job.wait(240)
    check.require(job.code == 0, job.said()[-600:])
    same = job.code == 0 and weights(batch.run, STEPS) == weights(whole, STEPS)
    check.require(same, "the weights differ from those of an undisturbed run")
    check.line = f"{seconds:.1f} s, 2 restarts, stopped at step {stopped}; the weights {'equal' if same else 'DIFFER FROM'} an undisturbed run's"
