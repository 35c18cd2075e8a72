"""Gates on models that PEFT has given adapters: what trains is what PEFT trains, and every adapter has an availability."""

import pytest
import torch
import torch.nn.functional as F
import transformers

import gateon
import gateon.integrations.hf

peft = pytest.importorskip("peft")
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 40,
}
LORA = {"task_type": "SEQ_CLS", "r": 4}
CONFIGS = {
    "attention": lambda: peft.LoraConfig(**LORA),
    "every layer": lambda: peft.LoraConfig(
        **LORA, target_modules=["query", "key", "value", "dense", "word_embeddings"]
    ),
    "dora": lambda: peft.LoraConfig(**LORA, use_dora=True),
    "biases": lambda: peft.LoraConfig(**LORA, bias="all"),
    "ia3": lambda: peft.IA3Config(task_type="SEQ_CLS"),
    "prompt": lambda: peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
}
every_kind = pytest.mark.parametrize("kind", list(CONFIGS))
both_views = pytest.mark.parametrize("per", ["unit", "parameter"])


def bert():
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES, num_labels=3)
    )


def adapted(kind="attention"):
    model = bert()
    torch.manual_seed(1)
    return peft.get_peft_model(model, CONFIGS[kind]())


def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randint(5, 40, (6, 7), generator=generator), torch.randint(
        0, 3, (6,), generator=generator
    )


def learn(model, optimizer):
    ids, y = batch()
    F.cross_entropy(model(input_ids=ids).logits, y).backward()
    optimizer.step()
    optimizer.zero_grad()


def trained(model):
    return {
        name
        for name, p in model.named_parameters()
        if p.requires_grad and "context_gate" not in name
    }


@pytest.mark.parametrize(
    "kind", [kind for kind in CONFIGS if kind != "prompt"]
)  # which comes between embeddings and their norm
def test_the_places_of_gates_are_those_of_the_model_without_adapters(kind):
    def places(model):
        gates = gateon.hf.attach(model, ranks=False)
        names = [
            site.place.removeprefix("base_model.").removeprefix("model.")
            for site in gates.sites.values()
            if site.gated
        ]
        return dict(zip(names, (gate.weight.shape for gate in gates.gates.values()), strict=True))

    assert places(adapted(kind)) == places(bert())


@every_kind
@both_views
@pytest.mark.parametrize("ranks", [True, False])
def test_whatever_peft_trains_still_trains_and_has_an_availability(kind, per, ranks):
    model = adapted(kind)
    expected = trained(model)
    gates = gateon.hf.attach(model, contexts=2, ranks=ranks)
    assert trained(model) == expected
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = gateon.hf.obstruct(optimizer, gates, per=per)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(3):
        learn(model, optimizer)
    moved = {
        name
        for name, p in model.named_parameters()
        if "context_gate" not in name and not torch.equal(p, before[name])
    }
    assert moved == expected
    gates.switch(1)  # from now on what was relevant is less available
    for name in sorted(expected):
        scale = handle.scale_of(model.get_parameter(name))
        if "classifier" in name:
            assert scale is None
        elif "key" not in name or "bias" not in name:  # whose bias attention does not depend on
            assert (scale < 1).any(), name


def test_an_adapter_without_availability_does_not_move():
    model = adapted()
    gates = gateon.hf.attach(model, contexts=2, ranks=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.hf.obstruct(optimizer, gates)
    name = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_B.default.weight"
    gates.switch(1)
    state = handle.state_dict()
    state[f"{name}:applied"][0] = 0
    handle.load_state_dict(state)
    kept = model.get_parameter(name).detach().clone()
    learn(model, optimizer)
    assert torch.equal(model.get_parameter(name)[0], kept[0]) and not torch.equal(
        model.get_parameter(name)[1], kept[1]
    )


def test_until_it_learns_the_gated_model_is_the_adapted_one_bit_for_bit():
    plain, model = adapted("every layer").eval(), adapted("every layer").eval()
    gateon.hf.attach(model)
    assert torch.equal(plain(batch()[0]).logits, model(batch()[0]).logits)


def test_detaching_leaves_what_peft_froze_frozen():
    model = adapted()
    expected = {name: p.requires_grad for name, p in model.named_parameters()}
    gateon.hf.attach(model).detach()
    assert {name: p.requires_grad for name, p in model.named_parameters()} == expected


def test_other_networks_with_adapters_are_gated_where_they_were_without():
    def network():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(4, 8),
            torch.nn.ReLU(),
            torch.nn.Linear(8, 8),
            torch.nn.ReLU(),
            torch.nn.Linear(8, 2),
        )

    model = peft.get_peft_model(network(), peft.LoraConfig(r=2, target_modules=["0", "2"]))
    gates = gateon.attach(model, contexts=2, density=0.5, example=torch.ones(3, 4))
    plain = gateon.attach(network(), contexts=2, density=0.5)
    assert [gate.weight.shape for gate in gates.gates.values()] == [
        gate.weight.shape for gate in plain.gates.values()
    ]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates)
    for _ in range(2):
        model(torch.ones(3, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all((handle.availability[name] < 1).any() for name in trained(model))
    with pytest.raises(ValueError, match=r"next-layer.*adapters"):
        handle.remove()
        gateon.obstruct(optimizer, gates, relevance="next-layer")
    with pytest.raises(ValueError, match="cannot be folded into layers with adapters"):
        gateon.compact(model, 0, fold=True)


class LoraLinear(torch.nn.Linear):
    """An adapter of one's own, as loralib has it: in the layer, not around it."""

    def __init__(self, linear):
        super().__init__(linear.in_features, linear.out_features)
        self.load_state_dict(linear.state_dict())
        self.requires_grad_(False)
        self.lora_A = torch.nn.Parameter(torch.randn(4, self.in_features))
        self.lora_B = torch.nn.Parameter(torch.zeros(self.out_features, 4))

    def forward(self, x):
        return super().forward(x) + x @ self.lora_A.T @ self.lora_B.T


def test_what_adapters_hold_fast_takes_no_memory():
    network = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)
    )
    model = peft.get_peft_model(network, peft.LoraConfig(r=2, target_modules=["0"]))
    gates = gateon.attach(model, example=torch.ones(3, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, per="parameter")
    assert handle.availability.keys() == {n for n in trained(model) if "context_gate" not in n}


def test_adapters_inside_a_layer_are_not_fixed_with_it():
    model = bert()
    for block in model.bert.encoder.layer:
        block.attention.self.query = LoraLinear(block.attention.self.query)
    gates = gateon.hf.attach(model)
    names = {name for name in trained(model) if "lora_" in name}
    assert len(names) == 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = gateon.hf.obstruct(optimizer, gates)
    for _ in range(2):
        learn(model, optimizer)
    assert all(
        (model.get_parameter(name) != 0).any() and (handle.availability[name] < 1).any()
        for name in names
    )


# Gates first.


def test_gates_that_peft_has_frozen_are_found_and_refused():
    model = bert()
    gates = gateon.hf.attach(model, contexts=2)
    wrapped = peft.get_peft_model(model, CONFIGS["attention"]())
    assert gateon.gates_of(wrapped) is gates
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    for obstruct in (gateon.obstruct, gateon.hf.obstruct):
        with pytest.raises(
            ValueError,
            match=r"cannot learn because its requires_grad is False: call get_peft_model.* before attach",
        ):
            obstruct(optimizer, gates)
    gates.detach()
    gates = gateon.hf.attach(wrapped, contexts=2)
    gateon.hf.obstruct(torch.optim.AdamW(wrapped.parameters(), lr=1e-2), gates)
    assert gateon.gates_of(wrapped) is gates
