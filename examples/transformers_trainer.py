# SPDX-License-Identifier: MIT
"""transformers' Trainer: a small Llama learns to continue the text of Python's own documentation, letter by letter. Trainer runs
on Accelerate, which uses the process group that is open already.

Start it with `netsum run -n 4 examples/transformers_trainer.py`; or with torchrun, in a job of a running controller (NETSUM_JOB,
NETSUM_TOKEN and NETSUM_CONTROLLER set): `torchrun --nproc-per-node 4 examples/transformers_trainer.py`. Needs the `torch` extra,
transformers and accelerate.
"""

import tempfile
from pydoc_data.topics import topics  # what `help("if")` prints

import torch
from torch import distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

STEPS, BATCH, LENGTH, WIDTH, HELD_OUT = 80, 16, 48, 64, 80

text = "".join(topics[name] for name in ("if", "while", "for", "assignment"))
letters = sorted(set(text))
codes = torch.tensor([letters.index(letter) for letter in text])
examples = [{"input_ids": part, "labels": part} for part in codes.split(LENGTH)[:-1]]


def metrics(evaluated):
    guessed = evaluated.predictions[:, :-1].argmax(axis=2)
    return {"accuracy": (guessed == evaluated.label_ids[:, 1:]).mean()}


dist.init_process_group("netsum")  # before TrainingArguments, which has Accelerate open one of Gloo
rank, size = dist.get_rank(), dist.get_world_size()
set_seed(0)  # the same weights everywhere
torch.set_num_threads(1)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(letters), hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=2, num_attention_heads=4
    )
)
arguments = TrainingArguments(
    tempfile.gettempdir(),
    use_cpu=True,
    per_device_train_batch_size=BATCH // size,
    max_steps=STEPS,
    learning_rate=3e-3,
    logging_steps=20,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(model, arguments, train_dataset=examples[HELD_OUT:], eval_dataset=examples[:HELD_OUT], compute_metrics=metrics)
trainer.train()
found = trainer.evaluate()  # over all ranks
if rank == 0:
    loss, accuracy = found["eval_loss"], found["eval_accuracy"]
    print(f"{size} ranks on {dist.get_backend()}: loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)
dist.destroy_process_group()
