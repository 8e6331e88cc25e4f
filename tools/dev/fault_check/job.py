"""One run of lmx, its faults, and its end."""
import glob
import hashlib
import json
import os
import re
import signal
import subprocess
import time

from hosts import until

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
RECIPE = os.path.join(ROOT, "recipes/quickstart.yaml")
# Small steps and frequent checkpoints; the number of steps is larger than a case ever reaches.
SETTINGS = ["train.steps=100000", "checkpoint.every=10", "train.eval_every=100000", "train.log_every=10", "run.tensorboard=false",
            "threads=1"]


class Job:
    def __init__(self, folder, command, environment=None):
        self.folder, self.err, self.code, self.fault = folder, folder + ".err", None, None
        env = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self.begin = time.monotonic()
        with open(folder + ".out", "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env,
                                            start_new_session=True)

    def checkpoints(self):
        return self.checkpoints_of(self.folder)

    @staticmethod
    def checkpoints_of(folder):
        return sorted(int(f.rsplit("-", 1)[1]) for f in glob.glob(folder + "/checkpoints/step-*[0-9]"))

    def wait_for_checkpoints(self, limit_s=60):
        """Waits until it has written two checkpoints. Returns None, or the problem."""
        until(lambda: max(self.checkpoints(), default=0) >= 20 or self.process.poll() is not None, limit_s)
        return None if max(self.checkpoints(), default=0) >= 20 else f"no checkpoint after {limit_s} s: {self.said()}"

    def wait(self, limit_s):
        """Returns the seconds since the fault, or since the start if there was no fault. After more than limit_s the job is killed."""
        try:
            self.code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        return time.monotonic() - (self.fault or self.begin)

    def said(self):
        with open(self.err, errors="replace") as file:
            return file.read()

    def errors(self):
        return [line for line in self.said().splitlines() if line.startswith("error:")]

    def strange(self):
        """Lines that do not come from lmx, such as a launcher's report or a library's warning."""
        own = re.compile(r"error: |warning: |run |device |\d[\d,]* parameters|batch |step |lr_rule|\s*$|peak memory|most of|  |resum|sync")
        return [line for line in self.said().splitlines() if not own.match(line)]

    def folders(self):
        """The folders in shared memory that the ranks' variables name: where they meet, or Open MPI's files."""
        found = set()
        for pid in self.ranks().values():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    found |= set(re.findall(r"/dev/shm/lmx-\w+-\w+", file.read().decode(errors="replace")))
            except OSError:
                continue
        return found

    def ranks(self):
        """The pid of each rank on this machine, by the rank number of its launcher; not of a child that it has forked."""
        found = {}
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file:
                    env = dict(e.split(b"=", 1) for e in file.read().split(b"\0") if b"=" in e)
                with open(path.replace("environ", "cmdline"), "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            rank = env.get(b"OMPI_COMM_WORLD_RANK") or env.get(b"LMX_RANK") or env.get(b"SLURM_PROCID") or env.get(b"RANK")
            if rank is not None and ("run.dir=" + self.folder).encode() in words and words[0].endswith(b"lmx"):
                pid = int(path.split("/")[2])
                found[int(rank)] = min(pid, found.get(int(rank), pid))
        return found


def weights(folder, steps):
    with open(f"{folder}/checkpoints/step-{steps}/model.safetensors", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def resumes(lmx, folder, steps):
    """Resumes a run that has ended from its last checkpoint, for twenty steps in one process. Returns None, or the problem."""
    with open(folder + "/status.json") as file:
        status = json.load(file)
    if status["state"] == "running":
        return "status.json says that it is running"
    command = [lmx, "run", RECIPE, "--resume", folder, "run.dir=" + folder, *SETTINGS, f"train.steps={steps + 20}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if result.returncode == 0 and os.path.isdir(f"{folder}/checkpoints/step-{steps + 20}"):
        return None
    return f"does not resume: {result.stderr.strip()}"
