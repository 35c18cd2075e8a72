"""One model sorts the support tickets of three products that arrive in turn, in a training loop of your own.

    python examples/tickets_loop.py

MiniLM, a minute or two on a laptop. First plain fine-tuning, which forgets the first products; then
the same loop with gates.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

import gateon
import gateon.integrations.hf
from gateon.networks import pretrained, text_classifier
from tickets import PRODUCTS, show, tickets

EPOCHS, BATCH, LR = 4, 16, 2e-4


def ids_of(texts: list[str]) -> torch.Tensor:
    """Token ids, padded at the right."""
    tokenizer = pretrained.tokenizer()
    rows = [torch.tensor(ids) for ids in tokenizer(texts).input_ids]
    return pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)


def learn(*, gated: bool) -> list[list[float]]:
    """Accuracy on every product so far, after each."""
    torch.manual_seed(0)
    model = text_classifier("minilm", classes=2)
    gates = gateon.hf.attach(model, contexts=len(PRODUCTS)) if gated else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    if gates is not None:
        gateon.hf.obstruct(optimizer, gates, first_task_steps=EPOCHS * -(-80 // BATCH))
    rows = []
    for k, name in enumerate(PRODUCTS):
        texts, labels = tickets(name, test=False)
        x, y = ids_of(texts), torch.tensor(labels)
        if gates is not None:
            gates.switch(k)
        model.train()
        for _ in range(EPOCHS):
            for chosen in torch.randperm(len(y)).split(BATCH):
                F.cross_entropy(model(x[chosen]), y[chosen]).backward()
                optimizer.step()
                optimizer.zero_grad()
        rows.append([accuracy(model, j) for j in range(k + 1)])
    return rows


@torch.no_grad()
def accuracy(model: torch.nn.Module, k: int) -> float:
    """On the held-out tickets of product k, in its context."""
    gates = gateon.gates_of(model)
    if gates is not None:
        gates.show(k)
    texts, labels = tickets(list(PRODUCTS)[k], test=True)
    return float((model.eval()(ids_of(texts)).argmax(1) == torch.tensor(labels)).float().mean())


if __name__ == "__main__":
    show("plain fine-tuning", learn(gated=False))
    show("with gates and obstruction", learn(gated=True))
