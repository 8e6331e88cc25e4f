#!/usr/bin/env python3
"""Text that Hugging Face transformers generate on a CPU, beside `lmx generate`: GPT-2 of 124 M parameters with random weights.

    pip install torch transformers; python tools/dev/peers/torch_generate.py          eager
    python tools/dev/peers/torch_generate.py --compile                                torch.compile and a static cache
    lmx run recipes/gpt2_124m.yaml comm=virtual comm.ranks=1 precision=fp32 batch.global=1 batcher.sequence_length=128 \\
        data.train_tokens=100000 train.steps=1 run.dir=gpt2                           the same sizes; then subtract the times of
    lmx generate gpt2 --tokens 210                                                    this command and of --tokens 10
    python tools/dev/peers/torch_generate.py --prompt 1000                            the time of a prompt, beside
    lmx generate gpt2 --tokens 2 --prompt "$(cut -f 1 gpt2/vocabulary.tsv | sed -n 10,1009p | tr '\\n' ' ')"  less that without one

Prints a JSON line: milliseconds a token between the 10th and the 110th, or those from a prompt of N tokens to the first
token, the median and all of them.
"""
import argparse
import json
import statistics
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="torch.compile with a static cache")
    parser.add_argument("--prompt", type=int, metavar="N", help="measure how long a prompt of N tokens takes")
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="draw N texts in one batch")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).eval()
    model.generation_config.pad_token_id, model.generation_config.eos_token_id = 50256, None
    if args.compile:
        model.generation_config.cache_implementation = "static"
        model.forward = torch.compile(model.forward)
    prompt = torch.randint(0, 50000, (1, args.prompt or 8))

    def seconds(tokens):
        start = time.perf_counter()
        model.generate(prompt, max_new_tokens=tokens, num_return_sequences=args.samples, do_sample=True, top_k=0)
        return time.perf_counter() - start

    with torch.inference_mode():
        for tokens in ((1,) if args.prompt else (110, 10)) * 2:  # compiles each length
            seconds(tokens)
        ms = [1000 * seconds(1) if args.prompt else 10 * (seconds(110) - seconds(10)) for _ in range(args.repeats)]
    print(json.dumps({"peer": f"torch {torch.__version__}", "compile": args.compile, "threads": torch.get_num_threads(),
                      "prompt": args.prompt, "samples": args.samples,
                      "ms" if args.prompt else "ms_per_token": round(statistics.median(ms), 1),
                      "all": [round(m, 1) for m in ms]}))


if __name__ == "__main__":
    main()
