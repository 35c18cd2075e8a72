"""A text classifier sees what the tokenizer meant: no padding, the second text as such, and nothing of its neighbours."""

import pytest
import torch

import gateon
from gateon.networks import text_classifier
from rounding import assert_same
from tiny_language import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.numeric

KINDS = ["bert", "distilbert", "roberta", "electra"]


def ids_of(kind, *texts, length=None):
    tokenizer = tiny_tokenizer(kind)
    rows = [tokenizer(*(text if isinstance(text, tuple) else (text,))).input_ids for text in texts]
    length = length or max(map(len, rows))
    return torch.tensor([row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {kind: tiny_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_does_not_matter_and_neighbours_do_not(models, kind, pooling):
    torch.manual_seed(0)
    model = text_classifier(models[kind], 3, pooling=pooling).eval()
    texts = ["good", "the battery of this phone was very bad", ("great screen", "poor price")]
    alone = torch.cat([model(ids_of(kind, text)) for text in texts])
    assert_same(model(ids_of(kind, *texts, length=40)), alone)
    assert alone.shape == (3, 3) and (alone[0] - alone[1]).abs().max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_encoder_given_what_its_tokenizer_gives(models, kind):
    model = text_classifier(models[kind], 2).eval()
    tokenizer = tiny_tokenizer(kind)
    pair = ("a good phone", "battery")
    given = tokenizer(*pair, return_tensors="pt", return_token_type_ids=kind in ("bert", "electra"))
    hidden = model.encoder(**given).last_hidden_state.mean(1)
    assert_same(model(ids_of(kind, pair, length=20)), model.head(hidden))
    if kind in ("bert", "electra"):
        given["token_type_ids"].zero_()
        other = model.head(model.encoder(**given).last_hidden_state.mean(1))
        # so that the types above were needed
        assert not torch.allclose(model(ids_of(kind, pair)), other, atol=1e-5)


def test_columns_of_padding_are_not_computed(models):
    model = text_classifier(models["bert"], 2).eval()
    seen = []
    model.encoder.register_forward_pre_hook(
        lambda m, args, kwargs: seen.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    model(ids_of("bert", "good", "very good", length=64))
    assert seen == [torch.Size([2, 4])]
    assert model(torch.full((1, 8), model.pad)).isfinite().all()  # a text of nothing


def test_dropout_and_weights_are_what_was_asked_for(models):
    model = text_classifier(models["bert"], 2, dropout=0.0).train()
    x = ids_of("bert", "good phone")
    assert torch.equal(model(x), model(x))
    assert not torch.equal(
        (noisy := text_classifier(models["bert"], 2, dropout=0.5).train())(x), noisy(x)
    )
    kept = text_classifier(models["bert"], 2).encoder.embeddings.word_embeddings.weight
    assert torch.equal(kept, model.encoder.embeddings.word_embeddings.weight)
    assert not torch.equal(
        kept,
        text_classifier(
            models["bert"], 2, config_only=True
        ).encoder.embeddings.word_embeddings.weight,
    )
    assert hasattr(text_classifier(models["bert"], 2, pooling="first").encoder, "pooler")
    assert model.encoder.pooler is None


def test_gates_need_no_example(models):
    for kind in KINDS:
        gates = gateon.attach(text_classifier(models[kind], 2), density=0.5)
        assert [site.name for site in gates.sites.values() if site.head] == ["head"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"classes": 0}, "classes must be at least 1, got 0"),
        ({"pooling": "last"}, "pooling must be"),
        ({"dropout": 1.0}, "dropout must be at least 0"),
    ],
)
def test_bad_options_are_refused(models, options, words):
    with pytest.raises(ValueError, match=words):
        text_classifier(models["bert"], **({"classes": 2} | options))
