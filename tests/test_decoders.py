"""Decoders like Llama, Qwen, Mistral, Gemma, Phi-3 and GPT-2: their units are found by structure, narrowed and folded."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
from gate_models import Net
from gateon.subnetwork.compact import compact
from rounding import assert_same

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40, "n_inner": 24}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
HEADS = {"head_dim": 8}

# What is built, and the layers of a block that make its feed-forward units.
PAIR, FUSED = ("mlp.gate_proj", "mlp.up_proj"), ("mlp.gate_up_proj",)
DECODERS = {
    "llama": ("Llama", SIZES, PAIR),
    "llama, tied": ("Llama", SIZES | {"tie_word_embeddings": True}, PAIR),
    "qwen2": ("Qwen2", SIZES, PAIR),
    "qwen3": ("Qwen3", SIZES | HEADS, PAIR),
    "mistral": ("Mistral", SIZES, PAIR),
    "gemma": ("Gemma", SIZES | HEADS, PAIR),
    "gemma2": ("Gemma2", SIZES | HEADS, PAIR),
    "phi3": ("Phi3", SIZES, FUSED),
    "gpt2": ("GPT2", GPT2, ("mlp.c_fc",)),
}
every_decoder = pytest.mark.parametrize("name", DECODERS)


def decoder(name):
    kind, sizes, made_by = DECODERS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    return getattr(transformers, kind + model)(config).eval(), made_by


def ids(length=6):
    return torch.randint(3, 40, (3, length), generator=torch.Generator().manual_seed(0))


def feed_forward(gates):
    """The sites that can be narrowed, which are those of the feed-forward part."""
    return [site for site in gates.sites.values() if site.gated and site.narrows]


def size(model, sites):
    layers = [model.get_submodule(n) for site in sites for n in (*site.owns, *site.readers)]
    return sum(p.numel() for layer in layers for p in layer.parameters(recurse=False))


@every_decoder
def test_units_that_are_multiplied_are_one_site_of_which_all_is_narrowed_and_folded(name):
    model, made_by = decoder(name)
    gates = gateon.attach(model.double(), contexts=2, density=0.5)
    sites = feed_forward(gates)
    assert [(s.units, len(s.owns), len(s.readers)) for s in sites] == [(24, len(made_by), 1)] * 2
    assert all(
        owner.endswith(layer) for s in sites for owner, layer in zip(s.owns, made_by, strict=True)
    )
    for k in range(2):
        gates.switch(k)
        expected = model(ids()).logits
        small, folded = compact(model, k), compact(model, k, fold=True)
        # their norms compute in float32
        torch.testing.assert_close(small(ids()).logits, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(folded(ids()).logits, expected, rtol=0, atol=1e-6)
        assert 0.45 < size(small, sites) / size(model, sites) < 0.55
        assert gateon.gates_of(folded) is None


class Block(nn.Module):
    """The feed-forward part of a decoder, with its norm and residual connection."""

    def __init__(self, *, fused):
        super().__init__()
        self.norm, self.down, self.fused = nn.RMSNorm(6), nn.Linear(10, 6), fused
        if fused:
            self.both = nn.Linear(6, 20)
        else:
            self.gate, self.up = nn.Linear(6, 10), nn.Linear(6, 10, bias=False)

    def forward(self, x):
        h = self.norm(x)
        gate, up = self.both(h).chunk(2, dim=-1) if self.fused else (self.gate(h), self.up(h))
        return x + self.down(F.silu(gate) * up)


def language_model(fused):
    torch.manual_seed(0)
    head = nn.Linear(6, 9)
    return nn.Sequential(nn.Embedding(9, 6), Block(fused=fused), nn.RMSNorm(6), head).double()


both_kinds = pytest.mark.parametrize("fused", [False, True])


@pytest.mark.numeric
@both_kinds
def test_by_hand_a_gate_multiplies_the_product(fused):
    model = language_model(fused)
    x = torch.randint(0, 9, (4, 5))
    gates = gateon.attach(model, density=0.5)
    (site,) = feed_forward(gates)
    g, words, back = (gates.gain()[name] for name in (site.name, "0", "1.down"))
    y = model(x)
    gates.detach()
    block, h = model[1], words * model[0](x)
    read = block.norm(h)
    gate, up = block.both(read).chunk(2, -1) if fused else (block.gate(read), block.up(read))
    h = h + back * block.down(g * F.silu(gate) * up)
    assert_same(y, model[3](model[2](h)))


@pytest.mark.numeric
@both_kinds
def test_relevance_is_that_of_the_product_and_its_availability_holds_all_that_makes_it(fused):
    model = language_model(fused)
    x, y = torch.randint(0, 9, (4, 5)), torch.randint(0, 9, (4, 5))
    gates = gateon.attach(model, contexts=2, density=1.0)
    (site,) = feed_forward(gates)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    handle = gateon.obstruct(optimizer, gates, rate=0.3, epsilon=0.5)
    seen = {}

    def remember(module, args):
        args[0].retain_grad()
        seen["h"] = args[0]

    hook = model[1].down.register_forward_pre_hook(remember)  # behind the gate
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    hook.remove()
    mu = (seen["h"].grad * seen["h"]).sum(1).square().sum(0).detach()
    expected = (1 - 0.3 * (mu / mu.mean() - 0.5)).clamp(0, 1)
    optimizer.step()
    optimizer.zero_grad()
    gates.switch(1)
    A = handle.availability[site.name].clone()
    assert_same(A, expected)
    assert ((A > 0) & (A < 1)).any()
    makers = [model.get_submodule(name) for name in site.owns]
    parameters = [p for m in makers for n, p in m.named_parameters() if "context" not in n]
    before = [p.detach().clone() for p in parameters]
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    optimizer.step()
    for p, old in zip(parameters, before, strict=True):
        each = A.repeat(2) if fused else A
        step = -0.5 * p.grad * each.view(-1, *[1] * (p.dim() - 1))
        assert_same(p.detach() - old, step)


@pytest.mark.parametrize("view", ["unit", "parameter"])
def test_a_decoder_learns_in_its_sub_network_what_it_learns_at_full_width(view):
    results = []
    for compactly in (False, True):
        model, _ = decoder("llama")
        model = model.double()
        gates = gateon.attach(model, contexts=2, density=0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = gateon.obstruct(optimizer, gates, per=view, rate=0.1, epsilon=0.5)
        for context in (0, 1):
            gates.switch(context)
            trained, stepped = model, optimizer
            if compactly and context == 1:
                trained = compact(model, 1)
                stepped = torch.optim.SGD(trained.parameters(), lr=0.1)
                trained.obstruction.follow(stepped)
            for _ in range(3):
                trained(ids(), labels=ids()).loss.backward()
                stepped.step()
                stepped.zero_grad()
        if compactly:
            trained.write_back()
        results.append((copy.deepcopy(model.state_dict()), handle.state_dict()))
    (whole, its), (part, theirs) = results
    # float32 norms round differently where sums are taken in another order
    for name, value in whole.items():
        torch.testing.assert_close(part[name], value, rtol=0, atol=1e-6)
    for name, value in its.items():
        torch.testing.assert_close(theirs[name], value, rtol=0, atol=1e-5)


def product(forward, **layers):
    model = Net(forward, **copy.deepcopy(layers), out=nn.Linear(6, 2))
    return {s.name: (s.place, s.in_front, s.owns) for s in gateon.attach(model).sites.values()}


def test_a_product_that_something_else_reads_too_is_gated_factor_by_factor():
    layers = {"a": nn.Linear(4, 6), "b": nn.Linear(4, 6)}
    apart = {"a": ("a", False, ("a",)), "b": ("b", False, ("b",))}
    joint = {"a": ("out", True, ("a", "b"))}
    head = {"out": ("out", False, ("out",))}
    assert product(lambda s, x: s.out(s.a(x) * s.b(x)), **layers) == joint | head
    assert product(lambda s, x: s.out(s.a(x) * s.b(x) + x.sum()), **layers) == apart | head
    two = layers | {"more": nn.Linear(6, 2)}
    found = product(lambda s, x: s.out(h := s.a(x) * s.b(x)) + s.more(h), **two)
    assert {n: found[n] for n in ("a", "b")} == apart, "two readers, and nowhere to put one gate"
    found = product(lambda s, x: s.out((h := s.a(x)) * s.b(x) + h), **layers)
    assert {n: found[n][2] for n in ("a", "b")} == {"a": ("a",), "b": ("b",)}
    wider = layers | {"b": nn.Linear(4, 1)}
    found = product(lambda s, x: s.out(s.a(x) * s.b(x)), **wider)
    assert found["a"] == apart["a"], "one unit that scales all others is not one of theirs"
    found = product(lambda s, x: s.out(s.a(x) * (h := s.b(x))) + s.more(h), **two)
    assert {n: found[n] for n in ("a", "b")} == apart, "a factor that is read elsewhere is not cut"


@pytest.mark.parametrize(
    "use",
    [
        lambda s, gate, up: s.out(F.silu(gate) * up + gate),
        lambda s, gate, up: s.out(F.silu(gate) * s.shift),
        lambda s, gate, up: s.out(F.silu(gate) * s.act(s.more(up))),
        lambda s, gate, up: s.out(F.silu(gate) * up.flip(-1)),
    ],
)
def test_halves_that_are_used_otherwise_are_no_products(use):
    def forward(s, x):
        return use(s, *s.a(x).chunk(2, -1))

    layers = {"a": nn.Linear(4, 12), "more": nn.Linear(6, 6), "act": nn.Tanh()}
    model = Net(forward, **layers, out=nn.Linear(6, 2))
    model.shift = nn.Parameter(torch.ones(6))
    site = gateon.attach(model, example=torch.ones(3, 4)).sites["a"]
    assert (site.units, site.place, site.narrows) == (12, "a", False)


def test_a_half_that_another_layer_multiplies_is_no_product_of_halves():
    def forward(s, x):
        gate, _ = s.a(x).chunk(2, -1)
        return s.out(F.silu(gate) * s.b(x))

    model = Net(forward, a=nn.Linear(4, 12), b=nn.Linear(4, 6), out=nn.Linear(6, 2))
    site = gateon.attach(model, example=torch.ones(3, 4)).sites["a"]
    assert (site.units, site.place, site.narrows) == (12, "a", False)


def test_tied_embeddings_have_one_availability_and_keep_their_width():
    model, _ = decoder("llama, tied")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    gates = gateon.attach(model, contexts=2, density=0.5)
    words, head = gates.sites["model.embed_tokens"], gates.sites["lm_head"]
    assert words.gated and not words.narrows
    assert head.head and not head.gated
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, head=True, frozen=["lm_head.weight"])
    before = model.lm_head.weight.detach().clone()
    model(ids(), labels=ids()).loss.backward()
    optimizer.step()
    assert torch.equal(model.lm_head.weight, before), "frozen under either of its names"
    assert handle.availability["model.embed_tokens"].shape == (16,)
    folded = compact(model.eval(), 1, fold=True)
    assert folded.lm_head.weight is not folded.model.embed_tokens.weight
    assert not folded.config.tie_word_embeddings, "loading must not tie them again"


def test_experts_are_said_to_have_no_gates():
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**SIZES, num_local_experts=4)
    model = transformers.MixtralForCausalLM(config).eval()
    with pytest.warns(UserWarning, match="no gate.*experts' .*, experts, not gated") as caught:
        gates = gateon.attach(model, contexts=2, density=0.5)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert "experts, not gated" in str(gates)
    handle = gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates)
    assert "model.layers.0.mlp.experts.gate_up_proj" in handle.availability


def in_chunks(model, x):
    """As TRL computes its loss by default: the output layer's weight is read, and it is not called."""
    hidden = model.model(x).last_hidden_state
    return F.cross_entropy((hidden @ model.lm_head.weight.T).flatten(0, 1), x.flatten())


class Chunked(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.lm_head = model.model, model.lm_head

    def forward(self, x):
        return in_chunks(self, x) if self.training else self.lm_head(self.model(x)[0])


@pytest.mark.parametrize("early", [True, False])
def test_an_output_layer_that_is_never_called_is_no_error_unless_it_is_to_be_observed(early):
    def build():
        model = Chunked(decoder("llama")[0]).eval()
        return model.train(), gateon.attach(model, density=0.5, example=ids())

    model, gates = build()
    gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates)
    model(ids()).backward()
    model, gates = build()
    gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates, head=True, per="parameter")
    model(ids()).backward()
    model, gates = build()
    if not early:
        model(ids()).backward()
    gateon.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates, head=True)
    with pytest.raises(RuntimeError, match=r"relevance of site 'lm_head'.*loss_type=\"nll\""):
        model(ids())
