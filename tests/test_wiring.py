import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
from gateon.anatomy.examples import example_line
from gateon.anatomy.wiring import trace


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.declared_first = nn.Linear(4, 3)
        self.a, self.b, self.relu = nn.Linear(5, 4), nn.Linear(5, 4), nn.ReLU()

    def forward(self, x):
        x = x.view(x.size(0), -1)
        return self.declared_first(self.relu(self.a(x)) + F.relu(self.b(x)))


class Decides(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 5), nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.b(self.a(x))) if x.sum() > 0 else self.a(x)


def modules_of(wiring):
    return [c.name for c in wiring.calls if c.module is not None]


def shape_of(wiring):
    return [
        (c.name, [wiring.calls[i].name for i in c.inputs])
        for c in wiring.calls
        if c.name != "input"
    ]


def test_order_is_that_of_use_not_of_declaration_and_both_ways_of_following_agree():
    model, x = Branches(), torch.ones(2, 5)
    symbolic, run = trace(model), trace(model, x)
    assert [c.name for c in symbolic.calls] == [
        "input",
        "flatten",
        "a",
        "relu",
        "b",
        "relu",
        "add",
        "declared_first",
    ]
    assert [c.module is not None for c in symbolic.calls if c.name == "relu"] == [True, False]
    assert [n for n, _ in shape_of(run)] == [n for n, _ in shape_of(symbolic)]
    assert shape_of(run)[1:][-1] == shape_of(symbolic)[1:][-1] == ("declared_first", ["add"])
    for wiring in (symbolic, run):
        names = [c.name for c in wiring.calls]
        assert [names[i] for i in wiring.outputs] == ["declared_first"]
        total = names.index("add")
        assert sorted(names[i] for i in wiring.calls[total].inputs) == ["relu", "relu"]
        assert wiring.users(total) == [names.index("declared_first")]
        assert wiring.times("a") == 1
        assert wiring.times("relu") == 1  # the function of that name is no call of the module


@pytest.mark.parametrize(
    "example", [torch.ones(2, 5), (torch.ones(2, 5),), {"x": torch.ones(2, 5)}]
)
def test_an_example_is_a_tensor_a_tuple_or_a_mapping(example):
    assert modules_of(trace(Decides(), example)) == ["a", "b", "drop"]


def test_following_a_run_changes_nothing():
    model = Decides()
    model.b.eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes, generator = [m.training for m in model.modules()], torch.get_rng_state()
    trace(model, torch.randn(3, 5).abs())
    with pytest.raises(RuntimeError):
        trace(model, torch.ones(3, 4))
    torch.set_rng_state(generator)
    trace(model, torch.ones(3, 5))
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert [m.training for m in model.modules()] == modes
    assert not any(
        m._forward_hooks or m._forward_pre_hooks or m._forward_hooks_with_kwargs
        for m in model.modules()
    )
    assert all(p.grad is None for p in model.parameters())


def test_without_data_a_decision_on_values_asks_for_an_example():
    with pytest.raises(
        ValueError,
        match=r"Decides cannot be traced without data \(.+\): pass example=",
    ) as caught:
        trace(Decides())
    assert "\n" not in str(caught.value)


def test_an_example_of_the_models_own_is_used_and_a_bad_one_is_as_good_as_none():
    model = Decides()
    model.dummy_inputs = {"x": torch.ones(2, 5)}
    assert modules_of(trace(model)) == ["a", "b", "drop"]
    model.dummy_inputs = {"ids": torch.ones(2, 5)}
    with pytest.raises(ValueError, match="pass example="):
        trace(model)


def test_attention_is_one_call():
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)

        def forward(self, x):
            return self.attention(x, x, x)[0]

    assert [
        c.name for c in trace(Attends(), torch.ones(2, 3, 4)).calls if c.module is not None
    ] == ["attention"]


def test_the_results_that_count_as_outputs():
    class Returns(nn.Module):
        def __init__(self, pick):
            super().__init__()
            self.a, self.b, self.pick = nn.Linear(5, 4), nn.Linear(5, 3), pick

        def forward(self, x):
            return self.pick(self.a(x), self.b(x))

    def outputs(pick, example):
        wiring = trace(Returns(pick), example)
        return sorted(wiring.calls[i].name for i in wiring.outputs)

    for example in (None, torch.ones(2, 5)):
        assert outputs(lambda a, b: b, example) == ["b"]
        assert outputs(lambda a, b: (a, [b]), example) == ["a", "b"]
        assert outputs(lambda a, b: {"left": a, "right": {"right": b}}, example) == ["a", "b"]
    assert outputs(lambda a, b: {"logits": b, "hidden_states": (a,)}, torch.ones(2, 5)) == ["b"]


@pytest.mark.parametrize(
    ("reshaping", "name"),
    [
        (lambda x: x.flatten(1), "flatten"),
        (lambda x: torch.flatten(x, start_dim=1), "flatten"),
        (lambda x: x.view(x.size(0), -1), "flatten"),
        (lambda x: x.view((x.shape[0], -1)), "flatten"),
        (lambda x: torch.reshape(x, (x.shape[0], -1)), "flatten"),
        (lambda x: x.flatten(2), "reshape"),
        (lambda x: torch.flatten(x), "reshape"),
        (lambda x: x.view(x.size(0), 4, -1), "reshape"),
        (lambda x: x.reshape(-1), "reshape"),
    ],
)
def test_only_what_leaves_one_dimension_and_the_batch_is_a_flattening(reshaping, name):
    class Reshapes(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(2, 4, 1)

        def forward(self, x):
            return reshaping(self.convolution(x))

    for example in (None, torch.ones(2, 2, 3, 3)):
        assert trace(Reshapes(), example).calls[-1].name == name


def test_a_look_at_values_that_leads_nowhere_does_not_count_as_a_reader():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 4), nn.Linear(4, 3)

        def forward(self, x):
            h = self.a(x)
            if torch.isnan(h).any():
                raise RuntimeError("not a number")
            return self.b(torch.sigmoid(h))

    wiring = trace(Looks(), torch.ones(1, 5))
    first = [c.name for c in wiring.calls].index("a")
    assert [wiring.calls[i].name for i in wiring.users(first)] == ["sigmoid"]


def test_a_model_that_draws_numbers_does_not_move_the_generator():
    class Draws(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 4)

        def forward(self, x):
            return self.a(x + torch.randn_like(x))

    model = Draws()
    state = torch.get_rng_state()
    trace(model, torch.ones(1, 5))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("cut", "name"),
    [
        (lambda x: x.chunk(2, dim=-1), "halves"),
        (lambda x: torch.chunk(x, 2, -1), "halves"),
        (lambda x: x.tensor_split(2, dim=-1), "halves"),
        (lambda x: x.split([2, 2], dim=-1), "halves"),
        (lambda x: x.chunk(2), "chunk"),
        (lambda x: x.chunk(4, dim=-1)[:2], "chunk"),
        (lambda x: x.split([1, 3], dim=-1), "split"),
    ],
)
def test_only_a_cut_of_the_last_dimension_into_two_equal_parts_makes_halves(cut, name):
    class Cuts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 4)

        def forward(self, x):
            one, other = cut(self.a(x))
            return one, other

    assert name in [call.name for call in trace(Cuts(), torch.ones(2, 5)).calls]


def test_halves_of_a_known_size_are_seen_where_the_model_is_run():
    class Cuts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 4)

        def forward(self, x):
            return self.a(x).split(2, dim=1)

    assert trace(Cuts(), torch.ones(2, 5)).calls[-1].name == "halves"
    assert trace(Cuts()).calls[-1].name == "split", "symbolically the last dimension is not known"


class WithGraph(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Embedding(9, 4)

    def forward(self, nodes, edge_index, weights, scale=1.0):
        return self.a(nodes) if nodes.sum() > 0 else weights


class Images(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first, self.norm = first, nn.Identity()

    def forward(self, x):
        return self.first(x) if x.sum() >= 0 else x


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (Decides(), "torch.zeros(2, 5)"),
        (Images(nn.Conv2d(3, 4, 3)), "torch.zeros(2, 3, 32, 32)"),
        (Images(nn.LSTM(6, 4)), "torch.zeros(2, 8, 6)"),
        (Images(nn.ReLU()), "x"),
        (
            WithGraph(),
            "(torch.ones(2, 8, dtype=torch.long), torch.tensor([[0, 1], [1, 0]]), weights)",
        ),
    ],
)
def test_an_example_is_asked_for_with_the_line_to_write(model, example):
    with pytest.raises(ValueError, match="pass example=") as caught:
        trace(model)
    assert f"as in gateon.attach(model, example={example}), or name" in str(caught.value)


@pytest.mark.parametrize("kind", ["vit", "t5"])
def test_the_line_works_for_models_of_transformers(kind):
    transformers = pytest.importorskip("transformers")
    if kind == "vit":
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=24,
            image_size=8,
            patch_size=4,
        )
        model = transformers.ViTForImageClassification(config)
    else:
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
        model = transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=40, **sizes, decoder_start_token_id=0)
        )
    gates = eval(example_line(model), {"gateon": gateon, "torch": torch, "model": model})
    assert gates.gates


def test_lines_that_are_guessed_from_layers_work_too():
    model = Images(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)))
    gates = eval(example_line(model), {"gateon": gateon, "torch": torch, "model": model})
    assert list(gates.gates) == ["first.0"]
