"""Common functions of the scripts export_*.py: log-likelihoods by `lmx score`, and the comparison."""
import pathlib
import subprocess
import sys

LMX = pathlib.Path(__file__).parents[2] / "build/bin/lmx"


def words_of(folder):
    """Words by id, from the vocabulary.tsv of a run or an export."""
    lines = (pathlib.Path(folder) / "vocabulary.tsv").read_bytes().decode("utf-8").split("\n")[:-1]
    return [line.rsplit("\t", 1)[0] for line in lines]


def score(run, *files):
    """(sum of log-likelihoods, tokens) of each line, or of each pair of lines of two files."""
    out = subprocess.run([LMX, "score", run, *files], check=True, capture_output=True, text=True).stdout
    rows = [line.split("\t") for line in out.splitlines()]
    return [(float(row[1]), int(row[2])) for row in rows]


def compare(expected, found, tolerance=2e-5):
    """Exits with 1 if the mean log-likelihood per token of any line differs by more than `tolerance` nats."""
    assert len(expected) == len(found), (len(expected), len(found))
    worst = max(abs(a - b) / tokens for (a, tokens), b in zip(expected, found))
    print(f"{len(found)} lines, {sum(n for _, n in expected)} tokens: largest difference {worst:.2e} nats a token")
    sys.exit(worst > tolerance)
