"""Gates on pretrained encoders: where they sit, that they start as nothing, what moves, and that files hold all of it."""

import os

import pytest
import torch
import torch.nn.functional as F
import transformers

import gateon
import gateon.integrations.hf
from gateon.anatomy.encoders import encoder_sites
from gateon.networks import text_classifier
from gateon.storage import checkpoint
from tiny_language import tiny_model

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 40,
}
CONFIGS = {
    "bert": lambda: transformers.BertConfig(**SIZES),
    "roberta": lambda: transformers.RobertaConfig(**SIZES, pad_token_id=1),
    "electra": lambda: transformers.ElectraConfig(**SIZES, embedding_size=12),
    "distilbert": lambda: transformers.DistilBertConfig(
        dim=16, n_layers=2, n_heads=2, hidden_dim=24, vocab_size=40
    ),
}
kinds = pytest.mark.parametrize("kind", list(CONFIGS))
both_views = pytest.mark.parametrize("per", ["unit", "parameter"])


def make(kind, labels=3, seed=0):
    torch.manual_seed(seed)
    config = CONFIGS[kind]()
    config.num_labels = labels
    return transformers.AutoModelForSequenceClassification.from_config(config)


def batch(n=0, size=6, length=7):
    generator = torch.Generator().manual_seed(n)
    ids = torch.randint(5, 40, (size, length), generator=generator)
    return ids, torch.randint(0, 3, (size,), generator=generator)


def learn(model, optimizer, n=0):
    ids, y = batch(n)
    F.cross_entropy(model(input_ids=ids).logits, y).backward()
    optimizer.step()
    optimizer.zero_grad()


def values(model):
    return {name: p.detach().clone() for name, p in model.state_dict().items()}


# Where gates sit.


@kinds
def test_gates_sit_at_the_places_of_the_paper(kind):
    gates = gateon.hf.attach(make(kind), contexts=2)
    gated = [site for site in gates.sites.values() if site.gated]
    assert [site.units for site in gated] == {
        "bert": [16, *[16, 24, 16] * 2, 16],
        "distilbert": [16, *[16, 24, 16] * 2, 16],
        "roberta": [16, *[16, 24, 16] * 2, 16],
        "electra": [12, 16, *[16, 24, 16] * 2, 16],
    }[kind]
    fixed = [site for site in gated if site.fixed]
    # embeddings, their projection, attention of two blocks
    assert len(fixed) == (4 if kind == "electra" else 3)
    norms = (gates.model.get_submodule(site.place) for site in gated if site.units == 16)
    assert sum(isinstance(norm, torch.nn.LayerNorm) for norm in norms) == (
        4 if kind == "electra" else 5
    )


@kinds
def test_names_do_not_matter(kind):
    model = make(kind)
    expected = [
        (site.units, site.gated, site.fixed, len(site.owns)) for site in encoder_sites(model)
    ]
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            # transformers asks for these by their names; every place where gates could sit is
            # renamed.
            if isinstance(child, torch.nn.Linear | torch.nn.LayerNorm | torch.nn.Embedding):
                del module._modules[name]
                module._modules[f"renamed_{name}"] = child
                module.__dict__[name] = child
    assert [
        (site.units, site.gated, site.fixed, len(site.owns)) for site in encoder_sites(model)
    ] == expected


def test_a_network_of_another_kind_is_refused_with_its_blocks_named_and_general_gates_take_it():
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=40, bos_token_id=1, eos_token_id=1
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with pytest.raises(ValueError, match=r"transformer\.h: 2 x GPT2Block\): use gateon\.attach"):
        gateon.hf.attach(model)
    assert gateon.gates_of(model) is None and all(p.requires_grad for p in model.parameters())
    before = model(batch()[0]).logits
    gateon.attach(model, start="open")
    assert torch.equal(model(batch()[0]).logits, before)


# Open gates.


@kinds
@pytest.mark.parametrize("training", [False, True])
def test_until_it_learns_a_gated_model_is_the_base_model_bit_for_bit(kind, training):
    plain, model = make(kind).train(training), make(kind).train(training)
    gates = gateon.hf.attach(model, contexts=3)
    gates.switch(2)
    ids, _ = batch()
    torch.manual_seed(1)
    expected = plain(ids).logits
    torch.manual_seed(1)
    assert torch.equal(model(ids).logits, expected)


@kinds
@both_views
def test_open_gates_learn_and_fixed_weights_do_not_move(kind, per):
    model = make(kind)
    gates = gateon.hf.attach(model, contexts=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    handle = gateon.hf.obstruct(optimizer, gates, per=per)
    before = values(model)
    for n in range(3):
        learn(model, optimizer, n)
    moved = {
        name
        for name, p in model.state_dict().items()
        if p.is_floating_point() and not torch.equal(p, before[name])
    }
    fixed = {f"{layer}." for site in gates.sites.values() if site.fixed for layer in site.owns}
    held = {
        name
        for name in before
        if name.rpartition(".")[0] + "." in fixed and "context_gate" not in name
    }
    weights = {
        name for name in before if "context_gate" not in name and before[name].is_floating_point()
    }
    assert moved & weights == weights - held and any("embeddings" in name for name in held)
    for gate in gates.gates.values():
        # the other context waits
        assert (gate.weight[0] != 0).any() and (gate.weight[1] == 0).all()
    assert not any(site in handle.availability for site in gates.sites if gates.sites[site].fixed)


def test_detaching_gives_gradients_back():
    model = make("bert")
    frozen = model.bert.embeddings.position_embeddings.weight.requires_grad_(False)
    gates = gateon.hf.attach(model)
    assert sum(not p.requires_grad for p in model.parameters()) > 1
    gates.detach()
    assert [p for p in model.parameters() if not p.requires_grad] == [frozen]


@pytest.mark.numeric
def test_steepness_is_the_speed_of_gates():
    gains = {}
    for steepness in (1.0, 20.0):
        model = make("bert")
        gates = gateon.hf.attach(model, steepness=steepness)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        learn(model, optimizer)
        gains[steepness] = (
            torch.cat([(gain - 1).abs() for gain in gates.gain().values()]).median().item()
        )
    assert gains[1.0] == pytest.approx(1e-4, rel=0.1) and gains[20.0] == pytest.approx(
        2e-3, rel=0.1
    )


# Rates.


@pytest.mark.numeric
def test_a_short_first_task_freezes_twice_as_fast_and_only_that():
    def frozen(steps, switch):
        model = make("bert")
        gates = gateon.hf.attach(model, contexts=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        handle = gateon.hf.obstruct(optimizer, gates, first_task_steps=steps)
        gates.switch(switch)
        learn(model, optimizer)
        return 1 - torch.stack([A.mean() for A in handle.availability.values()])

    torch.testing.assert_close(frozen(49, 0), 2 * frozen(50, 0), rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(frozen(49, 1), frozen(50, 0))


def test_the_first_rate_survives_a_resumed_learner():
    method = gateon.GateON(first_rate=0.2, rate=0.1, density=1.0, start="open")
    learners = []
    for _ in range(2):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        fresh = gateon.GateON(
            **{name: getattr(method, name) for name in ("first_rate", "rate", "density", "start")}
        )
        learners.append(
            gateon.Learner(model, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), method=fresh)
        )
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    for k in (0, 1):
        learners[0].observe(x, y, context=k)
    learners[1].load_state_dict(learners[0].state_dict())
    for learner in learners:
        learner.observe(x, y, context=1)
    assert [ledger.rule.fall for ledger in learners[1].method.handle.ledgers()] == [0.1]
    for name, A in learners[0].method.handle.availability.items():
        assert torch.equal(A, learners[1].method.handle.availability[name])


# The learner's way.


@both_views
def test_the_language_preset_is_what_attach_and_obstruct_do(per, tmp_path):
    place = tiny_model(tmp_path)
    torch.manual_seed(0)
    model = text_classifier(place, 3, dropout=0.0)
    other = text_classifier(place, 3, dropout=0.0)
    other.load_state_dict(model.state_dict())
    learner = gateon.Learner(
        model,
        optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3),
        method=gateon.preset("language", per),
    )
    gates = gateon.hf.attach(other, contexts=2)
    optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3)
    handle = gateon.hf.obstruct(optimizer, gates, per=per)
    for k in (0, 1):
        gates.switch(k)
        if k:  # a learner begins anew with every context
            optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3)
            handle.follow(optimizer)
        for n in range(2):
            ids, y = batch(n)
            learner.observe(ids, y, context=k)
            F.cross_entropy(other.train()(ids), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert all(
        torch.equal(a, b)
        for a, b in zip(learner.model.parameters(), other.parameters(), strict=True)
    )
    for name, A in learner.method.handle.availability.items():
        assert torch.equal(A, handle.availability[name])


def test_gating_only_leaves_every_weight_plastic(tmp_path):
    model = text_classifier(tiny_model(tmp_path), 3)
    gateon.gating_only(gateon.preset("language")).prepare(model)
    assert all(p.requires_grad for p in model.parameters())


def test_a_penalty_on_open_gates_is_refused():
    with pytest.raises(ValueError, match="gate_penalty closes gates"):
        gateon.GateON(start="open", gate_penalty=0.1).prepare(
            torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        )


# Files.


@both_views
@pytest.mark.parametrize("kind", ["bert", "electra", "classifier", "gpt2"])
def test_a_saved_model_comes_back_bit_for_bit_and_learns_on_as_it_would_have(kind, per, tmp_path):
    if kind == "classifier":
        model = text_classifier(tiny_model(tmp_path / "tiny"), 3, dropout=0.0)
        gates = gateon.hf.attach(model, contexts=2)
    elif kind == "gpt2":
        config = transformers.GPT2Config(
            n_embd=16,
            n_layer=1,
            n_head=2,
            vocab_size=40,
            pad_token_id=0,
            eos_token_id=1,
            num_labels=3,
        )
        model = transformers.GPT2ForSequenceClassification(config).eval()
        gates = gateon.attach(model, contexts=2, start="open", steepness=3.0)
    else:
        model = make(kind).eval()
        gates = gateon.hf.attach(model, contexts=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, per=per, rate=0.05, first_rate=0.1)

    def logits(one):
        made = one(batch()[0])
        return getattr(made, "logits", made)

    def step(one, with_optimizer):
        F.cross_entropy(logits(one), batch()[1]).backward()
        with_optimizer.step()
        with_optimizer.zero_grad()

    for k in (0, 1):
        gates.switch(k)
        step(model, optimizer)
    gateon.hf.save_pretrained(model.eval(), tmp_path / "kept", handle)
    back = gateon.hf.from_pretrained(tmp_path / "kept")
    assert (
        back.gates.context == 1
        and str(back.gates) == str(gates)
        and back.handle.rules == handle.rules
    )
    assert {k: v.tolist() for k, v in back.handle.state_dict().items()} == {
        k: v.tolist() for k, v in handle.state_dict().items()
    }
    assert torch.equal(logits(back.model), logits(model))
    again = torch.optim.SGD(back.model.parameters(), lr=0.1)
    back.handle.follow(again)
    step(model, optimizer)
    step(back.model, again)
    assert all(
        torch.equal(p, back.model.state_dict()[name]) for name, p in model.state_dict().items()
    )


def test_the_weights_alone_are_a_model_of_transformers(tmp_path):
    model = make("bert").eval()
    gates = gateon.hf.attach(model)
    gateon.hf.save_pretrained(model, tmp_path)
    plain, report = transformers.BertForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["unexpected_keys"] and not report["missing_keys"]
    assert torch.equal(plain(batch()[0]).logits, model(batch()[0]).logits)
    assert gateon.hf.from_pretrained(tmp_path).handle is None and gates.listeners == []


def first(table):
    return next(iter(table))


MISFITS = {
    "no gates": lambda s: s.update(gates={}),
    "gates as a list": lambda s: s.update(gates=[]),
    "gates as a text": lambda s: s.update(gates="x"),
    "an unknown gate": lambda s: s["gates"].update(zz=torch.ones(2, 16)),
    "a gate that would broadcast": lambda s: s["gates"].update({first(s["gates"]): torch.ones(1)}),
    "a gate of another shape": lambda s: s["gates"].update({first(s["gates"]): torch.ones(2, 3)}),
    "a gate of whole numbers": lambda s: s["gates"].update(
        {first(s["gates"]): torch.ones(2, 16, dtype=torch.int64)}
    ),
    "a gate of another dtype": lambda s: s["gates"].update(
        {first(s["gates"]): torch.ones(2, 16, dtype=torch.float64)}
    ),
    "a gate as a text": lambda s: s["gates"].update({first(s["gates"]): "x"}),
    "a missing gate": lambda s: s["gates"].pop(first(s["gates"])),
    "gates without rows": lambda s: s.update(
        gates={name: weight[:0] for name, weight in s["gates"].items()}
    ),
    "context as a text": lambda s: s.update(context="x"),
    "a context that does not exist": lambda s: s.update(context=99),
    "contexts that do not exist": lambda s: s.update(context=[0, 99]),
    "a context below 0": lambda s: s.update(context=-1),
    "sites as a number": lambda s: s.update(sites=5),
    "no sites": lambda s: s.update(sites=[]),
    "sites of numbers": lambda s: s.update(sites=[1, 2]),
    "a site of too many units": lambda s: s["sites"][0].update(units=10**9),
    "an ungated site of too many units": lambda s: s["sites"][-1].update(units=10**9),
    "a site nowhere": lambda s: s["sites"][0].update(place="nowhere"),
    "a site with more": lambda s: s["sites"][0].update(zz=1),
    "a site with less": lambda s: s["sites"][0].pop("owns"),
    "a site that owns a number": lambda s: s["sites"][0].update(owns=5),
    "arguments with more": lambda s: s["arguments"].update(zz=1),
    "arguments for attach": lambda s: s["arguments"].update(contexts=3),
    "density as a text": lambda s: s["arguments"].update(density="x"),
    "steepness beyond all measure": lambda s: s["arguments"].update(steepness=10**400),
    "power beyond all measure": lambda s: s["arguments"].update(power=10**400),
    "rules with more": lambda s: s["rules"].update(zz=1),
    "rules with less": lambda s: s["rules"].pop("per"),
    "an unknown view": lambda s: s["rules"].update(per="zz"),
    "rate as a text": lambda s: s["rules"].update(rate="x"),
    "rate beyond all measure": lambda s: s["rules"].update(rate=10**400),
    "frozen as nothing": lambda s: s["rules"].update(frozen=None),
    "rules as a list": lambda s: s.update(rules=[]),
    "no availability": lambda s: s.update(availability=None),
    "steps of another shape": lambda s: s["availability"].update(
        steps=torch.ones(3, dtype=torch.long)
    ),
    "steps as a text": lambda s: s["availability"].update(steps="a"),
    "availability of a context that does not exist": lambda s: s["availability"].update(
        context=torch.tensor([99])
    ),
    "availability of contexts as numbers": lambda s: s["availability"].update(
        context=torch.zeros(7, 7)
    ),
    "availability of another shape": lambda s: s["availability"].update(
        {list(s["availability"])[-1]: torch.ones(1)}
    ),
    "a classifier that is none": lambda s: s.update(classifier={"head": {}}),
    "a missing part": lambda s: s.pop("rules"),
    "a part too many": lambda s: s.update(zz=1),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A directory of `save_pretrained`, its file of gates, and what that holds."""
    folder = tmp_path_factory.mktemp("kept")
    model = make("bert")
    gates = gateon.hf.attach(model, contexts=2)
    gateon.hf.obstruct(torch.optim.SGD(model.parameters(), lr=0.1), gates)
    gateon.hf.save_pretrained(model, folder)
    return folder


@pytest.mark.parametrize("change", MISFITS.values(), ids=MISFITS)
def test_a_file_of_gates_that_does_not_fit_is_one_sentence(kept, change):
    path = kept / "gateon.safetensors"
    good, state = path.read_bytes(), checkpoint.load(path)
    change(state)
    model = make("bert")
    before = list(model.state_dict())
    try:
        checkpoint.save(state, path)
        with pytest.raises(ValueError, match=r"^[^\n]+$") as told:
            gateon.hf.from_pretrained(kept, model)
        assert str(told.value).startswith(f"{path} does not fit (")
        assert list(model.state_dict()) == before and gateon.gates_of(model) is None
    finally:
        path.write_bytes(good)
    assert gateon.hf.from_pretrained(kept, model).gates.contexts == 2


def test_pairs_of_rates_come_back_as_they_were(tmp_path):
    model = make("bert")
    gates = gateon.hf.attach(model)
    handle = gateon.hf.obstruct(
        torch.optim.SGD(model.parameters(), lr=0.1), gates, rate={"*": (0.1, 0.2)}
    )
    gateon.hf.save_pretrained(model, tmp_path)
    assert gateon.hf.from_pretrained(tmp_path).handle.rules == handle.rules


def test_weights_in_a_pipe_make_nobody_wait(tmp_path):
    model = make("bert")
    gateon.hf.attach(model)
    gateon.hf.save_pretrained(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors is not a regular file"):
        gateon.hf.from_pretrained(tmp_path)


def test_files_that_are_not_there_or_cannot_be_written_are_said(tmp_path):
    with pytest.raises(ValueError, match="has no gates: attach them first"):
        gateon.hf.save_pretrained(make("bert"), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no gateon\.safetensors: save the model with"):
        gateon.hf.from_pretrained(tmp_path)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    gateon.attach(model)
    with pytest.raises(ValueError, match="Sequential is not a model of transformers"):
        gateon.hf.save_pretrained(model, tmp_path)
    assert not list(tmp_path.iterdir())
