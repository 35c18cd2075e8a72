"""What is done with an adapter of several contexts: a context for each sample, one merged for good, saved and loaded."""

import json
import runpy

import pytest
import torch
import torch.nn.functional as F
import transformers

import gateon
import gateon.integrations.hf
from lora_models import MODELS, adapters, in_8_bit, learn, llama, ranked, tokens
from rounding import SMOOTH_ADAM, assert_same

peft = pytest.importorskip("peft")
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
both_views = pytest.mark.parametrize("per", ["unit", "parameter"])


def logits(model, ids=None):
    with torch.no_grad():
        return model.eval()(input_ids=tokens() if ids is None else ids).logits


# A context for each sample.


@pytest.mark.numeric
@every_model
@pytest.mark.parametrize("contexts", [[0, 1, 2, 1], [2, 2, 2, 2], [0, 2, 0, 2]])
def test_every_sample_is_computed_in_its_own_context(make, contexts):
    model, gates = ranked(make)
    expected = []
    for sample, context in enumerate(contexts):
        gates.show(context)
        expected.append(logits(model, tokens()[sample : sample + 1])[0])
    with gateon.hf.in_contexts(model, torch.tensor(contexts)):
        assert_same(logits(model), torch.stack(expected))
    assert gates.context == contexts[-1]
    assert not torch.allclose(expected[0], logits(model)[0]) or contexts[0] == contexts[-1]


@pytest.mark.numeric
@both_views
def test_a_mixed_batch_is_learned_as_its_parts_together(per):
    """The gradient of a batch in several contexts is the sum of those of its samples, and so is what the relevance is made of."""

    def learned(mixed):
        model, gates = ranked(reuse=True)
        optimizer = SMOOTH_ADAM(model.parameters())
        handle = gateon.obstruct(optimizer, gates, per=per, rate=0.1, apply="step")
        contexts, ids = [0, 1, 0, 1], tokens()
        for _ in range(3):
            if mixed:
                gates.switch(contexts)
                losses(model, ids).sum().backward()
            else:
                for k, sample in zip(contexts, ids, strict=True):
                    gates.switch(k)
                    losses(model, sample[None]).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return adapters(model), handle.availability

    for one, other in zip(learned(True), learned(False), strict=True):
        assert_same(one, other)


def losses(model, ids):
    predicted = model(input_ids=ids).logits[:, :-1]
    return F.cross_entropy(predicted.transpose(1, 2), ids[:, 1:], reduction="none").mean(1)


def test_only_contexts_in_the_batch_are_learned():
    model, gates = ranked()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    gateon.hf.obstruct(optimizer, gates)
    for contexts in ([2, 2, 2, 2], [0, 1, 0, 1]):
        gates.switch(contexts)
        before = adapters(model)
        learn(model, optimizer, tokens())
    after = adapters(model)
    for name, gate in gates.gates.items():
        moved = (after[f"{name}.weight"] != before[f"{name}.weight"]).any(1)
        opened = (gate.gain(torch.tensor([0, 1])) > 0).any(0)
        assert torch.equal(moved, opened) and not opened.all()


@pytest.mark.parametrize("make", [MODELS["llama"], MODELS["gpt2"]], ids=["llama", "gpt2"])
@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}]
)
def test_generation_in_mixed_contexts_is_that_of_each_alone(make, options):
    model, gates = ranked(make)
    model.eval()
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0} | options
    contexts, ids = [0, 2, 1], tokens(samples=3)
    expected = []
    for sample, context in enumerate(contexts):
        gates.show(context)
        one = ids[sample : sample + 1]
        expected += model.generate(input_ids=one, attention_mask=torch.ones_like(one), **options)
    copies = options.get("num_beams", 1)
    with gateon.hf.in_contexts(model, contexts, copies=copies):
        found = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
    padded = torch.nn.utils.rnn.pad_sequence(expected, batch_first=True)
    assert torch.equal(found[:, : padded.shape[1]], padded)


def test_contexts_of_the_wrong_length_are_refused_before_anything_is_generated():
    model, gates = ranked()
    ids = tokens(samples=4)
    with (
        pytest.raises(
            ValueError, match=r"3 contexts were given for a batch of 4 .* for each sample\.$"
        ),
        gateon.hf.in_contexts(model, [0, 1, 2]),
    ):
        model.generate(input_ids=ids, max_new_tokens=2)
    with (
        pytest.raises(ValueError, match=r"4 contexts .* batch of 8 .* give it 2 times if a sample"),
        gateon.hf.in_contexts(model, [0, 1, 2, 1]),
    ):
        model.generate(input_ids=ids, max_new_tokens=2, num_beams=2)
    with (
        pytest.raises(IndexError, match="Context 3 does not exist"),
        gateon.hf.in_contexts(model, [0, 3]),
    ):
        pass
    with (
        pytest.raises(ValueError, match="copies must be a whole number of at least 1, got 0"),
        gateon.hf.in_contexts(model, 0, 0),
    ):
        pass
    before = adapters(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    gateon.hf.obstruct(optimizer, gates)
    gates.switch([0, 1])
    with pytest.raises(ValueError, match="2 contexts were given for a batch of 4"):
        learn(model, optimizer, ids)
    assert all(torch.equal(value, before[name]) for name, value in adapters(model).items())


# One context for good.


@pytest.mark.numeric
@every_model
def test_a_merged_context_computes_what_the_gated_model_does(make, tmp_path):
    model, gates = ranked(make, dtype=torch.float32)
    with torch.no_grad():
        for gate in gates.gates.values():  # as learning leaves them
            gate.weight.add_(torch.linspace(-0.05, 0.05, gate.weight.shape[1]))
    plain = gateon.hf.merge(model, context=2)
    gates.show(2)
    torch.testing.assert_close(logits(plain), logits(model), rtol=1e-6, atol=1e-6)
    gates.show(1)
    assert (logits(plain) - logits(model)).abs().max() > 1e-3
    assert type(plain) is type(make()) and plain.state_dict().keys() == make().state_dict().keys()
    assert all(p.requires_grad for p in plain.parameters())
    plain.save_pretrained(tmp_path)
    assert_same(logits(type(plain).from_pretrained(tmp_path)), logits(plain))


def test_merging_leaves_the_gated_model_as_it_was():
    model, gates = ranked()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = gateon.hf.obstruct(optimizer, gates)
    learn(model, optimizer, tokens())
    before, state = logits(model), {k: v.clone() for k, v in model.state_dict().items()}
    gateon.hf.merge(model, 1)
    assert torch.equal(logits(model), before)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    learn(model.train(), optimizer, tokens())
    assert handle.steps == 2


def test_what_cannot_be_merged_is_refused():
    model, _ = ranked()
    with pytest.raises(IndexError, match="Context 3 does not exist: there are 3"):
        gateon.hf.merge(model, 3)
    with pytest.raises(ValueError, match="This model has no gates"):
        gateon.hf.merge(llama(), 0)
    with pytest.raises(ValueError, match="in 8 or 4 bit cannot hold what is merged"):
        gateon.hf.merge(gateon.hf.lora(in_8_bit(), 6, 2).model, 0)
    encoder = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=24,
            vocab_size=40,
        )
    )
    gateon.hf.attach(encoder)
    with pytest.raises(ValueError, match="Only gates on the ranks of PEFT's LoRA can be merged"):
        gateon.hf.merge(encoder, 0)


# Files.


@pytest.mark.numeric
@both_views
def test_an_adapter_is_saved_and_loaded_with_its_contexts_and_learns_on(per, tmp_path):
    model, gates = ranked(dtype=torch.float32)
    optimizer = SMOOTH_ADAM(model.parameters())
    handle = gateon.hf.obstruct(optimizer, gates, per=per)
    for context in (0, 1):
        gates.switch(context)
        for k in range(3):
            learn(model, optimizer, tokens(k))
    gateon.hf.save_pretrained(model, tmp_path)
    back = gateon.hf.from_pretrained(tmp_path, llama())
    for context in range(3):
        gates.show(context)
        back.gates.show(context)
        assert torch.equal(logits(back.model), logits(model))
    assert_same(back.handle.state_dict(), handle.state_dict())
    for one, its_gates, its_handle in ((model, gates, handle), back):
        one.train()
        its_gates.switch(2)
        again = SMOOTH_ADAM(one.parameters())
        its_handle.follow(again)
        for k in range(3):
            learn(one, again, tokens(k))
    assert_same(adapters(back.model), adapters(model))
    assert_same(back.handle.availability, handle.availability)


def test_the_files_are_those_of_peft_and_hold_no_weight_of_the_base(tmp_path):
    model, _ = ranked(dtype=torch.float32)
    gateon.hf.save_pretrained(model, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        gateon.hf.FILE,
    }
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 6
    plain = peft.PeftModel.from_pretrained(llama(), tmp_path)
    kept = {n: p for n, p in plain.named_parameters() if ".lora_" in n}
    assert kept.keys() == {n for n in adapters(model) if "context_gate" not in n}
    assert all(torch.equal(p, model.get_parameter(n)) for n, p in kept.items())


def test_the_model_card_tells_of_contexts_once_and_its_code_runs(tmp_path):
    model, gates = ranked(dtype=torch.float32)
    llama().save_pretrained(tmp_path / "base")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    gateon.hf.obstruct(optimizer, gates)
    learn(model, optimizer, tokens())
    place = tmp_path / "adapter"
    gateon.hf.save_pretrained(model, place)
    gateon.hf.save_pretrained(model, place)
    card = (place / "README.md").read_text()
    assert card.count("# One LoRA adapter with 3 contexts") == 1
    assert "Of the 6 ranks of each of its 4 layers a context opens 2" in card
    assert "gateon" in card.split("---")[1] and "% , the mean" not in card
    code = card.split("```python\n")[1].split("```")[0]
    code = code.replace("'the base model'", repr(str(tmp_path / "base")))
    code = code.replace("directory of this adapter", str(place))
    (tmp_path / "card.py").write_text(code)
    plain = runpy.run_path(str(tmp_path / "card.py"))["plain"]
    gates.show(0)
    torch.testing.assert_close(logits(plain), logits(model), rtol=1e-6, atol=1e-6)


def test_an_adapter_of_another_rank_is_refused(tmp_path):
    ranked(dtype=torch.float32)[0].save_pretrained(tmp_path / "six")
    gateon.hf.save_pretrained(ranked(dtype=torch.float32, rank=4)[0], tmp_path / "four")
    (tmp_path / "four" / gateon.hf.FILE).rename(tmp_path / "six" / gateon.hf.FILE)
    with pytest.raises(ValueError, match=r"does not fit \(inputs of .*lora_B.default"):
        gateon.hf.from_pretrained(tmp_path / "six", llama())


def test_files_that_do_not_fit_are_refused(tmp_path):
    model, _ = ranked(dtype=torch.float32)
    gateon.hf.save_pretrained(model, tmp_path)
    with pytest.raises(ValueError, match="holds adapters only: pass model="):
        gateon.hf.from_pretrained(tmp_path)
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"no adapter_model.safetensors.*can run code"):
        gateon.hf.from_pretrained(tmp_path, llama())
