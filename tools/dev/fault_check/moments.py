"""Kills a process at a moment that gdb can recognise by its functions."""
import re
import shutil
import subprocess

# The main thread of a rank is inside these functions, the outermost first.
COLLECTIVE = ["lmx::processes::ProcessCommunicator::do_all_gather", "gloo::transport::tcp::UnboundBuffer::waitRecv"]
BACKWARD = ["lmx::Tape::backward", "lmx::gemm"]
CHECKPOINT = ["lmx::finish_checkpoint", "fsync"]
# The same for any thread: it reads the memory of another rank; it waits until another rank has read its own.
READ = ["lmx_gloo::PeerMemory::read"]
ANSWER = ["lmx_gloo::GlooMessages::receive_answer", "gloo::transport::tcp::UnboundBuffer::waitRecv"]


def available():
    return shutil.which("gdb") is not None


def stop_inside(pid, functions, then, thread="thread 1", limit_s=30):
    """Stops the process as soon as its main thread, or with thread="" any, is inside all these functions at once, and gives gdb
    the commands `then`."""
    words = ["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "set breakpoint pending off", "-ex", "thread 1"]
    for k, function in enumerate(functions):
        place = f"tbreak {function} {thread}" if k == 0 else f'eval "tbreak {function} thread %d", $_thread'
        words += ["-ex", place, "-ex", "continue"]
    for word in ["backtrace", *then]:
        words += ["-ex", word]
    result = subprocess.run(words, capture_output=True, text=True, timeout=limit_s)
    frames = [line for line in result.stdout.splitlines() if re.match(r"#\d+ ", line)]
    missing = [f for f in functions if not any(re.search(rf"\b{re.escape(f.rsplit('::', 1)[-1])} ?\(", line) for line in frames)]
    if missing:
        raise RuntimeError(f"gdb has not found {missing}: {result.stdout[-1500:]} {result.stderr[-800:]}")


def kill_inside(pid, functions, thread="thread 1"):
    """Kills the process at that moment."""
    stop_inside(pid, functions, ["kill"], thread)


def kill_before_read(reader, other):
    """Kills the process `other` while `reader` is about to read the memory of a rank."""
    stop_inside(reader, READ, [f"shell kill -9 {other}", "detach"], "")
