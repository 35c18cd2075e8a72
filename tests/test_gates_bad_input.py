"""Gates: bad input is named, and the model stays as it was."""

import pytest
import torch
from torch import nn

import gateon
from gate_models import anatomy, mlp


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"contexts": 0}, "contexts must be a whole number of at least 1, got 0"),
        ({"contexts": -2}, "at least 1"),
        ({"contexts": 2.5}, r"at least 1, got 2\.5"),
        ({"density": 0}, r"density of site '0' must be above 0 and at most 1, got 0\.0"),
        ({"density": 1.5}, r"density of site '0' .* got 1\.5"),
        ({"density": float("nan")}, "density .* got nan"),
        ({"density": {"0": 0.5}}, "density has no value for site '2'"),
        ({"density": {"*": 0.5, "2": -1}}, None),
        (
            {"density": {"2": -1, "*": 0.5}},
            r"density of site '2' must be above 0 and at most 1, got -1\.0",
        ),
        ({"density": {"hidden": 0.5, "*": 0.5}}, "No site matches 'hidden'"),
        ({"shared": "hidden*"}, r"No site matches 'hidden\*'"),
        ({"start": "closed"}, "got 'closed'"),
        ({"start": 0.0}, r"got 0\.0"),
        ({"start": 1.0}, r"got 1\.0"),
        ({"start": -0.5}, r"got -0\.5"),
        ({"start": float("nan")}, "got nan"),
        ({"width": 0.0}, "width must be above 0"),
        ({"width": -1.0}, "width must be above 0"),
        ({"power": 0}, "power at least 1"),
        ({"sites": "fc*"}, "No layer matches 'fc\\*'.*'0'"),
        ({"sites": []}, "sites= is empty"),
        ({"sites": {}}, "names no place"),
        ({"sites": {"9": "0"}}, "No module matches '9'"),
        ({"sites": {"1": "9"}}, "No module matches '9'"),
        ({"sites": {"1": "1"}}, "Site '1' owns no layer with units"),
        ({"sites": {"*": "0"}}, "'\\*' matches 5 modules"),
        ({"sites": {"1": "0", "[1]": "2"}}, "one place twice"),
    ],
)
def test_bad_arguments_name_the_thing_and_leave_the_model_alone(arguments, message):
    model = mlp()
    before = anatomy(model)
    if message is None:
        gateon.attach(model, **arguments)
        return
    with pytest.raises(ValueError, match=message) as caught:
        gateon.attach(model, **arguments)
    assert "\n" not in str(caught.value)
    assert anatomy(model) == before
    assert gateon.gates_of(model) is None
    gateon.attach(model)


class Forks(nn.Module):
    """Takes a decision on a value."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x))) if x.sum() > 0 else self.b(self.a(x))


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
@pytest.mark.parametrize(
    ("make_model", "message"),
    [
        (
            lambda: nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)),
            "lazy layers.*run one before attach",
        ),
        (
            lambda: nn.Sequential(nn.Linear(5, 3)),
            "Sequential has no hidden layer to gate: name sites=, or pass head=True",
        ),
        (lambda: nn.Sequential(nn.ReLU()), "no hidden layer"),
        (
            lambda: nn.Sequential(nn.Linear(5, 0), nn.ReLU(), nn.Linear(0, 3)),
            "Layer '0' has no units",
        ),
        (
            Forks,
            "Forks cannot be traced without data .*pass example=.*or name the sites as a mapping",
        ),
    ],
)
def test_models_that_cannot_be_gated_say_why_and_stay_as_they_were(make_model, message):
    model = make_model()
    before = anatomy(model)
    with pytest.raises(ValueError, match=message):
        gateon.attach(model)
    assert anatomy(model) == before


def test_the_remedies_of_those_messages_work():
    assert list(gateon.attach(nn.Sequential(nn.Linear(5, 3)), head=True).gates) == ["0"]
    assert gateon.attach(Forks(), example=torch.ones(1, 5)).gates
    assert list(gateon.attach(Forks(), sites={"a": "a"}).gates) == ["a"]


def test_an_example_that_does_not_fit_leaves_the_model_alone():
    model = Forks()
    before = anatomy(model)
    with pytest.raises(RuntimeError):
        gateon.attach(model, example=torch.ones(1, 6))
    assert anatomy(model) == before


def test_attaching_twice_is_refused_and_the_first_gates_stay():
    model = mlp()
    gates = gateon.attach(model, contexts=2)
    before = anatomy(model)
    with pytest.raises(ValueError, match=r"has gates already.*gates_of"):
        gateon.attach(model)
    with pytest.raises(ValueError, match="has gates already"):
        gateon.attach(nn.Sequential(model, nn.ReLU(), nn.Linear(3, 3)))
    assert gateon.gates_of(model) is gates
    assert anatomy(model) == before
