"""Gates: the base model, gains, the forward pass, copies."""

import copy
import inspect
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gateon
from gate_models import anatomy, cnn, every_model, make, mlp, run, same, train

pytestmark = pytest.mark.numeric

# Trap 2: the base model, bit for bit.


@every_model
@pytest.mark.parametrize("before_norm", [False, True])
def test_detach_gives_back_the_model_that_was(name, before_norm):
    model, x = make(name)
    plain = copy.deepcopy(model)
    before, hooks_before = anatomy(model), [len(m._forward_hooks) for m in model.modules()]
    gates = gateon.attach(model, contexts=3, density=0.5, example=x, before_norm=before_norm)
    assert anatomy(model) != before
    modes = [module.training for module in model.modules()]
    model.eval()(x)  # in training, norms behind gates would see, and keep, other statistics
    for module, mode in zip(model.modules(), modes, strict=True):
        module.training = mode
    assert gates.detach() is model
    assert anatomy(model) == before
    assert [len(m._forward_hooks) for m in model.modules()] == hooks_before
    assert same(model.state_dict(), plain.state_dict())
    for training in (True, False):
        (y, dy), (z, dz) = run(model.train(training), x), run(plain.train(training), x)
        assert torch.equal(y, z)
        assert same(dy, dz)
    gateon.attach(model, example=x)


@every_model
def test_a_detached_model_trains_like_a_plain_one(name):
    model, x = make(name)
    plain = copy.deepcopy(model)
    gates = gateon.attach(model, contexts=2, example=x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gateon.obstruct(optimizer, gates, per="unit")
    gates.detach()
    assert not gates.listeners
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    for one in (model, plain):
        torch.manual_seed(5)
        train(one, x, momentum=0.9, weight_decay=0.1)
    assert same(model.state_dict(), plain.state_dict())


@every_model
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("how", ["off", "open"])
def test_gates_that_are_off_or_open_are_the_base_model_bit_for_bit(name, training, how):
    model, x = make(name)
    plain = copy.deepcopy(model).train(training)
    gates = gateon.attach(
        model.train(training),
        contexts=2,
        density=0.3,
        example=x,
        start="open" if how == "open" else "random",
    )
    if how == "off":
        gates.off()
    gates.switch(1)
    (y, dy), (z, dz) = run(model, x), run(plain, x)
    assert torch.equal(y, z)
    assert same(dy, dz)
    with torch.no_grad():
        torch.manual_seed(4)
        y = model(x)
        torch.manual_seed(4)
        # torch's fused path for transformers rounds differently
        torch.testing.assert_close(y, plain(x))
    if how == "off":
        gates.on()
        assert not torch.equal(run(model, x)[0], z)


def test_an_open_start_is_exactly_one_in_double_precision_too():
    gates = gateon.attach(mlp().double(), start="open")
    assert all((gain == 1).all() and gain.dtype == torch.float64 for gain in gates.gain().values())


@every_model
def test_the_model_keeps_class_signature_and_keys(name):
    model, x = make(name)
    kind, signature, keys = type(model), inspect.signature(model.forward), dict(model.state_dict())
    parameters = dict(model.named_parameters())
    gateon.attach(model, contexts=2, example=x)
    assert type(model) is kind
    assert inspect.signature(model.forward) == signature
    assert all(torch.equal(model.state_dict()[k], v) for k, v in keys.items())
    assert all(dict(model.named_parameters())[k] is p for k, p in parameters.items())
    assert all("context_gate" in k for k in set(model.state_dict()) - set(keys))


# Gains.


@given(st.integers(0, 1000), st.sampled_from([1, 2, 3]), st.floats(0.01, 1), st.floats(0.01, 20))
@settings(max_examples=30, deadline=None)
def test_gains_are_in_the_unit_interval_and_the_share_of_open_gates_is_exact(
    seed, power, density, width
):
    gates = gateon.attach(mlp(), contexts=2, density=density, power=power, width=width, seed=seed)
    for k in range(2):
        for site, gain in gates.gain(k).items():
            assert ((gain >= 0) & (gain <= 1)).all()
            v = gates.gates[site].weight[k].detach()
            assert (v > 0).sum() == max(1, round(density * 16))
            assert (v.abs() <= width).all()
            torch.testing.assert_close(gain, torch.tanh(v.clamp_min(0)) ** power)


def test_density_may_differ_by_site_and_the_first_pattern_holds():
    gates = gateon.attach(mlp(), density={"2": 0.125, "*": 0.75})
    assert {site: int((gain > 0).sum()) for site, gain in gates.gain().items()} == {"0": 12, "2": 2}


def test_a_number_as_start_is_the_gain_of_open_gates():
    gates = gateon.attach(mlp(), density=0.25, start=0.9)
    for gain in gates.gain().values():
        torch.testing.assert_close(gain[gain > 0], torch.full((4,), 0.9))
        assert (gain == 0).sum() == 12


def test_width_bounds_the_random_start():
    weights = {
        w: gateon.attach(mlp(400), density=1.0, width=w).gates["0"].weight.detach()
        for w in (0.1, 1.0)
    }
    assert 0.09 < weights[0.1].max() <= 0.1
    assert 0.9 < weights[1.0].max() <= 1.0
    assert weights[1.0].min() < 0.05


def test_same_seed_same_gates_and_contexts_sites_and_seeds_differ():
    one, two, other = (gateon.attach(mlp(), contexts=3, density=0.5, seed=s) for s in (4, 4, 5))
    for k in range(3):
        assert same(one.gain(k), two.gain(k))
        assert not any(torch.equal(one.gain(k)[s], other.gain(k)[s]) for s in one.gates)
        assert not torch.equal(one.gain(k)["0"], one.gain(k)["2"])
    assert not torch.equal(one.gain(0)["0"], one.gain(1)["0"])


def test_where_gates_are_shared_every_context_starts_on_the_same_units_whenever_it_came_and_whatever_it_would_prefer():
    gates = gateon.attach(mlp(), contexts=2, density=0.5, shared="0")
    plain = gateon.attach(mlp(), contexts=3, density=0.5)
    gates.prefers = lambda site: torch.arange(float(site.units))
    gates.add_context()
    first = gates.gain(0)["0"]
    assert torch.equal(first, plain.gain(0)["0"])
    assert all(torch.equal(gates.gain(k)["0"], first) for k in (1, 2))
    assert torch.equal(gates.gain(1)["2"], plain.gain(1)["2"]) and not torch.equal(
        gates.gain(2)["2"], gates.gain(0)["2"]
    )


def test_the_global_generator_neither_decides_the_gates_nor_is_moved():
    drawn = []
    for seed in (1, 2):
        model = mlp()
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        drawn.append(gateon.attach(model, contexts=2).gain(1))
        assert torch.equal(state, torch.get_rng_state())
    assert same(*drawn)


def test_a_contexts_gates_do_not_depend_on_how_many_there_are_or_when_it_came():
    many, few = (
        gateon.attach(mlp(), contexts=5, density=0.5),
        gateon.attach(mlp(), contexts=2, density=0.5),
    )
    assert [few.add_context() for _ in range(3)] == [2, 3, 4]
    assert few.contexts == 5
    assert all(same(many.gain(k), few.gain(k)) for k in range(5))


@pytest.mark.parametrize("obstructed", [False, True])
def test_contexts_added_in_the_middle_of_training_equal_contexts_from_the_beginning(obstructed):
    def learn(contexts):
        model = gateon.context_norms(mlp(norm=nn.BatchNorm1d))
        gates = gateon.attach(model, contexts=contexts, density=0.5)
        if obstructed:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            gateon.obstruct(optimizer, gates, rate=0.1)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(7)
        for step in range(9):
            k = step // 3
            while gates.contexts <= k:
                gates.add_context()
            gates.switch(k)
            model(torch.randn(8, 5)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return model.state_dict()

    assert same(learn(1), learn(3))


def test_add_context_keeps_parameters_gradients_and_the_active_context():
    model = mlp()
    gates = gateon.attach(model, contexts=2, density=0.5)
    gates.switch(1)
    model(torch.randn(4, 5)).sum().backward()
    weight = gates.gates["0"].weight
    old, gradient = weight.detach().clone(), weight.grad.clone()
    gates.add_context()
    assert gates.gates["0"].weight is weight
    assert torch.equal(weight[:2], old)
    assert torch.equal(weight.grad[:2], gradient)
    assert weight.grad[2].eq(0).all()
    assert gates.context == 1


# The forward pass.


@pytest.mark.parametrize("power", [1, 2])
def test_the_gated_forward_pass_is_the_equation(power):
    model = mlp()
    gates = gateon.attach(model, contexts=2, density=0.5, power=power)
    x = torch.randn(4, 5)
    for k in range(2):
        gates.switch(k)
        g = {
            s: torch.tanh(torch.clamp(gate.weight[k], min=0)) ** power
            for s, gate in gates.gates.items()
        }
        h = g["0"] * torch.relu(x @ model[0].weight.T + model[0].bias)
        h = g["2"] * torch.tanh(h @ model[2].weight.T + model[2].bias)
        torch.testing.assert_close(model(x), h @ model[4].weight.T + model[4].bias)


def test_before_norm_gates_the_layers_own_output():
    model = mlp(norm=nn.LayerNorm)
    gates = gateon.attach(model, density=0.5, before_norm=True)
    x, g = torch.randn(4, 5), gates.gain()
    h = torch.relu(model[1](g["0"] * nn.functional.linear(x, model[0].weight, model[0].bias)))
    h = torch.tanh(g["3"] * nn.functional.linear(h, model[3].weight, model[3].bias))
    torch.testing.assert_close(model(x), nn.functional.linear(h, model[5].weight, model[5].bias))


@every_model
@pytest.mark.parametrize("training", [True, False])
def test_one_context_per_sample_equals_each_sample_alone(name, training):
    model, x = make(name)
    model = gateon.context_norms(model).double()
    x = x.double() if x.is_floating_point() else x
    gates = gateon.attach(model, contexts=3, density=0.5, example=x)
    model.train(training)
    for module in model.modules():
        if isinstance(module, nn.Dropout | nn.MultiheadAttention):
            module.p = module.dropout = 0.0
        elif isinstance(
            module, gateon.ContextNorm
        ):  # in training a norm looks at the other samples, as it must
            module.eval()
            module.running_mean.copy_(torch.randn(module.running_mean.shape))
            module.running_var.copy_(torch.rand(module.running_var.shape) + 0.5)
    contexts = [2, 0, 1, 1, 0, 2]
    gates.switch(contexts)
    mixed, gradients = run(model, x)
    gate_gradients = {s: g.weight.grad.clone() for s, g in gates.gates.items()}
    model.zero_grad()
    for n, k in enumerate(contexts):
        gates.switch(k)
        alone = model(x[n : n + 1])
        torch.testing.assert_close(mixed[n : n + 1], alone.detach())
        alone.square().sum().backward()
    for n, p in model.named_parameters():
        if n in gradients:
            torch.testing.assert_close(gradients[n], p.grad)
    for s, g in gates.gates.items():
        torch.testing.assert_close(gate_gradients[s], g.weight.grad)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("padded", [None, 0, 1])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_fast_paths_of_transformers_do_not_bypass_gates(grad, padded):
    """Without gradients torch fuses a layer into one call, and with padding it hands nested tensors to the layers."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2), torch.randn(6, 4, 8)
    before, plain = anatomy(model), copy.deepcopy(model).eval()
    gates = gateon.attach(model, contexts=2, density=0.5, example=x)
    model.eval()
    mask = None if padded is None else (torch.arange(4) >= 4 - padded).expand(6, 4)
    seen = slice(0, 4 - (padded or 0))
    for k in range(2):
        gates.switch(k)
        with torch.enable_grad():
            slow = model(x, src_key_padding_mask=mask).detach()[:, seen]
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(model(x, src_key_padding_mask=mask).detach()[:, seen], slow)
            assert not torch.allclose(plain(x, src_key_padding_mask=mask)[:, seen], slow, atol=1e-2)
    gates.detach().train()
    assert anatomy(model) == before


def test_closed_gates_never_move_and_their_units_get_no_gradient():
    model = mlp()
    gates = gateon.attach(model, contexts=2, density=0.25)
    closed = {s: g.weight[0].detach() <= 0 for s, g in gates.gates.items()}
    before = {s: g.weight.detach().clone() for s, g in gates.gates.items()}
    rows = {s: model.get_submodule(s).weight.detach().clone() for s in closed}
    x = torch.randn(8, 5)
    model(x).square().sum().backward()
    for s, shut in closed.items():
        assert shut.sum() == 12
        layer = model.get_submodule(s)
        assert layer.weight.grad[shut].eq(0).all()
        assert layer.bias.grad[shut].eq(0).all()
        assert layer.weight.grad[~shut].ne(0).any()
        assert gates.gates[s].weight.grad[0, shut].eq(0).all()
        assert gates.gates[s].weight.grad[0, ~shut].ne(0).any()
        assert gates.gates[s].weight.grad[1].eq(0).all()
    train(model, x, steps=10, momentum=0.9)
    for s, shut in closed.items():
        assert torch.equal(before[s][0, shut], gates.gates[s].weight[0, shut])
        assert not torch.equal(before[s][0], gates.gates[s].weight[0])
        assert torch.equal(before[s][1], gates.gates[s].weight[1])
        assert torch.equal(rows[s][shut], model.get_submodule(s).weight[shut])


# Trap 11.


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("how", ["pattern", "availability"])
def test_predictions_of_old_contexts_are_bit_stable_once_everything_they_use_is_frozen(kind, how):
    torch.manual_seed(0)
    body = [
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 9, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
    ]
    model = gateon.context_norms(nn.Sequential(*body, nn.Linear(8, 3)))
    gates = gateon.attach(model, contexts=2, density=0.5)
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), lr=0.05, weight_decay=0.1, **options)
    handle = gateon.obstruct(optimizer, gates, rate=0.01, head=True)
    x = torch.randn(8, 3, 5, 5)

    def learn(k):
        gates.switch(k)
        model.train()
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 3, 5, 5) * (1 + k)).square().sum().backward()
            optimizer.step()

    def predict(k):
        gates.show(k)
        with torch.no_grad():
            return model.eval()(x)

    learn(0)
    learn(1)
    if how == "pattern":
        handle.remove()
        gateon.obstruct(optimizer, gates, frozen="*")
    else:
        handle.load_state_dict(
            {k: v if k == "steps" else torch.zeros_like(v) for k, v in handle.state_dict().items()}
        )
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if "context_gate" not in n}
    old, first_row = predict(0), {s: g.weight[0].detach().clone() for s, g in gates.gates.items()}
    other, statistics = predict(1), model[1].running_mean.clone()
    learn(1)
    assert torch.equal(predict(0), old)
    assert all(torch.equal(p, frozen[n]) for n, p in model.named_parameters() if n in frozen)
    assert all(torch.equal(g.weight[0], first_row[s]) for s, g in gates.gates.items())
    assert torch.equal(model[1].running_mean[0], statistics[0])
    # else nothing was learned and nothing shown
    assert not torch.equal(model[1].running_mean[1], statistics[1])
    assert not torch.equal(predict(1), other)


# Trap 6.


def test_a_gate_that_never_fires_is_named():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.head = (
                nn.MultiheadAttention(8, 2, batch_first=True),
                nn.Linear(8, 3),
            )

        def forward(self, x):
            return self.head(self.attention(x, x, x, need_weights=False)[0])

    model = Attention()
    gates = gateon.attach(model, sites={"attention.out_proj": "attention.out_proj"})
    for _ in range(2):
        with pytest.raises(
            RuntimeError,
            match=r"'attention\.out_proj' did not act in the first forward pass.*detach",
        ):
            model(torch.randn(2, 3, 8))
    gates.detach()
    model(torch.randn(2, 3, 8))


def test_a_gate_at_a_module_that_is_never_called_is_named_and_one_that_is_called_passes():
    model = mlp()
    model.unused = nn.ReLU()
    model.forward = lambda x: nn.Sequential.forward(model[:5], x)
    gateon.attach(model, sites={"1": "0", "unused": "2"})
    with pytest.raises(RuntimeError, match="'unused'"):
        model(torch.randn(2, 5))
    gateon.gates_of(model).detach()
    gateon.attach(model, sites={"1": "0"})
    model(torch.randn(2, 5))
    model(torch.randn(2, 5))


# Copies, files, precision.


def test_gates_of_finds_the_gates_and_forgets_them_with_detach():
    model = mlp()
    assert gateon.gates_of(model) is None
    gates = gateon.attach(model)
    assert gateon.gates_of(model) is gates
    gates.detach()
    assert gateon.gates_of(model) is None


def copied(model):
    return copy.deepcopy(model)


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@every_model
@pytest.mark.parametrize("duplicate", [copied, saved])
def test_a_copy_has_gates_of_its_own(name, duplicate):
    model, x = make(name)
    gates = gateon.attach(model.eval(), contexts=2, density=0.5, example=x)
    gates.switch(1)
    expected = model(x)
    other = duplicate(model)
    theirs = gateon.gates_of(other)
    assert theirs is not gates
    assert theirs.model is other
    assert torch.equal(other(x), expected)
    theirs.switch(0)
    assert theirs.context == 0
    assert gates.context == 1
    assert torch.equal(model(x), expected)
    assert not torch.equal(other(x), expected)
    assert theirs.add_context() == 2
    assert gates.contexts == 2
    theirs.detach()
    assert torch.equal(model(x), expected)


def test_a_state_with_more_contexts_goes_into_a_fresh_model():
    model = gateon.context_norms(mlp(norm=nn.BatchNorm1d))
    gates = gateon.attach(model, contexts=1, density=0.5, seed=3)
    gates.add_context()
    gates.add_context()
    gates.switch(2)
    train(model, torch.randn(8, 5))
    fresh = gateon.context_norms(mlp(norm=nn.BatchNorm1d))
    theirs = gateon.attach(fresh, contexts=1, density=0.5, seed=3)
    fresh.load_state_dict(model.state_dict())
    assert theirs.contexts == 3
    x = torch.randn(4, 5)
    for k in range(3):
        gates.switch(k)
        theirs.switch(k)
        assert torch.equal(model.eval()(x), fresh.eval()(x))
    assert gates.add_context() == theirs.add_context() == 3
    assert same(gates.gain(3), theirs.gain(3))


def test_gates_follow_a_change_of_precision_and_new_contexts_too():
    model = mlp()
    gates = gateon.attach(model, contexts=2, density=0.5)
    model.to(torch.float64)
    gates.add_context()
    gates.switch(2)
    assert model(torch.randn(2, 5).double()).dtype == torch.float64
    assert all(g.weight.dtype == torch.float64 for g in gates.gates.values())


def test_a_compiled_model_is_gated_everywhere_and_switching_does_not_compile_it_again():
    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act, self.head = (
                nn.Linear(5, 6),
                nn.Linear(6, 6),
                nn.ReLU(),
                nn.Linear(6, 3),
            )

        def forward(self, x):
            return self.head(self.act(self.b(torch.sigmoid(self.a(x)))))

    model, x = Tiny(), torch.randn(4, 5)
    gates = gateon.attach(model, contexts=3, density=0.5)
    assert {site.in_front for site in gates.sites.values()} == {True, False}
    compiled_graphs = []

    def backend(graph, inputs):
        compiled_graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for k in (0, 1, 2, 0):
        gates.switch(k)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(compiled_graphs) == 1


# What print shows.


def test_print_shows_every_site_its_units_its_place_and_what_it_owns():
    gates = gateon.attach(cnn(), contexts=2)
    lines = str(gates).splitlines()
    assert lines[0] == "2 contexts, 3 gates, switched to 0"
    assert [line.split() for line in lines[1:]] == [
        ["site", "units", "gate", "owns"],
        ["0", "6", "behind", "2", "0,", "1"],
        ["4", "8", "behind", "6", "4,", "5"],
        ["9", "10", "behind", "10", "9"],
        ["11", "3", "none", "(output)", "11"],
    ]
    assert repr(gates) == "<Gates: 2 contexts, 3 gates, switched to 0>"
    gates.switch([0, 1, 1])
    assert "switched to [0, 1, 1]" in str(gates)
    gates.switch([0, 1] * 100)
    assert len(str(gates).splitlines()[0]) < 110


def test_an_output_layer_whose_weight_alone_is_read_need_not_act():
    """As an lm_head whose loss is computed from its weight, chunk by chunk."""

    class Fused(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
            self.fused = False

        def forward(self, x):
            hidden = self.body(x).relu()
            return hidden @ self.head.weight.T if self.fused else self.head(hidden)

    for obstruct_head in (False, True):
        model = Fused()
        gates = gateon.attach(model)
        model.fused = True
        gateon.obstruct(torch.optim.SGD(model.parameters()), gates, head=obstruct_head)
        if obstruct_head:
            with pytest.raises(RuntimeError, match="relevance of site 'head' cannot be observed"):
                model(torch.ones(2, 4))
        else:
            model(torch.ones(2, 4)).sum().backward()
