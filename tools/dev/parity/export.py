#!/usr/bin/env python3
"""Compares log-likelihoods in lmx (`lmx score`) with those of an exported model in another program.

usage: tools/dev/parity/export.py pytorch RUN FOLDER TEXT
           a word language model, exported by --to pytorch, or by --to huggingface for a decoder: FOLDER.
           Needs torch and safetensors; for GPT-2's layout also transformers
       tools/dev/parity/export.py torch_lstm RUN MODEL.safetensors TEXT
           loads the tensors of an LSTM run into torch.nn.LSTM as docs/models.md describes. Needs torch and safetensors
       tools/dev/parity/export.py translation RUN FOLDER SRC TGT
           given translations, exported for CTranslate2 or transformers. Needs sentencepiece, and ctranslate2, or torch and transformers,
           by the format of FOLDER

Each line of TEXT has words separated by spaces. SRC and TGT are prepared text: words separated by spaces, as the run splits them into
subwords.
"""
import importlib.util
import json
import pathlib
import subprocess
import sys

LMX = pathlib.Path(__file__).parents[3] / "build/bin/lmx"


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


def pytorch(run, folder, text):
    import torch

    if json.loads((pathlib.Path(folder) / "config.json").read_text()).get("model_type") == "gpt2":
        from transformers import GPT2LMHeadModel

        gpt2 = GPT2LMHeadModel.from_pretrained(folder).eval()
        logits_of = lambda ids: gpt2(ids).logits
    else:
        spec = importlib.util.spec_from_file_location("lmx_model", pathlib.Path(folder) / "lmx_model.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model, _ = module.load(folder)
        logits_of = lambda ids: model(ids)[0]

    numbers = {word: i for i, word in enumerate(words_of(run))}
    found = []
    with torch.no_grad():
        for line in open(text, encoding="utf-8"):
            ids = torch.tensor([[1] + [numbers.get(word, 0) for word in line.split()] + [1]])
            log_probabilities = logits_of(ids[:, :-1]).double().log_softmax(-1)
            found.append(log_probabilities.gather(2, ids[:, 1:, None]).sum().item())
    compare(score(run, text), found)


def torch_lstm(run, file, text):
    import torch
    from safetensors.torch import load_file

    tensors = load_file(file)
    layers = sum(name.endswith("weight_ih") for name in tensors)
    projection = tensors["lstm.0.weight_hr"].shape[0] if "lstm.0.weight_hr" in tensors else 0
    lstm = torch.nn.LSTM(tensors["embedding.weight"].shape[1], tensors["lstm.0.bias"].shape[0] // 4, layers, proj_size=projection,
                         batch_first=True)
    with torch.no_grad():
        for i in range(layers):
            getattr(lstm, f"weight_ih_l{i}").copy_(tensors[f"lstm.{i}.weight_ih"])
            getattr(lstm, f"weight_hh_l{i}").copy_(tensors[f"lstm.{i}.weight_hh"])
            getattr(lstm, f"bias_ih_l{i}").copy_(tensors[f"lstm.{i}.bias"])
            getattr(lstm, f"bias_hh_l{i}").zero_()
            if projection:
                getattr(lstm, f"weight_hr_l{i}").copy_(tensors[f"lstm.{i}.weight_hr"])
        numbers = {word: i for i, word in enumerate(words_of(run))}
        table = tensors.get("softmax.weight", tensors["embedding.weight"])
        found = []
        for line in open(text, encoding="utf-8"):
            ids = torch.tensor([[1] + [numbers.get(word, 0) for word in line.split()] + [1]])
            features, _ = lstm(torch.nn.functional.embedding(ids[:, :-1], tensors["embedding.weight"]))
            logits = torch.nn.functional.linear(features, table, tensors.get("softmax.bias")).double()
            found.append(logits.log_softmax(-1).gather(2, ids[:, 1:, None]).sum().item())
    compare(score(run, text), found)


def translation(run, folder, source, target):
    import sentencepiece

    subwords = sentencepiece.SentencePieceProcessor(str(pathlib.Path(run) / "subwords.model"))
    pairs = [[subwords.encode(line.strip(), out_type=str) for line in open(path, encoding="utf-8")] for path in (source, target)]

    if (pathlib.Path(folder) / "model.bin").exists():
        import ctranslate2

        translator = ctranslate2.Translator(folder, compute_type="float32")
        found = [sum(scored.log_probs) for scored in translator.score_batch(*pairs)]
    else:
        import torch
        from transformers import MarianMTModel

        model = MarianMTModel.from_pretrained(folder).eval()
        numbers = {word: i for i, word in enumerate(words_of(run))}
        ids_of = lambda pieces: torch.tensor([[numbers.get(piece, 0) for piece in pieces] + [1]])
        found = []
        with torch.no_grad():
            for left, right in zip(*pairs):
                goal = ids_of(right)
                inputs = torch.cat([torch.tensor([[1]]), goal[:, :-1]], dim=1)
                logits = model(input_ids=ids_of(left), decoder_input_ids=inputs).logits.double()
                found.append(logits.log_softmax(-1).gather(2, goal[:, :, None]).sum().item())
    compare(score(run, source, target), found)


if __name__ == "__main__":
    commands = {"pytorch": pytorch, "torch_lstm": torch_lstm, "translation": translation}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
