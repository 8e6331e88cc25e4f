"""Jobs that must start, and jobs that must be rejected because their ranks are inconsistent."""
import os
import shutil
import stat

import slurm
from cases import TIMES, Skipped, case, mpirun_here
from contextlib import closing
from job import Job

SRUN = r"srun: error: |slurmstepd-\S+: error: "  # -Q does not stop srun from reporting killed tasks
LINKS = r"\[\S+\]\[\[\d+,\d+\],\d+\]\[\S*btl_tcp_"  # Open MPI's message if a link breaks while it sends
FEW = 20  # steps of a run that must complete


def cluster(n):
    if not slurm.available():
        raise Skipped("needs slurmctld, slurmd, munge and namespaces")
    return closing(slurm.Slurm(n))


def expect_success(check, command, announced, environment=None, limit_s=60):
    job = Job(check.folder, command, environment)
    seconds = job.wait(limit_s)
    check.line = f"{seconds:.1f} s, exit {job.code}: {announced}"
    check.require(job.code == 0, f"exit code {job.code}: {job.said()[-600:]}")
    check.require(announced in job.said(), f"'{announced}' was not said: {job.said()[-600:]}")
    check.require(job.said().count("vocabulary") == 1, "several ranks speak")
    check.require(job.checkpoints()[-1:] == [FEW], f"checkpoints {job.checkpoints()}")
    check.require(not job.strange(), f"also said: {job.strange()[:6]}")


def expect_refusal(check, command, pattern, codes=(2,), environment=None, others="$^"):
    job = Job(check.folder, command, environment)
    check.expect(job, 15, pattern, codes, others)
    check.require(not os.path.exists(check.folder), "a run folder was made")


def twin(check, changed):
    """A copy of the build next to the run folder, with one changed file."""
    build = os.path.dirname(os.path.dirname(check.lmx))
    copy = check.folder + ".build"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(f"{build}/bin", f"{copy}/bin", symlinks=True)
    shutil.copytree(f"{build}/lib", f"{copy}/lib", symlinks=True)
    path = os.path.realpath(f"{copy}/{changed}")
    os.chmod(path, os.stat(path).st_mode | stat.S_IWUSR)
    with open(path, "ab") as file:
        file.write(b"\0")
    return copy + "/bin/lmx"


@case
def start_lmx(check):
    """lmx starts mpirun itself"""
    expect_success(check, check.run("comm=mpi", "comm.ranks=4", steps=FEW), "4 processes (MPI, started by mpirun (Open MPI))")


@case
def start_mpirun(check):
    """the user's mpirun, which also sets the number of ranks"""
    expect_success(check, mpirun_here(2) + check.run("comm=mpi", steps=FEW), "2 processes (MPI, started by mpirun (Open MPI))")


@case
def start_srun(check):
    """srun over two nodes, two ranks each"""
    with cluster(2) as c:
        expect_success(check, c.enter("head") + ["srun", "--mpi=pmix", "-N2", "-n4"] + check.run("comm=mpi", steps=FEW),
                       "4 processes (MPI, started by srun)", c.environment)


@case
def start_sbatch_srun(check):
    """a batch job of two tasks that calls srun"""
    with cluster(2) as c:
        submit = ["sbatch", "--wait", "-Q", "-N2", "-n2", "-o", check.folder + ".out", "-e", check.folder + ".err", "--wrap"]
        words = " ".join(["exec", "srun", "--mpi=pmix"] + check.run("comm=mpi", steps=FEW))
        expect_success(check, c.enter("head") + submit + [words], "2 processes (MPI, started by srun)", c.environment)


@case
def start_sbatch_lmx(check):
    """a batch job in which lmx starts mpirun itself, over the nodes of the allocation"""
    with cluster(2) as c:
        submit = ["sbatch", "--wait", "-Q", "-N2", "-n2", "-o", check.folder + ".out", "-e", check.folder + ".err", "--wrap"]
        words = " ".join(["exec"] + check.run("comm=mpi", "comm.ranks=2", steps=FEW))
        expect_success(check, c.enter("head") + submit + [words], "2 processes (MPI, started by mpirun (Open MPI))",
                       c.environment)


@case
def start_salloc_mpirun(check):
    """an allocation of two tasks, and in it mpirun without a number of ranks"""
    with cluster(2) as c:
        words = ["salloc", "-Q", "-N2", "-n2", "mpirun", "--allow-run-as-root", "-q"] + check.run("comm=mpi", steps=FEW)
        expect_success(check, c.enter("head") + words, "2 processes (MPI, started by mpirun (Open MPI))", c.environment)


@case
def start_one_task_batch(check):
    """a batch script of two tasks that runs lmx once, without a launcher: one process"""
    with cluster(1) as c:
        submit = ["sbatch", "--wait", "-Q", "-n2", "-o", check.folder + ".out", "-e", check.folder + ".err", "--wrap"]
        words = " ".join(["exec"] + check.run("comm=self", steps=FEW))
        expect_success(check, c.enter("head") + submit + [words], " 1 rank,", c.environment)


@case
def srun_rank_killed(check):
    """kill -9 of a rank that srun started"""
    with cluster(2) as c:
        job = Job(check.folder, c.enter("head") + ["srun", "-Q", "--mpi=pmix", "--kill-on-bad-exit=1", "-N2", "-n2"]
                  + check.run("comm=mpi", *TIMES), c.environment)
        check.disturb(job, lambda: os.kill(job.ranks()[1], 9))
        check.expect(job, 20, r"rank 1 of 2 on host node1", codes=(1, 137, 143), others=f"{SRUN}|{LINKS}")
    check.expect_resumable(job)


@case
def srun_link_swallows(check):
    """a link loses all packets of a job of srun, which waits for Slurm's own limits"""
    with cluster(2) as c:
        job = Job(check.folder, c.enter("head") + ["srun", "-Q", "--mpi=pmix", "--kill-on-bad-exit=1", "-N2", "-n2"]
                  + check.run("comm=mpi", *TIMES), c.environment)
        check.disturb(job, lambda: c.swallow(1))
        check.expect(job, 60, r"rank 1 of 2 on host node1|rank 0 of 2 on host node0", codes=(1, 137, 143), others=SRUN)
    check.expect_resumable(job)


@case
def srun_wrong_mpi(check):
    """srun with Slurm's interface for another MPI"""
    with cluster(1) as c:
        expect_refusal(check, c.enter("head") + ["srun", "-Q", "--kill-on-bad-exit=1", "-n2", "--mpi=none"]
                       + check.run("comm=mpi", steps=FEW), r"--mpi=pmix", (2, 143), c.environment, SRUN)


def mixed(check, first, second, pattern):
    expect_refusal(check, mpirun_here(1) + first + [":", "-n", "1"] + second, pattern)


@case
def mpi_plugins_differ(check):
    """a rank has another build of the plugin that exchanges the data for the comparison"""
    other = twin(check, "lib/lmx/plugins/comm/mpi/mpi.so")
    mixed(check, check.run("comm=mpi"), [other] + check.run("comm=mpi")[1:], r"rank 1 runs another plugin comm/mpi: ")


@case
def groups_differ(check):
    """a rank was started without comm=mpi"""
    mixed(check, check.run("comm=mpi"), check.run(), r"the ranks of comm.name=self live in one")


@case
def a_rank_does_not_start(check):
    """a rank's recipe does not exist, so that the others wait for this rank"""
    second = check.run("comm=mpi")
    second[2] = "/nowhere/recipe.yaml"
    mixed(check, check.run("comm=mpi"), second, r"rank 1 of 2: .*/nowhere/recipe.yaml")


@case
def mpirun_around_self(check):
    """mpirun around a recipe for one process"""
    expect_refusal(check, mpirun_here(2) + check.run("comm=self"), r"started 2 processes, but the ranks of comm.name=self")


@case
def mpich_around_open_mpi(check):
    """the launcher of another MPI"""
    if not shutil.which("mpiexec.hydra"):
        raise Skipped("needs mpich")
    expect_refusal(check, ["mpiexec.hydra", "-n", "2"] + check.run("comm=mpi"), r"started 2 processes, and MPI sees 1",
                   codes=(1, 2))


def without_mpi(check):
    """A build whose plugin finds no MPI library, as on a machine that has none."""
    lmx = twin(check, "lib/lmx/plugins/comm/mpi/mpi.so")
    path = os.path.dirname(os.path.dirname(lmx)) + "/lib/lmx/plugins/comm/mpi/mpi.so"
    with open(path, "rb") as file:
        library = file.read()
    check.require(b"libmpi.so" in library, "the plugin does not need libmpi.so")
    with open(path, "wb") as file:
        file.write(library.replace(b"libmpi.so", b"libnpi.so"))
    return lmx


@case
def no_mpi(check):
    """a machine without MPI's library"""
    lmx = without_mpi(check)
    expect_refusal(check, [lmx] + check.run("comm=mpi", "comm.ranks=2")[1:], r"libnpi\.so.*openmpi-bin")


@case
def no_mpi_but_no_need(check):
    """the same machine, with a recipe that does not need MPI"""
    lmx = without_mpi(check)
    expect_success(check, [lmx] + check.run("comm=self", steps=FEW)[1:], " 1 rank,")
