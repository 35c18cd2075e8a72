"""Gates on networks of every kind: each sits where it should, owns what it should, and the network runs as before."""

import copy
import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.conv import _ConvTransposeNd

import gateon
from gate_models import Net
from gateon.anatomy.kinds import is_layer, is_norm


class BasicBlock(nn.Module):
    """As in torchvision: one ReLU module for all."""

    def __init__(self, inputs, units, stride=1, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, units, 3, stride, 1, bias=False), norm(units)
        self.conv2, self.bn2 = nn.Conv2d(units, units, 3, 1, 1, bias=False), norm(units)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            None
            if inputs == units
            else nn.Sequential(nn.Conv2d(inputs, units, 1, stride, bias=False), norm(units))
        )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    def __init__(self, units):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(units, 4, 1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4)
        self.conv3, self.bn3 = nn.Conv2d(4, units, 1), nn.BatchNorm2d(units)
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.relu(self.bn3(self.conv3(out)) + x)


class PreActivation(nn.Module):
    def __init__(self, units, norm=nn.BatchNorm2d):
        super().__init__()
        self.bn1, self.conv1 = norm(units), nn.Conv2d(units, units, 3, padding=1)
        self.bn2, self.conv2 = norm(units), nn.Conv2d(units, units, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(x))))))


def resnet(*blocks):
    stem = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3))


def two_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text, self.head = nn.Linear(5, 6), nn.Embedding(9, 6), nn.Linear(12, 3)

        def forward(self, image, ids, scale=1.0):
            return (
                self.head(torch.cat([F.relu(self.image(image)), self.text(ids).mean(1)], -1))
                * scale
            )

    return Two(), (torch.randn(4, 5), torch.randint(0, 9, (4, 3)))


def tied():
    model = Net(
        lambda s, x: s.out(torch.tanh(s.mid(s.words(x)))),
        words=nn.Embedding(9, 6),
        mid=nn.Linear(6, 6),
        out=nn.Linear(6, 9),
    )
    model.out.weight = model.words.weight
    return model, torch.randint(0, 9, (4, 3))


def sequential(*layers):
    return lambda: (copy.deepcopy(nn.Sequential(*layers)), torch.randn(4, 5))


def images(make, size=8):
    def build():
        model, x = make(), torch.randn(4, 3, size, size)
        model.eval()(x)  # lazy layers
        return model.train(), x

    return build


def norms_behind_linear(norm):
    return sequential(
        nn.Linear(5, 6),
        norm,
        nn.ReLU(),
        nn.Linear(6, 6),
        nn.Dropout(0.1),
        nn.GELU(),
        nn.Linear(6, 3),
    )


def lenet(activation):
    def forward(s, x):
        x = F.max_pool2d(activation(s.c1(x)), 2)
        x = F.max_pool2d(activation(s.c2(x)), 2).view(x.size(0), -1)
        return s.f2(F.dropout(activation(s.f1(x)), 0.1, s.training))

    def build():
        convolutions = {"c1": nn.Conv2d(3, 4, 3, padding=1), "c2": nn.Conv2d(4, 6, 3, padding=1)}
        return Net(forward, **convolutions, f1=nn.Linear(24, 8), f2=nn.Linear(8, 3))

    return images(build)


def recurrent(kind):
    return lambda: (
        Net(
            lambda s, x: s.out(F.relu(s.mid(s.rnn(s.words(x))[0][:, -1]))),
            words=nn.Embedding(9, 5),
            rnn=kind(5, 7, batch_first=True),
            mid=nn.Linear(7, 6),
            out=nn.Linear(6, 3),
        ),
        torch.randint(0, 9, (4, 5)),
    )


def attention():
    model = Net(
        lambda s, x: s.out(s.norm(x + s.attention(x, x, x, need_weights=False)[0]).mean(1)),
        attention=nn.MultiheadAttention(8, 2, batch_first=True),
        norm=nn.LayerNorm(8),
        out=nn.Linear(8, 3),
    )
    return model, torch.randn(4, 5, 8)


def embeddings():
    model = Net(
        lambda s, x: s.out(
            s.norm(s.words(x) + s.places(torch.arange(5)) + s.kinds(torch.zeros_like(x))).mean(1)
        ),
        words=nn.Embedding(9, 8),
        places=nn.Embedding(5, 8),
        kinds=nn.Embedding(2, 8),
        norm=nn.LayerNorm(8),
        out=nn.Linear(8, 3),
    )
    return model, torch.randint(0, 9, (4, 5))


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True)
    return nn.Sequential(
        nn.Embedding(9, 8), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(40, 3)
    ), torch.randint(0, 9, (4, 5))


def volume():
    layers = [
        nn.Conv3d(2, 4, 2),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.ConvTranspose3d(4, 6, 2, groups=2),
        nn.ELU(),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(6 * 27, 3)), torch.randn(4, 2, 3, 3, 3)


def line():
    layers = [
        nn.Conv1d(2, 4, 3, groups=2),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.ConvTranspose1d(4, 5, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(5, 3)), torch.randn(4, 2, 7)


def mobile():
    depthwise = [
        nn.Conv2d(6, 6, 3, padding=1, groups=6),
        nn.BatchNorm2d(6),
        nn.ReLU6(),
        nn.Conv2d(6, 8, 1),
        nn.BatchNorm2d(8),
        nn.Hardswish(),
    ]
    return nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.ReLU(),
        *depthwise,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def weight_shared():
    model = Net(
        lambda s, x: {
            "logits": s.out(s.act(s.again(s.act(s.again(s.act(s.first(x))))))),
            "extra": x,
        },
        first=nn.Linear(5, 6),
        again=nn.Linear(6, 6),
        act=nn.Tanh(),
        out=nn.Linear(6, 3),
    )
    return model, torch.randn(4, 5)


def hub(kind, config, inputs, **settings):
    def build():
        transformers = pytest.importorskip("transformers")
        return getattr(transformers, kind)(getattr(transformers, config)(**settings)), inputs()

    return build


ids = {"input_ids": torch.randint(3, 40, (4, 6), generator=torch.Generator().manual_seed(0))}
BERT = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
BERT |= {"max_position_embeddings": 40}
GPT = {
    "vocab_size": 40,
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 8,
    "patch_size": 4,
}
T5 = {
    "vocab_size": 40,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 1,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
DISTIL = {
    "vocab_size": 40,
    "dim": 16,
    "n_layers": 1,
    "n_heads": 2,
    "hidden_dim": 24,
    "max_position_embeddings": 40,
}

# What is built, and where each gate must sit: "<" in front of, else behind.
CONVNEXT = {"hidden_sizes": [6, 8, 10, 12], "depths": [1, 1, 1, 1], "image_size": 32}


class NormAndActivation(nn.BatchNorm2d):
    """As timm has it: a BatchNorm with dropout and activation inside."""

    def __init__(self, units, act=nn.ReLU):
        super().__init__(units)
        self.drop, self.act = nn.Identity(), act()

    def forward(self, x):
        return self.act(self.drop(super().forward(x)))


MODELS = {
    "mlp": (
        sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)),
        {"0": "1", "2": "3"},
    ),
    "mlp, batch norm": (norms_behind_linear(nn.BatchNorm1d(6)), {"0": "2", "3": "5"}),
    "mlp, layer norm": (norms_behind_linear(nn.LayerNorm(6)), {"0": "2", "3": "5"}),
    "mlp, group norm": (norms_behind_linear(nn.GroupNorm(2, 6)), {"0": "2", "3": "5"}),
    "lenet, relu": (lenet(F.relu), {"c1": "c1", "c2": "c2", "f1": "f1"}),
    "lenet, gelu": (lenet(F.gelu), {"c1": "<c2", "c2": "<f1", "f1": "<f2"}),
    "lenet, sigmoid": (lenet(torch.sigmoid), {"c1": "<c2", "c2": "<f1", "f1": "<f2"}),
    "lenet, tanh": (lenet(torch.tanh), {"c1": "<c2", "c2": "<f1", "f1": "<f2"}),
    "resnet": (
        images(lambda: resnet(BasicBlock(6, 6), BasicBlock(6, 8, 2))),
        {f"{n}.conv{i}": f"{n}.bn{i}" for n in (3, 4) for i in (1, 2)}
        | {"0": "2", "4.downsample.0": "4.downsample.1"},
    ),
    "resnet, context norm": (
        images(lambda: gateon.context_norms(resnet(BasicBlock(6, 6)))),
        {"0": "2", "3.conv1": "3.bn1", "3.conv2": "3.bn2"},
    ),
    "resnet, no norm": (
        images(lambda: resnet(BasicBlock(6, 8, norm=lambda n: nn.Identity()))),
        {"0": "2", "3.conv1": "3.conv1", "3.conv2": "3.conv2", "3.downsample.0": "3.downsample.0"},
    ),
    "bottleneck": (
        images(lambda: resnet(Bottleneck(6))),
        {"0": "2", "3.conv1": "3.bn1", "3.conv2": "3.bn2", "3.conv3": "3.bn3"},
    ),
    "pre-activation": (
        images(lambda: resnet(PreActivation(6), PreActivation(6))),
        {
            "0": "2",
            "3.conv1": "3.bn2",
            "3.conv2": "3.conv2",
            "4.conv1": "4.bn2",
            "4.conv2": "4.conv2",
        },
    ),
    "pre-activation, group norm": (
        images(lambda: resnet(PreActivation(6, lambda n: nn.GroupNorm(2, n)))),
        {"0": "2", "3.conv1": "3.bn2", "3.conv2": "3.conv2"},
    ),
    "depthwise": (images(mobile), {"0": "1", "2": "4", "5": "7"}),
    "1d": (line, {"0": "2", "3": "4"}),
    "3d": (volume, {"0": "2", "3": "4"}),
    "encoder": (
        encoder,
        {"0": "0"}
        | {
            f"1.layers.{n}.{k}": f"1.layers.{n}.{k}"
            for n in (0, 1)
            for k in ("self_attn", "linear2")
        }
        | {f"1.layers.{n}.linear1": f"<1.layers.{n}.linear2" for n in (0, 1)},
    ),
    "attention": (attention, {"attention": "attention"}),
    "embeddings": (embeddings, {"words": "norm"}),
    "rnn": (recurrent(nn.RNN), {"words": "words", "rnn": "rnn", "mid": "mid"}),
    "lstm": (recurrent(nn.LSTM), {"words": "words", "rnn": "rnn", "mid": "mid"}),
    "gru": (recurrent(nn.GRU), {"words": "words", "rnn": "rnn", "mid": "mid"}),
    "convnext": (
        hub(
            "ConvNextForImageClassification",
            "ConvNextConfig",
            lambda: {"pixel_values": torch.randn(4, 3, 32, 32)},
            **CONVNEXT,
        ),
        None,
    ),
    "norms with activations": (
        images(
            lambda: nn.Sequential(
                nn.Conv2d(3, 6, 3, padding=1, bias=False),
                NormAndActivation(6),
                nn.Conv2d(6, 8, 3, padding=1, groups=2, bias=False),
                NormAndActivation(8, nn.Hardswish),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(8, 3),
            )
        ),
        {"0": "1", "2": "3"},
    ),
    "tied weights": (tied, {"words": "words", "mid": "<out"}),
    "called several times": (weight_shared, {"first": "first", "again": "again"}),
    "two inputs": (two_inputs, {"image": "image", "text": "text"}),
    "bert": (hub("BertForSequenceClassification", "BertConfig", lambda: ids, **BERT), None),
    "distilbert": (
        hub("DistilBertForSequenceClassification", "DistilBertConfig", lambda: ids, **DISTIL),
        None,
    ),
    "roberta": (
        hub("RobertaForSequenceClassification", "RobertaConfig", lambda: ids, **BERT),
        None,
    ),
    "electra": (
        hub(
            "ElectraForSequenceClassification",
            "ElectraConfig",
            lambda: ids,
            embedding_size=8,
            **BERT,
        ),
        None,
    ),
    "gpt2": (hub("GPT2LMHeadModel", "GPT2Config", lambda: ids, **GPT), None),
    "llama": (
        hub("LlamaForCausalLM", "LlamaConfig", lambda: ids, num_key_value_heads=1, **BERT),
        None,
    ),
    "vit": (
        hub(
            "ViTForImageClassification",
            "ViTConfig",
            lambda: {"pixel_values": torch.randn(4, 3, 8, 8)},
            **VIT,
        ),
        None,
    ),
    "t5": (
        hub(
            "T5ForConditionalGeneration",
            "T5Config",
            lambda: ids | {"labels": ids["input_ids"]},
            **T5,
        ),
        None,
    ),
}
NEED_EXAMPLE = {"encoder", "attention", "vit", "convnext"}
every_model = pytest.mark.parametrize("name", MODELS)


def make(name):
    torch.manual_seed(0)
    build, expected = MODELS[name]
    model, x = build()
    return model, x, expected


def attach(name, model, x, **options):
    return gateon.attach(model, example=x if name in NEED_EXAMPLE else None, **options)


def call(model, x):
    y = model(**x) if isinstance(x, dict) else model(*x) if isinstance(x, tuple) else model(x)
    return y["logits"] if isinstance(y, dict) else y


def owners(model, gates):
    """{parameter: sites that own it}, for the model's own parameters."""
    found = {p: [] for n, p in model.named_parameters() if "context_gate" not in n}
    for site in gates.sites.values():
        for name in site.owns:
            module = model.get_submodule(name)
            for n, p in module.named_parameters(recurse=isinstance(module, nn.MultiheadAttention)):
                if "context_gate" not in n:
                    found[p].append(site.name)
    return found


@every_model
def test_gates_sit_where_they_should_and_every_parameter_has_its_site(name):
    model, x, expected = make(name)
    names = {
        p: [n for n, q in model.named_parameters(remove_duplicate=False) if q is p]
        for p in model.parameters()
    }
    kind, signature, keys = type(model), inspect.signature(model.forward), set(model.state_dict())
    gates = attach(name, model, x, contexts=2, density=0.5)
    gated = {s.name: ("<" if s.in_front else "") + s.place for s in gates.sites.values() if s.gated}
    if expected is not None:
        assert gated == expected
    for parameter, sites in owners(model, gates).items():
        # more than one only if it is tied
        assert len(sites) == len(names[parameter]), names[parameter]
    assert type(model) is kind
    assert inspect.signature(model.forward) == signature
    assert keys < set(model.state_dict())
    heads = [s for s in gates.sites.values() if s.head]
    assert heads
    assert not any(s.gated for s in heads)
    assert all(
        f"{s.name} " in str(gates) and ", ".join(s.owns) in str(gates) for s in gates.sites.values()
    )


@every_model
def test_forward_and_backward_run_and_reach_every_gate(name):
    model, x, _ = make(name)
    gates = attach(name, model, x, contexts=2, density=1.0)
    gates.switch(1)
    call(model, x).square().sum().backward()
    for gate in gates.gates.values():
        assert gate.fired
        assert gate.weight.grad[0].eq(0).all()
        assert gate.weight.grad[1].isfinite().all()
    # a dead ReLU may hide one
    assert (
        sum(gate.weight.grad[1].any().item() for gate in gates.gates.values())
        >= len(gates.gates) - 1
    )
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@every_model
@pytest.mark.parametrize("training", [True, False])
def test_off_is_the_base_model_bit_for_bit_and_detach_gives_it_back(name, training):
    model, x, _ = make(name)
    model.train(training)
    plain = copy.deepcopy(model)
    gates = attach(name, model, x, contexts=2, density=0.3)

    def out(one):
        torch.manual_seed(1)
        return call(one, x)

    gates.off()
    expected = out(plain)
    assert torch.equal(out(model), expected)
    gates.on()
    if not training:
        assert not torch.equal(out(model), expected)
    gates.detach()
    assert list(model.state_dict()) == list(plain.state_dict())
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), plain.parameters(), strict=True)
    )
    plain.load_state_dict(model.state_dict())  # statistics have moved while the gates acted
    assert torch.equal(out(model), out(plain))
    hooks = [
        h
        for m in model.modules()
        for h in (m._forward_hooks, m._forward_pre_hooks, m._forward_pre_hooks_with_kwargs)
    ]
    assert [len(h) for h in hooks] == [
        len(h)
        for m in plain.modules()
        for h in (m._forward_hooks, m._forward_pre_hooks, m._forward_pre_hooks_with_kwargs)
    ]


@every_model
def test_a_closed_unit_gets_no_gradient(name):
    """A closed gate keeps its context out of the unit: nothing that only this unit uses is moved."""
    model, x, _ = make(name)
    gates = attach(name, model, x, contexts=1, density=0.5)
    call(model.eval(), x).square().sum().backward()
    tied_names = {p for p, sites in owners(model, gates).items() if len(sites) > 1}
    checked = 0
    for site, gate in gates.gates.items():
        shut = gate.weight[0] <= 0
        # Such norms let a unit speak through the scale of the others, even if its own gate is
        # closed.
        mixed = any(
            isinstance(model.get_submodule(o), nn.LayerNorm | nn.GroupNorm)
            for o in gates.sites[site].owns
        )
        assert 0 < shut.sum() < len(shut)
        for owned in gates.sites[site].owns:
            module = model.get_submodule(owned)
            if isinstance(module, nn.MultiheadAttention):
                module = module.out_proj
            weight = getattr(module, "weight", None)
            if (
                not (is_layer(module) or is_norm(module))
                or weight is None
                or weight in tied_names
                or weight.grad is None
            ):
                continue
            if is_layer(module) and mixed:
                continue
            per_unit, axis = (
                weight.grad,
                1 if isinstance(module, nn.Embedding) or type(module).__name__ == "Conv1D" else 0,
            )
            if isinstance(module, _ConvTransposeNd):
                # (groups, inputs / groups, units / groups, ...)
                blocks = weight.grad.unflatten(0, (module.groups, -1))
                per_unit, axis = blocks.transpose(1, 2).flatten(0, 1), 0
            assert per_unit.index_select(axis, shut.nonzero()[:, 0]).eq(0).all(), owned
            checked += 1
    assert checked


# The gated forward pass by hand.


def gains(gates):
    return {
        name: torch.tanh(torch.clamp(gate.weight[0], min=0)).detach()
        for name, gate in gates.gates.items()
    }


def wide(gain):
    return gain[:, None, None]


def test_by_hand_a_lenet_with_sigmoids_in_functions():
    model, x, _ = make("lenet, sigmoid")
    g = gains(gates := attach("lenet, sigmoid", model.eval(), x, density=0.5))
    y = model(x)
    gates.detach()
    h = F.max_pool2d(wide(g["c1"]) * torch.sigmoid(model.c1(x)), 2)
    h = F.max_pool2d(wide(g["c2"]) * torch.sigmoid(model.c2(h)), 2).flatten(1)
    torch.testing.assert_close(y, model.f2(g["f1"] * torch.sigmoid(model.f1(h))))


def test_by_hand_a_residual_network():
    model, x, _ = make("resnet")
    g = gains(gates := attach("resnet", model.eval(), x, density=0.5))
    y = model(x)
    gates.detach()
    h = wide(g["0"]) * F.relu(model[1](model[0](x)))
    for n in (3, 4):
        block = model[n]
        r = wide(g[f"{n}.conv1"]) * F.relu(block.bn1(block.conv1(h)))
        r = wide(g[f"{n}.conv2"]) * block.bn2(block.conv2(r))
        h = F.relu(
            r
            + (
                h
                if block.downsample is None
                else wide(g[f"{n}.downsample.0"]) * block.downsample(h)
            )
        )
    torch.testing.assert_close(y, model[7](h.mean((2, 3))))


def test_by_hand_a_pre_activation_network():
    model, x, _ = make("pre-activation")
    g = gains(gates := attach("pre-activation", model.eval(), x, density=0.5))
    y = model(x)
    gates.detach()
    h = wide(g["0"]) * F.relu(model[1](model[0](x)))
    for n in (3, 4):
        block = model[n]
        r = wide(g[f"{n}.conv1"]) * F.relu(block.bn2(block.conv1(F.relu(block.bn1(h)))))
        h = h + wide(g[f"{n}.conv2"]) * block.conv2(r)
    torch.testing.assert_close(y, model[7](h.mean((2, 3))))


def test_by_hand_a_transformer_encoder():
    model, x, _ = make("encoder")
    g = gains(gates := attach("encoder", model.eval(), x, density=0.5))
    y = model(x)
    gates.detach()
    h = g["0"] * model[0](x)
    for n, layer in enumerate(model[1].layers):
        name = f"1.layers.{n}."
        h = layer.norm1(h + g[name + "self_attn"] * layer.self_attn(h, h, h, need_weights=False)[0])
        h = layer.norm2(
            h + g[name + "linear2"] * layer.linear2(g[name + "linear1"] * F.gelu(layer.linear1(h)))
        )
    torch.testing.assert_close(y, model[3](h.flatten(1)))


@pytest.mark.parametrize("given", [True, False])
def test_by_hand_a_residual_connection_from_the_input_and_a_constant(given):
    x = torch.randn(4, 5)
    layers = {
        "a": nn.Linear(5, 6, bias=False),
        "act1": nn.Sigmoid(),
        "b": nn.Linear(6, 5),
        "norm": nn.LayerNorm(5),
    }
    layers |= {"act2": nn.ReLU(), "out": nn.Linear(5, 3)}
    model = Net(lambda s, x: s.out(s.act2(s.norm(x + s.b(s.act1(s.a(x) + s.shift))))), **layers)
    model.shift = nn.Parameter(torch.randn(6))
    gates = gateon.attach(model, density=0.5, example=x if given else None)
    g, y = gains(gates), model(x)
    gates.detach()
    r = g["b"] * model.b(g["a"] * torch.sigmoid(model.a(x) + model.shift))
    torch.testing.assert_close(y, model.out(F.relu(model.norm(x + r))))


def test_by_hand_the_parts_of_bert():
    model, x, _ = make("bert")
    gates = attach("bert", model.eval(), x, density=0.5)
    g, plain = gains(gates), copy.deepcopy(model)
    gateon.gates_of(plain).detach()
    seen = {}
    for name in ("bert.embeddings", "bert.encoder.layer.0.intermediate", "bert.pooler"):
        model.get_submodule(name).register_forward_hook(
            lambda m, a, k, y, n=name: seen.update({n: (a, k, y)}), with_kwargs=True
        )
    call(model, x)

    def base(name):
        args, kwargs, _ = seen[name]
        return plain.get_submodule(name)(*args, **kwargs)

    expected = g["bert.embeddings.word_embeddings"] * base("bert.embeddings")
    torch.testing.assert_close(seen["bert.embeddings"][2], expected)
    inner = "bert.encoder.layer.0.intermediate"
    torch.testing.assert_close(seen[inner][2], g[inner + ".dense"] * base(inner))
    torch.testing.assert_close(seen["bert.pooler"][2], g["bert.pooler.dense"] * base("bert.pooler"))
    assert gates.sites["bert.embeddings.word_embeddings"].owns == tuple(
        f"bert.embeddings.{n}"
        for n in ("word_embeddings", "LayerNorm", "token_type_embeddings", "position_embeddings")
    )


@pytest.mark.parametrize(
    ("name", "within", "places"),
    [
        ("gpt2", "transformer.h.0.", {"mlp.c_fc": "mlp.act", "attn.c_attn": "attn.c_attn"}),
        (
            "llama",
            "model.layers.1.mlp.",
            {"gate_proj": "<down_proj", "down_proj": "down_proj"},
        ),
        ("roberta", "roberta.embeddings.", {"word_embeddings": "LayerNorm"}),
        ("roberta", "classifier.", {"dense": "<out_proj"}),
        ("electra", "classifier.", {"dense": "activation"}),
        ("distilbert", "distilbert.transformer.layer.0.ffn.", {"lin1": "activation"}),
        ("vit", "vit.embeddings.patch_embeddings.", {"projection": "projection"}),
        ("t5", "encoder.block.0.layer.1.DenseReluDense.", {"wi": "act", "wo": "wo"}),
    ],
)
def test_places_in_models_of_transformers(name, within, places):
    model, x, _ = make(name)
    gates = attach(name, model, x)
    for site, place in places.items():
        found = gates.sites[within + site]
        assert found.place == within + place.removeprefix("<")
        assert found.in_front == place.startswith("<")
    heads = [s.name for s in gates.sites.values() if s.head]
    assert heads == {"gpt2": ["lm_head"], "llama": ["lm_head"], "t5": ["lm_head"]}.get(name, heads)
    assert len(heads) == 1


def test_a_layer_whose_input_is_given_by_name_is_gated_too():
    model = Net(
        lambda s, x: s.out(input=torch.sigmoid(s.fc(x))), fc=nn.Linear(5, 6), out=nn.Linear(6, 3)
    )
    gates, x = gateon.attach(model, density=0.5), torch.randn(4, 5)
    expected = F.linear(
        gates.gain()["fc"] * torch.sigmoid(F.linear(x, model.fc.weight, model.fc.bias)),
        model.out.weight,
        model.out.bias,
    )
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("name", ["lenet, sigmoid", "resnet", "encoder", "embeddings", "bert"])
def test_before_norm_works_wherever_gates_can_sit(name):
    model, x, _ = make(name)
    gates = attach(name, model, x, contexts=2, density=0.5, before_norm=True)
    gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates)
    call(model, x).square().sum().backward()
    assert all(gate.weight.grad is not None for gate in gates.gates.values())
    assert all(tap.tap is None or tap.tap.grad is not None for tap in gates.taps.values())


def test_before_norm_multiplies_what_a_convolution_makes_before_a_function():
    model, x, _ = make("lenet, sigmoid")
    gates = gateon.attach(model.eval(), density=0.5, before_norm=True)
    g, y = gains(gates), model(x)
    gates.detach()
    h = F.max_pool2d(torch.sigmoid(wide(g["c1"]) * model.c1(x)), 2)
    h = F.max_pool2d(torch.sigmoid(wide(g["c2"]) * model.c2(h)), 2).flatten(1)
    torch.testing.assert_close(y, model.f2(torch.sigmoid(g["f1"] * model.f1(h))))
