#!/usr/bin/env python3
"""Compares imported and exported models with Hugging Face's transformers: tiny random GPT-2, Llama, Qwen2 and Qwen3 models.

Each model of transformers is imported, exported again and loaded again: its logits must have the same bits, and the
log-likelihoods of lines by `lmx score` must agree. Then a model that lmx has trained on subwords is exported, and transformers
must read the same log-likelihoods with the exported tokenizer.

usage: tools/dev/parity/huggingface.py        (needs torch, transformers, tokenizers, sentencepiece and protobuf, and build/bin/lmx)
"""
import pathlib
import subprocess
import tempfile

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from export import LMX, compare, score

END = "<|endoftext|>"
LINES = ["It's a small world.", "a", "The  end of 12345 na\u00efve words, \U0001f600 and\ttabs", "for (int i = 0; i < 3; ++i) {}", "the old man and the sea " * 4]
SIZES = dict(vocab_size=260, hidden_size=12, intermediate_size=20, num_hidden_layers=2, max_position_embeddings=256, bos_token_id=256, eos_token_id=256)
SCALED = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)


def models_of_transformers():
    t = transformers
    plain = dict(rope_type="default", rope_theta=100.0)
    yield t.GPT2LMHeadModel(t.GPT2Config(vocab_size=260, n_positions=256, n_embd=12, n_layer=2, n_head=3, bos_token_id=256, eos_token_id=256))
    for tie in (True, False):
        llama = dict(num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=tie, rope_parameters=SCALED)
        yield t.LlamaForCausalLM(t.LlamaConfig(**SIZES, **llama))
        yield t.LlamaForCausalLM(t.LlamaConfig(**SIZES, **llama, attention_bias=True, mlp_bias=True))
        yield t.Qwen2ForCausalLM(t.Qwen2Config(**SIZES, num_attention_heads=3, num_key_value_heads=3, tie_word_embeddings=tie, rope_parameters=plain))
        yield t.Qwen3ForCausalLM(t.Qwen3Config(**SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=6, tie_word_embeddings=tie, rope_parameters=plain))


def byte_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    return tokenizer


def lmx(*words):
    subprocess.run([LMX, *words], check=True, stdout=subprocess.DEVNULL)


@torch.no_grad()
def likelihoods(model, tokenizer, end):
    """(sum of log-likelihoods, tokens) of each line between two ends of text, as `lmx score` computes them."""
    rows = []
    for line in LINES:
        ids = torch.tensor([[end, *tokenizer(line, add_special_tokens=False)["input_ids"], end]])
        logits = model(ids).logits[0, :-1]
        rows.append((logits.log_softmax(-1)[range(ids.shape[1] - 1), ids[0, 1:]].sum().item(), ids.shape[1] - 1))
    return rows


@torch.no_grad()
def check_import(model, folder):
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        torch.nn.init.normal_(p, 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0, 0.3)
    model.eval().save_pretrained(folder / "in")
    byte_tokenizer().save(str(folder / "in/tokenizer.json"))
    lmx("import", folder / "in", "--output", folder / "run")
    lmx("export", folder / "run", "--to", "huggingface", "--output", folder / "out")
    again = AutoModelForCausalLM.from_pretrained(folder / "out").eval()
    assert type(again) is type(model), type(again)
    ids = torch.arange(256)[None]
    assert torch.equal(again(ids).logits, model(ids).logits), type(model)
    tokenizer = AutoTokenizer.from_pretrained(folder / "out")
    return likelihoods(model, tokenizer, 256), score(folder / "run", folder / "lines.txt")


def check_export(folder):
    (folder / "text.txt").write_text("".join(f"It's the small world number {i}\n\n" for i in range(1000)))
    (folder / "recipe.yaml").write_text(
        f"data: {{name: text, tokens: subwords, vocab_size: 320, files: [{folder}/text.txt]}}\nbatcher: {{name: packed_windows, sequence_length: 16}}\n"
        "model: {name: gpt, layers: 2, d: 24, heads: 4, kv_heads: 2, qk_norm: true}\nloss: {name: full_softmax, bias: false}\n"
        "optimizer: {name: adam, lr: 0.01}\nbatch: {global: 8}\ntrain: {steps: 50}\n")
    lmx("run", folder / "recipe.yaml", f"run.dir={folder}/run")
    lmx("export", folder / "run", "--to", "huggingface", "--output", folder / "out")
    model = AutoModelForCausalLM.from_pretrained(folder / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "out")
    return likelihoods(model, tokenizer, tokenizer.eos_token_id), score(folder / "run", folder / "lines.txt")


def main():
    expected, found = [], []
    checks = [lambda folder, model=model: check_import(model, folder) for model in models_of_transformers()] + [check_export]
    for check in checks:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "lines.txt").write_text("".join(line + "\n" for line in LINES))
            there, here = check(folder)
            assert [n for _, n in there] == [n for _, n in here], (there, here)
            expected += there
            found += [likelihood for likelihood, _ in here]
    print(f"transformers {transformers.__version__}, {len(checks)} models")
    compare(expected, found, 1e-4)


if __name__ == "__main__":
    main()
