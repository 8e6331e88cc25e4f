#!/usr/bin/env python3
"""Golden values for tests/models: GPT-2, Llama, Qwen2 and Qwen3 of Hugging Face's transformers, tiny and random, fp32 on the CPU.

Writes tests/models/golden/gpt.safetensors, for each case with the weights before training ("param.<lmx name>"), 20 batches (20, B, T), and the
results of PyTorch: logits, loss and gradients of the first batch, then the losses of 20 steps of AdamW with clipping of the global
norm. Every word is an input in each batch, because lmx does not update the rows of a table that a step does not read, unless the
table is also the output layer.

usage: tools/dev/parity/gpt.py        (needs torch and transformers; the tests themselves need no Python)
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from golden_file import save

STEPS, CLIP, VOCAB, BATCH, LENGTH, LAYERS, D = 20, 0.5, 16, 4, 8, 2, 12
ADAMW = dict(lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def gpt2_names(model, of):
    out = {"embedding.weight": of(model.transformer.wte.weight), "positions.weight": of(model.transformer.wpe.weight)}
    norm = lambda name, m: out.update({name + ".gain": of(m.weight), name + ".bias": of(m.bias)})
    linear = lambda name, m: out.update({name + ".weight": of(m.weight).T, name + ".bias": of(m.bias)})  # Conv1D stores (in, out)
    for l, h in enumerate(model.transformer.h):
        p = f"layer.{l}."
        norm(p + "attention_norm", h.ln_1)
        linear(p + "attention.qkv", h.attn.c_attn)
        linear(p + "attention.out", h.attn.c_proj)
        norm(p + "ffn_norm", h.ln_2)
        linear(p + "ffn.in", h.mlp.c_fc)
        linear(p + "ffn.out", h.mlp.c_proj)
    norm("norm", model.transformer.ln_f)
    return out


def llama_names(model, of):
    out = {"embedding.weight": of(model.model.embed_tokens.weight), "norm.gain": of(model.model.norm.weight)}
    if not model.config.tie_word_embeddings:
        out["softmax.weight"] = of(model.lm_head.weight)
    for l, h in enumerate(model.model.layers):
        p, a = f"layer.{l}.", h.self_attn
        out[p + "attention_norm.gain"], out[p + "ffn_norm.gain"] = of(h.input_layernorm.weight), of(h.post_attention_layernorm.weight)
        out[p + "attention.qkv.weight"] = torch.cat([of(m.weight) for m in (a.q_proj, a.k_proj, a.v_proj)])
        if a.q_proj.bias is not None:
            out[p + "attention.qkv.bias"] = torch.cat([of(m.bias) for m in (a.q_proj, a.k_proj, a.v_proj)])
        if hasattr(a, "q_norm"):
            out[p + "attention.q_norm.gain"], out[p + "attention.k_norm.gain"] = of(a.q_norm.weight), of(a.k_norm.weight)
        out[p + "attention.out.weight"] = of(a.o_proj.weight)
        out[p + "ffn.in.weight"] = torch.cat([of(h.mlp.gate_proj.weight), of(h.mlp.up_proj.weight)])
        out[p + "ffn.out.weight"] = of(h.mlp.down_proj.weight)
    return out


def make(case, model, names):
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        nn.init.normal_(p, 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0, 0.3)  # gains around 1
    numpy = lambda t: t.detach().numpy().copy()
    tensors = {"param." + n: numpy(t) for n, t in names(model, lambda p: p.detach()).items()}
    assert sum(t.size for t in tensors.values()) == sum(p.numel() for p in model.parameters())
    words = torch.arange(VOCAB).repeat(BATCH * LENGTH // VOCAB)
    inputs = torch.stack([words[torch.randperm(len(words))].reshape(BATCH, LENGTH) for _ in range(STEPS)])
    targets = torch.randint(0, VOCAB, inputs.shape)
    tensors |= {"inputs": inputs.numpy().astype(np.int32), "targets": targets.numpy().astype(np.int32)}
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses = []
    for i in range(STEPS):
        logits = model(inputs[i], use_cache=False).logits.reshape(-1, VOCAB)
        loss = F.cross_entropy(logits, targets[i].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if i == 0:
            tensors["logits"] = numpy(logits)
            tensors |= {"grad." + n: numpy(g) for n, g in names(model, lambda p: p.grad).items()}
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    tensors["losses"] = np.array(losses, dtype=np.float32)
    save("gpt", {n: np.ascontiguousarray(t) for n, t in tensors.items()},
         dict(torch=torch.__version__, transformers=transformers.__version__, clip=str(CLIP), adamw=str(ADAMW), model=model.config.model_type),
         "gpt_" + case)
    print(case, [round(x, 4) for x in losses[:3]], "...", round(losses[-1], 4))


def llama_like(config, **fields):
    return config(vocab_size=VOCAB, hidden_size=D, intermediate_size=20, num_hidden_layers=LAYERS, num_attention_heads=fields.pop("heads", 3),
                  num_key_value_heads=fields.pop("kv_heads"), max_position_embeddings=64, rms_norm_eps=1e-5, attn_implementation="eager", **fields)


plain = dict(rope_type="default", rope_theta=100.0)
scaled = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
gpt2 = GPT2Config(vocab_size=VOCAB, n_positions=LENGTH, n_embd=D, n_layer=LAYERS, n_head=3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                  bos_token_id=None, eos_token_id=None, attn_implementation="eager")
make("gpt2", GPT2LMHeadModel(gpt2), gpt2_names)
for case, model, config, fields in (
        ("llama_tied", LlamaForCausalLM, LlamaConfig, dict(kv_heads=1, tie_word_embeddings=True, rope_parameters=plain)),
        ("llama_scaled", LlamaForCausalLM, LlamaConfig, dict(heads=2, kv_heads=2, tie_word_embeddings=False, rope_parameters=scaled)),
        ("qwen2", Qwen2ForCausalLM, Qwen2Config, dict(kv_heads=3, tie_word_embeddings=False, rope_parameters=plain)),
        ("qwen3", Qwen3ForCausalLM, Qwen3Config, dict(heads=4, kv_heads=2, head_dim=6, tie_word_embeddings=True, rope_parameters=plain))):
    make(case, model(llama_like(config, **fields)), llama_names)
