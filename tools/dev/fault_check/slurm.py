"""Slurm on emulated hosts: munged and slurmctld on head, a slurmd on each node."""
import contextlib
import os
import re
import shutil
import subprocess
import time

from hosts import Hosts, until

SETTINGS = os.path.dirname(os.path.abspath(__file__))
MORE = """
KillWait=10
SlurmdTimeout=20
NodeName=DEFAULT CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN
{nodes}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def available():
    tools = all(shutil.which(p) for p in ("munged", "slurmctld", "slurmd", "srun"))
    return tools and subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL).returncode == 0


class Slurm(Hosts):
    def __init__(self, n):
        super().__init__(n)
        self.daemons = []
        self.environment = {"SLURM_CONF": f"{self.folder}/slurm.conf"}
        for name in ["state"] + [f"{kind}.node{k}" for kind in ("spool", "tmp") for k in range(n)]:
            os.mkdir(f"{self.folder}/{name}")
        with open(f"{self.folder}/munge.key", "wb") as key:
            os.chmod(key.fileno(), 0o600)
            key.write(os.urandom(1024))
        nodes = "\n".join(f"NodeName=node{k} NodeAddr=10.97.0.{k + 1}" for k in range(n))
        with open(f"{SETTINGS}/slurm.conf.in") as file:
            common = file.read()
        with open(f"{self.folder}/slurm.conf", "w") as file:
            file.write(common.replace("@FOLDER@", self.folder).replace("@HEAD@", "head(10.97.0.254)"))
            file.write(MORE.format(nodes=nodes))
        shutil.copy(f"{SETTINGS}/cgroup.conf", self.folder)
        at = [f"--{what}={self.folder}/munge.{end}" for what, end in
              (("socket", "sock"), ("key-file", "key"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
        self._start("head", ["munged", "--foreground", *at])
        until(lambda: os.path.exists(f"{self.folder}/munge.sock"), 60)
        self._start("head", ["slurmctld", "-D", "-i"])
        for k in range(n):
            self.start_node(k)
        if not until(lambda: self.idle() == n, 120):
            self.close()
            raise RuntimeError("the Slurm cluster did not come up")

    def start_node(self, k):
        self._start(f"node{k}", ["slurmd", "-D"])

    def _start(self, name, command):
        log = open(f"{self.folder}/{os.path.basename(command[0])}.{name}.out", "w")
        self.daemons.append(subprocess.Popen(self.enter(name) + command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             env={**os.environ, **self.environment}))

    def idle(self):
        """The number of nodes that are up and have no job."""
        query = self.enter("head") + ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]
        answer = subprocess.run(query, capture_output=True, text=True, env={**os.environ, **self.environment})
        return len(answer.stdout.split())

    def ask(self, *command, environment=None):
        """Runs a command on head. Returns its output."""
        result = subprocess.run([*self.enter("head"), *command], capture_output=True, text=True,
                                env={**os.environ, **self.environment, **(environment or {})})
        if result.returncode != 0:
            raise RuntimeError(f"{command}: {result.stderr}")
        return result.stdout

    def restart(self, k):
        """Starts node k again after kill_everything(k)."""
        self.boot(k)
        self.start_node(k)

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        super().close()


class SlurmJob:
    """A submitted job. `said`: a function that returns its output, for messages."""

    def __init__(self, cluster, number, said):
        self.cluster, self.id, self.said = cluster, number, said

    def field(self, name):
        return re.search(rf"\b{name}=(\S+)", self.cluster.ask("scontrol", "show", "job", self.id))[1]

    def queued_s(self):
        """When the job was put into the queue, in seconds since 1970."""
        return time.mktime(time.strptime(self.field("SubmitTime"), "%Y-%m-%dT%H:%M:%S"))

    def wait_for(self, what, condition, limit_s=180):
        """Raises RuntimeError if the job ends before `condition` holds, or after limit_s."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
        if not until(lambda: condition() or self.field("JobState") in ended, limit_s) or not condition():
            job = self.cluster.ask("scontrol", "show", "job", self.id)
            raise RuntimeError(f"no {what} (limit {limit_s} s): {job} {self.said()[-3000:]}")

    def wait_for_restart(self, number):
        """Waits until the job is in the queue again, and starts it at once: Slurm would wait for two minutes.

        Not within the second of its end: slurmd accepts a new start of a job only if it is later than the end by its clock
        of whole seconds. Else the job fails at once ("credential revoked" in slurmd's log)."""
        self.wait_for("job in the queue", lambda: self.field("JobState") == "PENDING")

        def running():
            state = self.field("JobState")
            if state == "PENDING" and time.time() > self.queued_s() + 2:
                # Again and again, because Slurm sets the time when the last process of the job has ended.
                with contextlib.suppress(RuntimeError):  # it has started meanwhile
                    self.cluster.ask("scontrol", "update", f"jobid={self.id}", "StartTime=now")
                time.sleep(0.5)
            return state == "RUNNING" and self.field("Restarts") == str(number)

        self.wait_for(f"restart {number}", running)
