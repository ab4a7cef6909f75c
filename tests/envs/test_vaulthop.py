import itertools
from functools import cache

import pytest

from seeupo_recipe.envs.base import Action, Benchmark, Environment, EpisodeKey, TeachableBenchmark, load_benchmark
from seeupo_recipe.envs.vaulthop.optimum import optimal_success
from seeupo_recipe.seeding import stream


def play(texts, *, task="train-3", session=0, name="vaulthop", iteration=1, seed=0):
    episode = load_benchmark(name).make(EpisodeKey(seed, iteration, task, session))
    replies = []
    for text in texts:
        action = text if isinstance(text, Action) else Action(text)
        observation = episode.step(action)
        replies.append("DONE" if observation.done else observation.messages[0]["content"])
        if observation.done:
            break
    return replies, episode


def solve(task, session=0, name="vaulthop"):
    """The expert: log in, follow the permutation, repeat a lost query."""
    episode = load_benchmark(name).make(EpisodeKey(0, 1, task, session))
    vault = episode.vault
    reply = episode.step(Action(f"LOGIN pwd{vault.password}")).messages[0]["content"]
    assert reply.startswith("OK ses")
    key, symbol, hops = reply.split()[1], vault.start, 0
    for _ in range(4):
        if hops == vault.hops:
            break
        reply = episode.step(Action(f"GET {key} sym{symbol}")).messages[0]["content"]
        if reply != "ERR ERR":
            symbol, hops = int(reply.removeprefix("VAL sym")), hops + 1
    assert episode.step(Action(f"ANS {key} sym{symbol}")).done
    return episode.score(), hops == vault.hops


def test_protocols_are_met():
    for name in ("vaulthop", "vaulthop-trap"):
        benchmark = load_benchmark(name)
        assert isinstance(benchmark, Benchmark) and isinstance(benchmark, TeachableBenchmark)
        assert isinstance(benchmark.make(EpisodeKey(0, 0, "train-0", 0)), Environment)


def test_the_expert_scores_one_and_the_optimum_is_reached():
    outcomes = [solve(f"train-{i}", session) for i in range(100) for session in range(4)]
    assert all(outcome.success == reached for outcome, reached in outcomes)
    rate = sum(outcome.score for outcome, _ in outcomes) / len(outcomes)
    assert rate == pytest.approx(load_benchmark("vaulthop").optimum(), abs=0.03)


NONSENSE = "|LOGIN|LOGIN pwd16|LOGIN sym1|GET ses0 sym0|PASS|LOGIN pwd1 pwd1|login pwd1|OK ses1|LOGIN pwd01"


@pytest.mark.parametrize("text", NONSENSE.split("|"))
def test_anything_else_is_an_error(text):
    assert play([text])[0] == ["ERR ERR"]


def test_a_message_without_its_end_token_is_an_error():
    vault = load_benchmark("vaulthop").make(EpisodeKey(0, 1, "train-3", 0)).vault
    good = f"LOGIN pwd{vault.password}"
    assert play([Action(good, complete=False)])[0] == ["ERR ERR"]
    assert play([good])[0][0].startswith("OK")


def test_a_wrong_answer_and_an_answer_without_session_end_with_zero():
    _, episode = play(["ANS ses0 sym0"])
    assert episode.score().reward == 0 and not episode.score().success
    replies, _ = play(["ANS ses0 sym0", "LOGIN pwd0"])
    assert replies == ["DONE"]


def test_the_trap_pays_only_as_the_first_action_and_is_no_success():
    replies, episode = play(["PASS"], name="vaulthop-trap")
    assert replies == ["DONE"]
    outcome = episode.score()
    assert outcome.reward == 0.4 and outcome.score == 0 and not outcome.success
    replies, episode = play(["LOGIN pwd0", "PASS"], name="vaulthop-trap")
    assert replies[1] == "ERR ERR" and episode.score().reward == 0
    assert play(["PASS"])[0] == ["ERR ERR"]


def test_random_numbers_come_from_the_episode_key_alone():
    vault = load_benchmark("vaulthop").make(EpisodeKey(0, 1, "train-3", 0)).vault
    login = f"LOGIN pwd{vault.password}"
    sessions = {play([login], session=s)[0][0] for s in range(30)}
    assert len(sessions) > 5
    first, _ = play([login] * 3)
    play(["GET ses1 sym1"] * 4, session=5)
    assert play([login] * 3)[0] == first
    assert play([login], iteration=2)[0] != first[:1] or play([login], seed=7)[0] != first[:1]


def test_splits_are_disjoint_and_unknown_ones_refused():
    benchmark = load_benchmark("vaulthop")
    splits = [set(benchmark.task_ids(s)) for s in ("train", "validation", "test")]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(splits, 2))
    with pytest.raises(ValueError, match="choose one of train, validation, test"):
        benchmark.task_ids("dev")
    with pytest.raises(ValueError, match="unknown benchmark"):
        load_benchmark("vaulthip")


SMALL_VAULTS = [(1, 3, 4), (1, 2, 5), (2, 4, 4), (2, 3, 4), (2, 2, 5), (3, 5, 4), (3, 4, 5), (3, 3, 5), (4, 5, 5)]


def brute_force_optimum(hops, turns, symbols, error):
    """Belief search over all permutations and all possible queries, not only the chain's end."""
    permutations = tuple(itertools.permutations(range(symbols)))

    def target(permutation):
        x = 0
        for _ in range(hops):
            x = permutation[x]
        return x

    @cache
    def value(left, known):
        possible = [p for p in permutations if all(p[a] == b for a, b in known)]
        counts = {}
        for p in possible:
            counts[target(p)] = counts.get(target(p), 0) + 1
        best = max(counts.values()) / len(possible)
        if left == 1:
            return best
        for symbol in range(symbols):
            if any(a == symbol for a, _ in known):
                continue
            hit = 0.0
            for image in {p[symbol] for p in possible}:
                share = sum(p[symbol] == image for p in possible) / len(possible)
                hit += share * value(left - 1, tuple(sorted((*known, (symbol, image)))))
            best = max(best, (1 - error) * hit + error * value(left - 1, known))
        return best

    return value(turns - 1, ())


@pytest.mark.parametrize(
    ("hops", "turns", "symbols"), [(1, 3, 4), (2, 4, 4), (2, 3, 4), (3, 5, 4), (3, 4, 5), (2, 5, 5)]
)
def test_the_optimum_equals_a_search_over_all_policies(hops, turns, symbols):
    found = optimal_success(hops, turns=turns, symbols=symbols, error=0.1)
    assert found == pytest.approx(brute_force_optimum(hops, turns, symbols, 0.1), rel=1e-9)


def test_demonstrations_are_legal_conversations_of_mixed_quality():
    benchmark = load_benchmark("vaulthop")
    rng = stream("test_demonstrations")
    words = set(benchmark.vocabulary().words)
    endings = []
    for i in range(200):
        messages = benchmark.demonstrate(f"demonstration-{i}", rng)
        assert [m["role"] for m in messages[:2]] == ["user", "assistant"]
        assert all(set(m["content"].split()) <= words for m in messages)
        endings.append(messages[-1]["content"].split()[0])
    assert endings.count("ANS") > 100
