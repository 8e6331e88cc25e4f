"""Hosts of a network with faults, as namespaces of this machine. All of them end with the program."""
import os
import shutil
import subprocess
import tempfile
import time

SETUP = """
hostname "$1" && ip link set lo up && umount -l /sys && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm &&
mount --bind "$2/hosts" /etc/hosts && touch "$2/$1.ready" && exec sleep infinity"""


class Hosts:
    """node0 ... node(n-1). Each has a link to the switch on `head`, where launchers run. All share the file system."""

    def __init__(self, n):
        self.n, self.folder, self.holders, self.pids = n, tempfile.mkdtemp(prefix="lmx_hosts_"), {}, {}
        os.chmod(self.folder, 0o755)
        with open(f"{self.folder}/hosts", "w") as file:
            file.write("127.0.0.1 localhost\n10.97.0.254 head\n")
            file.writelines(f"10.97.0.{k + 1} node{k}\n" for k in range(n))
        self._make("head", [])
        # A fixed address: otherwise the bridge takes the address of a link, which would still answer when it is outside
        # the bridge.
        self.on("head", "ip link add br0 address 02:00:0a:61:00:fe type bridge && ip addr add 10.97.0.254/24 dev br0 && ip link set br0 up")
        for k in range(n):
            self.boot(k)
        self._write_agent()

    def boot(self, k):
        """Starts host k, also again after kill_everything()."""
        name = f"node{k}"
        if name in self.holders:
            self.holders[name].wait()
            os.unlink(f"{self.folder}/{name}.ready")
        self._make(name, ["--pid", "--mount-proc"])
        self.on("head", f"ip link add p{k} type veth peer name eth0 netns {self.pids[name]} && ip link set p{k} master br0 up")
        self.on(name, f"ip addr add 10.97.0.{k + 1}/24 dev eth0 && ip link set eth0 up")

    def _make(self, name, flags):
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--ipc", "--mount", *flags, "--fork",
                   "--kill-child", "bash", "-c", SETUP, "_", name, self.folder]
        holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.holders[name] = holder
        until(lambda: os.path.exists(f"{self.folder}/{name}.ready") or holder.poll() is not None, 60)
        with open(f"/proc/{holder.pid}/task/{holder.pid}/children") as file:
            self.pids[name] = int(file.read().split()[0])
        with open(f"{self.folder}/{name}.pid", "w") as file:
            file.write(str(self.pids[name]))

    def _write_agent(self):
        """Writes the script that mpirun calls instead of ssh."""
        self.agent = f"{self.folder}/agent"
        with open(self.agent, "w") as file:
            file.write('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\n'
                       f'exec nsenter -t "$(cat "{self.folder}/$host.pid")" --all -- bash -c "$*"\n')
        os.chmod(self.agent, 0o755)

    def enter(self, name):
        """The words before a command that run it on that host."""
        spaces = ["--all"] if name != "head" else ["--net", "--uts", "--ipc", "--mount"]
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "-t", str(self.pids[name]), *spaces, "--wd=" + os.getcwd(), "--"]

    def on(self, name, script):
        subprocess.run([*self.enter(name), "bash", "-c", script], check=True)

    def mpirun(self, n, options):
        hostfile = f"{self.folder}/hostfile"
        with open(hostfile, "w") as file:
            file.writelines(f"node{k} slots=1\n" for k in range(self.n))
        return [*self.enter("head"), "mpirun", "--allow-run-as-root", "--hostfile", hostfile, "-n", str(n), "--map-by", "node",
                "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent, "--mca", "plm_rsh_no_tree_spawn", "1", *options]

    # The faults of host k.
    def link_down(self, k):
        self.on("head", f"ip link set p{k} down")

    def swallow(self, k):
        """The link stays up, but no packet arrives in either direction."""
        self.on("head", f"ip link set p{k} nomaster && ip link set p{k} arp off")  # the head must not get an answer, either

    def swallow_incoming(self, k):
        """The host can send, but receives nothing."""
        self.on(f"node{k}", "iptables -I INPUT -i eth0 -j DROP")

    def kill_everything(self, k):
        """Ends all its processes at once; its kernel closes the connections to its peers."""
        os.kill(self.pids[f"node{k}"], 9)

    def power_cut(self, k):
        self.swallow(k)
        self.kill_everything(k)

    def close(self):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def until(condition, limit_s):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
