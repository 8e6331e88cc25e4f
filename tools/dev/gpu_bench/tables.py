"""tables.py FOLDER STEPS: prints the results of `tools/gpu bench` in FOLDER as Markdown.

The first table compares lmx with its peers (bench.jsonl); then each WORKLOAD.kernels, which kernel_times.cc has recorded in a run of
STEPS steps, becomes a table of the kernels of one step. docs/gpu.md and docs/history/gpu.md contain such tables.
"""
import collections
import json
import pathlib
import re
import statistics
import sys

# The parts of the serial floor, which docs/history/gpu.md derives: GB that are read, and milliseconds of products; none for gpt.
WORKLOADS = {"word_lstm": ("128 x 20 words", (0.345, 0.165)), "char_rhn": ("128 x 150 characters", (38.5, 5.4)),
             "char_mlstm": ("128 x 256 bytes", (85.8, 10)), "nmt_transformer": ("192 pairs of 27 and 27 words", (17, 10.8)),
             "gpt": ("16 x 1,024 subwords", None)}
BANDWIDTH = {"H100": 3.0, "H200": 4.36}  # measured TB/s
PEERS = {"torch": "PyTorch", "jax": "JAX"}
KERNELS = 20  # rows of a table of kernels


def number(value):
    """Three digits, but no fewer than those before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def header(*cells):
    return row(*cells) + "\n" + "|---" * len(cells) + "|"


def results(folder):
    """{(program, workload, precision): its lines}. A part that failed has a line with its error."""
    found = collections.defaultdict(list)
    for line in map(json.loads, (folder / "bench.jsonl").read_text().splitlines()):
        if "workload" in line:
            program = line.get("program") or ("lmx" if "lmx" in line else line["peer"].split()[0])
            found[program, line["workload"], line["precision"]].append(line)
    return found


def milliseconds(lines):
    return [1e3 * line["step_s"] for line in lines if "step_s" in line]


def cell(lines):
    if times := milliseconds(lines):
        mode = f" ({lines[-1]['mode']})" if "peer" in lines[-1] else ""
        return ", ".join(map(number, times)) + mode
    return "skipped" if any(line["error"].startswith("skipped") for line in lines) else "failed" if lines else "not measured"


def ratio(time, lmx):
    return f"{time / statistics.mean(milliseconds(lmx)):.2f}" if time and milliseconds(lmx) else "-"


def serial_floor(parts, gpu):
    """Milliseconds; None if the workload has no floor or the bandwidth of the GPU is not known."""
    bandwidth = next((value for name, value in BANDWIDTH.items() if name in gpu), None)
    return parts[0] / bandwidth + parts[1] if parts and bandwidth else None


def comparison(found, gpu):
    """lmx is measured before and after its peers. Ratios use the mean of both."""
    yield header("workload of `lmx bench --scale paper`", "lmx, bf16", *PEERS.values(), "speed relative to the best peer",
                 "serial floor", "floor / lmx", "lmx, fp32")
    for name, (batch, parts) in WORKLOADS.items():
        floor = serial_floor(parts, gpu)
        lmx, fp32 = (found["lmx", name, precision] + found["lmx", name, "all"] for precision in ("bf16", "fp32"))
        peers = [found[program, name, "bf16"] for program in PEERS]
        best = min((time for peer in peers for time in milliseconds(peer)), default=None)
        full_size = all(line["scale"] == "paper" for line in lmx if "scale" in line)
        yield row(f"`{name}`, {batch}", cell(lmx), *map(cell, peers), ratio(best, lmx), number(floor) if floor else "-",
                  ratio(floor if full_size else None, lmx), cell(fp32))
    if reasons := [f"- {' '.join(key)}: {line['error']}" for key, lines in found.items() for line in lines if "error" in line]:
        yield "\nParts without a result:\n"
        yield from reasons


def operations(path):
    """Sorted tuples (start, end, blocks, name) of kernels, copies and fills; times in ns."""
    fields = (line.split(" ", 3) for line in path.read_text().splitlines())
    return sorted((int(start), int(end), int(blocks), name) for start, end, blocks, name in fields)


def boundaries(all_operations, steps):
    """The starts of the steps: those of a kernel that ran once in each. Empty if there is none."""
    count = collections.Counter(o[2:] for o in all_operations)
    marker = next((o[2:] for o in all_operations if count[o[2:]] == steps), None)
    return [o[0] for o in all_operations if o[2:] == marker]


def short(name):
    name = re.sub(r"\(anonymous namespace\)::|^void |lmx::|cuda::|ops::|optim::|\(.*\)$", "", name)
    return (name if len(name) <= 70 else name[:67] + "...").replace("|", "\\|")


def kernels(name, all_operations, steps):
    """The second half of the steps: the first ones are not yet CUDA graphs."""
    starts = boundaries(all_operations, steps)[steps // 2:]
    if not starts:
        yield f"\n`{name}`: no kernel ran exactly {steps} times, so the steps cannot be told apart."
        return
    begin, end, n = starts[0], starts[-1], len(starts) - 1
    window = [o for o in all_operations if begin <= o[0] < end]
    busy, until, gaps = 0, begin, []
    for start, stop, _, _ in [*window, (end, end, 0, "")]:  # operations of two streams may overlap
        gaps.append(max(0, start - until))
        busy += max(0, stop - max(start, until))
        until = max(until, stop)
    long = [gap for gap in gaps if gap > 20_000]
    ms = lambda nanoseconds: number(nanoseconds / n / 1e6)
    yield (f"\n`{name}`: a step takes {ms(end - begin)} ms. The GPU is busy for {ms(busy)} ms with {len(window) / n:.0f} kernels, copies"
           f" and fills. Gaps above 20 µs: {len(long) / n:.1f} a step, {ms(sum(long))} ms.\n")
    yield header("kernel", "blocks", "times a step", "µs each", "ms a step", "share")
    groups = collections.defaultdict(list)
    for start, stop, blocks, kernel in window:
        groups[short(kernel), blocks].append(stop - start)
    rows = sorted(groups.items(), key=lambda group: -sum(group[1]))
    rest = sum(sum(times) for _, times in rows[KERNELS:])
    for (kernel, blocks), times in rows[:KERNELS]:
        yield row(f"`{kernel}`", str(blocks) if blocks else "-", f"{round(len(times) / n, 1):g}", f"{statistics.mean(times) / 1e3:.2f}",
                  ms(sum(times)), f"{100 * sum(times) / busy:.1f} %")
    if rest:
        yield row(f"{len(rows) - KERNELS} more", "-", "-", "-", ms(rest), f"{100 * rest / busy:.1f} %")


def main():
    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    print("\n".join(comparison(results(folder), (folder / "devices.txt").read_text())))
    for name in WORKLOADS:
        path = folder / f"{name}.kernels"
        if path.exists():
            print("\n".join(kernels(name, operations(path), steps)))
        else:
            print(f"\n`{name}`: no times of kernels were recorded.")


if __name__ == "__main__":
    main()
