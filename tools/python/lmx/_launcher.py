"""The console command `lmx` of the wheel: starts the program that the wheel contains."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native", "bin", "lmx")
    os.execv(program, [program] + sys.argv[1:])
