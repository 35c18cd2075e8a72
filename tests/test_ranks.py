"""LoRA whose ranks are units: the equations, what moves and what does not, and that closed ranks cost nothing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gateon
import gateon.integrations.hf
import reference
from gateon.gating.start import CLOSED
from lora_models import MODELS, adapters, in_8_bit, learn, llama, open_ranks, ranked, tokens
from rounding import SMOOTH_ADAM, assert_same

peft = pytest.importorskip("peft")
both_views = pytest.mark.parametrize("per", ["unit", "parameter"])
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


# The equations.


@pytest.mark.numeric
@both_views
@pytest.mark.parametrize("selected", [True, False])
def test_a_ranked_layer_learns_by_the_equations(per, selected):
    torch.manual_seed(0)
    settings = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}
    model = peft.get_peft_model(
        nn.Sequential(nn.Linear(3, 4, bias=False)),
        peft.LoraConfig(r=6, lora_alpha=9, target_modules=["0"]),
    ).double()
    gates = gateon.hf.attach(model, contexts=2, ranks_per_task=3, reuse=True, steepness=2.0)
    layer = model.base_model.model[0]
    A, B = layer.lora_A.default.weight, layer.lora_B.default.weight
    nn.init.normal_(B)
    v = next(iter(gates.gates.values())).weight
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    handle = gateon.obstruct(optimizer, gates, per=per, rate=0.1)
    twin = reference.RankedLayer(
        layer.base_layer.weight.detach(), A.detach(), B.detach(), v.detach(), 1.5, per, 0.1,
        settings["lr"], settings["momentum"], settings["weight_decay"], 2.0,
    )  # fmt: skip
    for context in (0, 1, 0):
        gates.switch(context)
        twin.begin(context)
        if not selected:
            compute_everything(gates)
        for _ in range(3):
            x, t = torch.randn(2, 2, 3).double(), torch.randn(2, 2, 4).double()
            y = model(x)
            assert_same(y, twin.forward(x)[0])
            ((y - t) ** 2).sum().div(2).backward()
            optimizer.step()
            optimizer.zero_grad()
            twin.step(x, t)
            assert_same(A.detach(), twin.A)
            assert_same(B.detach(), twin.B)
            opened = v > CLOSED / 2
            assert_same(v.detach()[opened], twin.v[opened])
    name = "base_model.model.0.lora_"
    found = handle.availability
    if per == "unit":
        assert_same(found[f"{name}A.default"], twin.running["A"])
        assert (found[f"{name}A.default"] < 1).sum() > 3
    else:
        assert_same(found[f"{name}A.default.weight"], twin.running["A"])
        assert_same(found[f"{name}B.default.weight"], twin.running["B"])


def compute_everything(gates):
    """At full width: closed ranks are computed, and multiplied by 0."""
    for gate in gates.gates.values():
        assert gate.selected is not None
        gate.selected = None


# What moves.


@both_views
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
def test_only_open_ranks_move_whatever_momentum_and_decay_would_do(per, optimizer):
    model, gates = ranked(contexts=2)
    base = {n: p.detach().clone() for n, p in model.named_parameters() if ".lora_" not in n}
    made = {torch.optim.SGD: {"momentum": 0.9}}.get(optimizer, {})
    steps = optimizer(model.parameters(), lr=1e-2, weight_decay=0.1, **made)
    gateon.hf.obstruct(steps, gates, per=per)
    for context in (0, 1):
        gates.switch(context)
        before = adapters(model)
        for k in range(3):
            learn(model, steps, tokens(k))
        after = adapters(model)
        for name, ranks in open_ranks(gates, context).items():
            B = name.replace("lora_A", "lora_B")
            rows = (after[f"{name}.weight"] != before[f"{name}.weight"]).any(1)
            columns = (after[f"{B}.weight"] != before[f"{B}.weight"]).any(0)
            assert set(rows.nonzero().flatten().tolist()) == ranks, name
            assert set(columns.nonzero().flatten().tolist()) == ranks, B
    for name, value in base.items():
        assert torch.equal(model.get_parameter(name), value), name


@both_views
def test_a_frozen_rank_moves_in_neither_its_row_nor_its_column(per):
    model, gates = ranked(contexts=1, per_task=6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = gateon.hf.obstruct(optimizer, gates, per=per)
    learn(model, optimizer, tokens())
    state = handle.state_dict()
    A = next(iter(gates.gates))
    B = A.replace("lora_A", "lora_B")
    for key in (A, f"{A}.weight", f"{B}.weight"):
        if f"{key}:applied" in state:
            applied = state[f"{key}:applied"]
            (applied.T if key.startswith(B) else applied)[2] = 0
    handle.load_state_dict(state)
    before = adapters(model)
    learn(model, optimizer, tokens(1))
    row = model.get_parameter(f"{A}.weight") != before[f"{A}.weight"]
    column = model.get_parameter(f"{B}.weight") != before[f"{B}.weight"]
    assert not row[2].any() and not column[:, 2].any()
    assert row[[0, 1, 3, 4, 5]].all() and column[:, [0, 1, 3, 4, 5]].any()


def test_a_row_and_its_column_share_the_availability_of_their_rank():
    model, gates = ranked(contexts=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    handle = gateon.hf.obstruct(optimizer, gates)
    for k in range(3):
        learn(model, optimizer, tokens(k))
    gates.switch(1)
    for name in gates.gates:
        A = handle.availability[name]
        assert (A < 1).any()
        row = handle.scale_of(model.get_parameter(f"{name}.weight"))
        column = handle.scale_of(model.get_parameter(f"{name.replace('lora_A', 'lora_B')}.weight"))
        assert torch.equal(row.flatten(), A) and row.shape == (6, 1)
        assert torch.equal(column.flatten(), A) and column.shape == (1, 6)


def test_a_square_layer_is_not_mistaken_for_its_ranks():
    """Where B has as many outputs as ranks, its columns are protected, not its rows."""
    torch.manual_seed(0)
    model = peft.get_peft_model(
        nn.Sequential(nn.Linear(3, 6)), peft.LoraConfig(r=6, target_modules=["0"])
    )
    gates = gateon.hf.attach(model, contexts=2, ranks_per_task=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gateon.obstruct(optimizer, gates, apply="step")
    for _ in range(2):
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert handle.scale_of(model.base_model.model[0].lora_B.default.weight).shape == (1, 6)


def test_a_skipped_step_leaves_no_relevance_behind():
    """A second batch must not be measured together with one whose gradients were thrown away."""

    def relevance(skip):
        model, gates = ranked(contexts=1, per_task=6)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        handle = gateon.hf.obstruct(optimizer, gates)
        if skip:
            model(input_ids=tokens(5), labels=tokens(5)).loss.backward()
            optimizer.zero_grad()
        learn(model, optimizer, tokens())
        return handle.availability

    assert_same(relevance(skip=True), relevance(skip=False))


# Which ranks a context opens.


def test_contexts_take_turns_until_every_rank_has_had_its_turn():
    _, gates = ranked(contexts=7, rank=6, per_task=2)
    for site in gates.gates:
        first = [open_ranks(gates, k)[site] for k in range(3)]
        second = [open_ranks(gates, k)[site] for k in range(3, 6)]
        assert set.union(*first) == set.union(*second) == set(range(6))
        assert all(len(ranks) == 2 for ranks in first + second)
    more = ranked(contexts=2)[1]
    more.add_context()
    assert open_ranks(more, 2) == open_ranks(gates, 2)
    rounds = [
        [open_ranks(gates, k)[site] for k in range(n, n + 3)]
        for site in gates.gates
        for n in (0, 3)
    ]
    assert len({str(one) for one in rounds}) > len(
        gates.gates
    )  # every round has an order of its own


def test_with_reuse_contexts_share_some_ranks():
    _, gates = ranked(contexts=3, rank=16, per_task=4, reuse=True)
    shared = [open_ranks(gates, 0)[site] & open_ranks(gates, 1)[site] for site in gates.gates]
    assert any(shared) and not all(len(one) == 4 for one in shared)


def test_ranks_that_do_not_divide_evenly_have_their_turn_in_a_later_round():
    _, gates = ranked(contexts=12, rank=7, per_task=3)
    for site in gates.gates:
        turns = [open_ranks(gates, k)[site] for k in range(12)]
        assert all(len(turn) == 3 for turn in turns)
        assert all(not turns[k] & turns[k + 1] for k in range(0, 12, 2))


def test_each_of_several_contexts_gets_an_equal_share_by_default():
    def shares(contexts, r):
        torch.manual_seed(0)
        config = peft.LoraConfig(task_type="CAUSAL_LM", r=r, rank_pattern={"v_proj": 2 * r})
        gates = gateon.hf.attach(peft.get_peft_model(llama(), config), contexts=contexts)
        return {len(ranks) for ranks in open_ranks(gates, 0).values()}

    assert shares(4, 8) == {2, 4}
    assert shares(1, 16) == {2, 4}
    assert shares(1, 4) == {1}


# Closed ranks are not computed, and it makes no difference.


@pytest.mark.numeric
@every_model
@both_views
def test_computing_open_ranks_only_is_the_same_as_computing_all(make, per):
    def trained(selected):
        model, gates = ranked(make, contexts=3, reuse=True)
        optimizer = SMOOTH_ADAM(model.parameters(), weight_decay=0.01)
        handle = gateon.hf.obstruct(optimizer, gates, per=per, rate=0.1)
        outputs = []
        for context in (0, 1, 2, 0):
            gates.switch(context)
            if not selected:
                compute_everything(gates)
            for k in range(3):
                learn(model, optimizer, tokens(3 * context + k))
            with torch.no_grad():
                outputs.append(model(input_ids=tokens(20)).logits)
        return adapters(model), handle.availability, torch.stack(outputs)

    for some, everything in zip(trained(True), trained(False), strict=True):
        assert_same(some, everything)


@every_model
def test_closed_ranks_are_not_computed(make):
    model, gates = ranked(make, rank=6, per_task=2)
    seen = []
    for name, module in model.named_modules():
        if name.endswith("lora_A.default"):
            module.register_forward_hook(lambda _, args, output: seen.append(output.shape[-1]))
    model(input_ids=tokens(), labels=tokens()).loss.backward()
    assert seen and set(seen) == {2}
    gates.off()
    seen.clear()
    model(input_ids=tokens())
    assert set(seen) == {6}


def test_before_learning_a_model_computes_what_it_did_bit_for_bit():
    plain = llama().eval()(input_ids=tokens()).logits
    model, gates = gateon.hf.lora(llama(), 6, 2, 3)
    for k in range(3):
        gates.show(k)
        assert torch.equal(model.eval()(input_ids=tokens()).logits, plain)


def test_detaching_leaves_an_ordinary_model_of_peft():
    model, gates = ranked()
    gates.detach()
    assert {type(m) for n, m in model.named_modules() if n.endswith(".default")} <= {
        nn.Linear,
        nn.Identity,
    }
    everything = model(input_ids=tokens()).logits
    twin, others = ranked()
    others.off()
    assert torch.equal(twin(input_ids=tokens()).logits, everything)


def test_adapters_on_convolutions_and_embeddings_learn_and_are_protected():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.conv, self.out = (
                nn.Embedding(9, 4),
                nn.Conv1d(4, 5, 3),
                nn.Linear(5, 2),
            )

        def forward(self, x):
            return self.out(self.conv(self.words(x).transpose(1, 2)).relu().mean(2))

    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, target_modules=["words", "conv", "out"])
    model = peft.get_peft_model(Network(), config)
    gates = gateon.hf.attach(model, contexts=2, ranks_per_task=2)
    assert [name.split(".")[2] for name in gates.gates] == ["conv", "out"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = gateon.hf.obstruct(optimizer, gates)
    before = adapters(model)
    for k in range(4):
        F.cross_entropy(model(tokens(k) % 9), torch.tensor([0, 1, 0, 1])).backward()
        optimizer.step()
        optimizer.zero_grad()
    after, conv = adapters(model), "base_model.model.conv.lora_A.default"
    moved = (after[f"{conv}.weight"] != before[f"{conv}.weight"]).flatten(1).any(1)
    assert set(moved.nonzero().flatten().tolist()) == open_ranks(gates, 0)[conv]
    words = [name for name in handle.availability if "words" in name]
    assert len(words) == 2 and all((handle.availability[name] < 1).any() for name in words)


# Bad input.


def test_ranks_that_are_not_there_are_refused_before_anything_is_changed():
    model = llama()
    with pytest.raises(ValueError, match="ranks_per_task must be between 1 and rank=4, got 8"):
        gateon.hf.lora(model, rank=4, ranks_per_task=8)
    with pytest.raises(ValueError, match="scaling must be above 0, got 0"):
        gateon.hf.lora(model, scaling=0.0)
    with pytest.raises(ValueError, match="contexts must be a whole number of at least 1, got '3'"):
        gateon.hf.lora(model, contexts="3")
    assert not any("lora" in name for name, _ in model.named_modules())
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=4))
    with pytest.raises(ValueError, match=r"rank of every adapter, which is 4 at .*lora_A.*got 5"):
        gateon.hf.attach(adapted, ranks_per_task=5)
    assert gateon.gates_of(adapted) is None


def test_gates_and_adapters_in_the_wrong_order_are_refused():
    model, gates = gateon.hf.lora(llama(), 6, 2)
    with pytest.raises(ValueError, match="gates already, and adapters come before gates"):
        gateon.hf.lora(model)
    gates.detach()
    with pytest.raises(ValueError, match=r"adapters already: gateon.hf.attach\(model\)"):
        gateon.hf.lora(model)
    gates = gateon.hf.attach(model)
    model.add_adapter("second", peft.LoraConfig(task_type="CAUSAL_LM", r=4))
    model.set_adapter("second")
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(
        ValueError, match=r"lora_A\.second' came after the gates, which do not know"
    ):
        gateon.hf.obstruct(optimizer, gates)


def test_ranks_of_variants_that_mix_them_are_refused():
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=4, use_dora=True)
    with pytest.raises(ValueError, match="ranks of plain LoRA layers, and this model has none"):
        gateon.hf.attach(peft.get_peft_model(llama(), config), ranks_per_task=2)


def test_contexts_that_do_not_exist_are_refused():
    _, gates = ranked(contexts=3)
    with pytest.raises(IndexError, match=r"Context 3 does not exist: there are 3; add_context"):
        gates.switch(torch.tensor([0, 3]))


def test_weights_in_8_bit_are_not_fine_tuned():
    model = in_8_bit()
    for attach in (gateon.hf.attach, gateon.attach):
        with pytest.raises(ValueError, match=r"in 8 or 4 bit.* call gateon.hf.lora\(model\)"):
            attach(model, example=tokens())
    assert gateon.gates_of(model) is None


def test_gates_have_the_dtype_of_adapters_whatever_that_of_the_base():
    model, gates = gateon.hf.lora(llama().bfloat16(), 6, 2)
    assert model.get_parameter(f"{next(iter(gates.gates))}.weight").dtype == torch.float32
    assert {gate.weight.dtype for gate in gates.gates.values()} == {torch.float32}


@both_views
def test_adapters_learn_on_a_model_in_8_bit_and_leave_it_alone(per):
    model, gates = gateon.hf.lora(in_8_bit(), 6, 2, 2)
    base = {n: p.detach().clone() for n, p in model.named_parameters() if ".lora_" not in n}
    assert torch.int8 in {value.dtype for value in base.values()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    gateon.hf.obstruct(optimizer, gates, per=per)
    losses = []
    for _ in range(4):
        losses.append(model(input_ids=tokens(), labels=tokens()).loss.item())
        learn(model, optimizer, tokens())
    assert losses[-1] < losses[0]
    for name, value in base.items():
        assert torch.equal(model.get_parameter(name), value), name


@pytest.mark.parametrize("bits", [8, 4])
def test_adapters_learn_on_a_model_of_bitsandbytes(bits, tmp_path):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    llama(hidden_size=64, intermediate_size=64).save_pretrained(tmp_path)
    settings = BitsAndBytesConfig(load_in_8bit=bits == 8, load_in_4bit=bits == 4)
    base = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=settings)
    with pytest.raises(ValueError, match="in 8 or 4 bit"):
        gateon.hf.attach(base)
    model, gates = gateon.hf.lora(base, 6, 2, 2)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    gateon.hf.obstruct(optimizer, gates)
    whole = {n: p.detach().clone() for n, p in model.named_parameters() if ".lora_" not in n}
    before = adapters(model)
    gates.switch(1)
    for k in range(3):
        learn(model.train(), optimizer, tokens(k))  # in evaluation the library packs them anew
    for name, value in whole.items():
        assert torch.equal(model.get_parameter(name), value), name
    for name, ranks in open_ranks(gates, 1).items():
        moved = (adapters(model)[f"{name}.weight"] != before[f"{name}.weight"]).any(1)
        assert set(moved.nonzero().flatten().tolist()) == ranks


# With the rest of gateon.


@pytest.mark.numeric
def test_contexts_added_on_the_way_are_like_those_attached_at_first():
    def trained(contexts):
        model, gates = ranked(contexts=contexts)
        optimizer = SMOOTH_ADAM(model.parameters())
        handle = gateon.hf.obstruct(optimizer, gates)
        for context in range(3):
            while gates.contexts <= context:
                gates.add_context()
            gates.switch(context)
            for k in range(2):
                learn(model, optimizer, tokens(k))
        return adapters(model), handle.availability

    for one, other in zip(trained(3), trained(1), strict=True):
        assert_same(one, other)


def test_rows_of_other_contexts_may_be_kept_elsewhere():
    def trained(kept):
        model, gates = ranked()
        if kept:
            gates.keep_rows("cpu")
        handle = None
        for context in (0, 2, 0):
            gates.switch(context)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            if handle is None:
                handle = gateon.hf.obstruct(optimizer, gates)
            handle.follow(optimizer)
            learn(model, optimizer, tokens(context))
        return model.state_dict() | handle.availability

    expected, found = trained(kept=False), trained(kept=True)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.numeric
def test_relevance_is_the_same_where_activities_are_computed_again():
    def trained(again):
        model, gates = ranked()
        if again:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        optimizer = SMOOTH_ADAM([p for p in model.parameters() if p.requires_grad])
        handle = gateon.hf.obstruct(optimizer, gates)
        gates.switch(1)
        for k in range(2):
            learn(model.train(), optimizer, tokens(k))
        return adapters(model), handle.availability

    for one, other in zip(trained(True), trained(False), strict=True):
        assert_same(one, other)


def test_the_sub_network_of_a_context_computes_what_the_model_does():
    model, gates = ranked()
    gates.show(1)
    small = gateon.compact(model, 1)
    assert torch.equal(small(input_ids=tokens()).logits, model(input_ids=tokens()).logits)
