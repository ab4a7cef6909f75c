import pytest
import torch

from seeupo_recipe.envs.base import Vocabulary
from seeupo_recipe.models.sampling import Request, SamplingParams, sample_batch
from seeupo_recipe.models.tiny import ARCHITECTURES, build_model, build_tokenizer

END, PAD = 3, 0
PROMPTS = [[1, 6, 7, 2], [1, 8, 2], [1, 6, 9, 10, 11, 2]]


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def model(request):
    tokenizer = build_tokenizer(Vocabulary([f"w{i}" for i in range(30)]))
    policy = build_model(request.param, tokenizer, seed=1, max_length=64)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(2)
    return policy.eval()


def sample(model, requests):
    return sample_batch(model, requests, eos_ids=[END], pad_id=PAD)


def trainer_log_probs(model, prompt, tokens, temperature):
    logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0]
    scaled = (logits / temperature).log_softmax(-1)
    return [scaled[len(prompt) + i - 1, token].item() for i, token in enumerate(tokens)]


@torch.no_grad()
def test_log_probs_equal_a_full_forward_pass(model):
    params = SamplingParams(temperature=0.7)
    generations = sample(model, [Request(p, 9, seed=i, params=params) for i, p in enumerate(PROMPTS)])
    for prompt, generation in zip(PROMPTS, generations, strict=True):
        expected = trainer_log_probs(model, prompt, generation.token_ids, 0.7)
        assert generation.log_probs == pytest.approx(expected, abs=1e-5)


def test_a_request_does_not_depend_on_its_batch(model):
    requests = [Request(p, 8, seed=10 + i) for i, p in enumerate(PROMPTS)]
    together = sample(model, requests)
    alone = [sample(model, [r])[0] for r in requests]
    assert [g.token_ids for g in together] == [g.token_ids for g in alone]
    reordered = sample(model, requests[::-1])[::-1]
    assert [g.token_ids for g in together] == [g.token_ids for g in reordered]


def test_rollouts_of_one_prompt_differ_by_seed_and_repeat_with_it(model):
    first = sample(model, [Request(PROMPTS[0], 10, seed=s) for s in range(8)])
    again = sample(model, [Request(PROMPTS[0], 10, seed=s) for s in range(8)])
    assert [g.token_ids for g in first] == [g.token_ids for g in again]
    assert len({tuple(g.token_ids) for g in first}) > 4


@torch.no_grad()
def test_frequencies_follow_the_policy(model):
    count = 4000
    drawn = sample(model, [Request(PROMPTS[1], 1, seed=s) for s in range(count)])
    frequencies = torch.bincount(torch.tensor([g.token_ids[0] for g in drawn]), minlength=35) / count
    probabilities = model(input_ids=torch.tensor([PROMPTS[1]])).logits[0, -1].softmax(-1)
    deviation = (frequencies - probabilities).abs() / (probabilities * (1 - probabilities) / count).sqrt().clamp(
        min=1e-3
    )
    assert deviation.max() < 5


@torch.no_grad()
def test_greedy_top_k_and_top_p(model):
    logits = model(input_ids=torch.tensor([PROMPTS[2]])).logits[0, -1]
    ranked = logits.argsort(descending=True).tolist()
    greedy = sample(model, [Request(PROMPTS[2], 1, seed=s, params=SamplingParams(temperature=0)) for s in range(5)])
    assert {g.token_ids[0] for g in greedy} == {ranked[0]}
    top2 = sample(model, [Request(PROMPTS[2], 1, seed=s, params=SamplingParams(top_k=2)) for s in range(200)])
    assert {g.token_ids[0] for g in top2} == set(ranked[:2])
    nucleus, mass = set(), 0.0
    for token in ranked:
        if mass >= 0.6:
            break
        nucleus.add(token)
        mass += logits.softmax(-1)[token].item()
    top_p = sample(model, [Request(PROMPTS[2], 1, seed=s, params=SamplingParams(top_p=0.6)) for s in range(400)])
    assert {g.token_ids[0] for g in top_p} <= nucleus


def test_generation_stops_at_the_end_token_or_at_its_own_limit(model):
    limits = [1, 3, 12]
    generations = sample(model, [Request(p, n, seed=5) for p, n in zip(PROMPTS, limits, strict=True)])
    for generation, limit in zip(generations, limits, strict=True):
        assert len(generation.token_ids) == len(generation.log_probs) <= limit
        assert generation.finished == (generation.token_ids[-1] == END)
        assert END not in generation.token_ids[:-1]
        assert generation.finished or len(generation.token_ids) == limit


def test_bad_requests_are_refused(model):
    with pytest.raises(ValueError, match="needs a prompt"):
        sample(model, [Request([], 3, seed=0)])
    for values in ({"temperature": -1}, {"top_p": 0}, {"top_k": 0}):
        with pytest.raises(ValueError):
            SamplingParams(**values)
    assert sample(model, []) == []
