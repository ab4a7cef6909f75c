"""Algorithm 1 against a plain double loop, HAPPO's factor recursion and GSPO."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_recipe.algo.advantage import joint_advantages
from seeupo_recipe.algo.correction import TurnCorrection
from seeupo_recipe.algo.loss import pool_loss
from seeupo_recipe.algo.ratio import sequence_log_ratio
from seeupo_recipe.algo.schedule import turn_pools, update_order
from seeupo_recipe.algo.sequential import plan_updates, sequential_update
from seeupo_recipe.algo.settings import AlgorithmSettings, SurrogateSettings
from seeupo_recipe.strict import ConfigError


@dataclass(frozen=True)
class Row:
    trajectory: str
    turn: int
    tokens_of_turn: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return len(self.tokens_of_turn)


VOCABULARY = 5


class TabularPolicy:
    """A softmax table per turn (or one for all), with a manual SGD step: small enough to check by hand."""

    def __init__(self, turns, *, shared, seed, rate, surrogate, settings):
        generator = torch.Generator().manual_seed(seed)
        count = 1 if shared else turns
        self.logits = [torch.randn(VOCABULARY, generator=generator, dtype=torch.float64) for _ in range(count)]
        self.rate, self.surrogate, self.settings = rate, surrogate, settings
        self.old, self.reference = {}, [x.clone() for x in self.logits]
        self.losses, self.pools, self.gradients = [], [], []

    def table(self, turn, tables=None):
        tables = self.logits if tables is None else tables
        return tables[turn % len(tables)]

    def log_probs(self, rows, tables=None):
        return torch.nn.utils.rnn.pad_sequence(
            [self.table(r.turn, tables).log_softmax(-1)[list(r.tokens_of_turn)] for r in rows], batch_first=True
        )

    def mask(self, rows):
        return torch.nn.utils.rnn.pad_sequence([torch.ones(r.tokens) for r in rows], batch_first=True).bool()

    def begin(self, rows):
        self.anchor(rows)

    def anchor(self, rows):
        for row in rows:
            self.old[row] = self.log_probs([row])[0].detach()

    def stack_old(self, rows):
        return torch.nn.utils.rnn.pad_sequence([self.old[r] for r in rows], batch_first=True)

    def step(self, rows, weights, *, denominator, last):
        self.pools.append([(r.trajectory, r.turn) for r in rows])
        tables = [x.clone().requires_grad_() for x in self.logits]
        terms = pool_loss(
            self.log_probs(rows, tables),
            self.stack_old(rows),
            self.mask(rows),
            weights,
            denominator=denominator,
            surrogate=self.surrogate,
            loss_ratio=self.settings.loss_ratio,
            ref_log_probs_RL=self.log_probs(rows, self.reference),
        )
        gradients = torch.autograd.grad(terms.loss, tables, allow_unused=True)
        gradients = [torch.zeros(VOCABULARY, dtype=torch.float64) if g is None else g for g in gradients]
        self.logits = [x - self.rate * g for x, g in zip(self.logits, gradients, strict=True)]
        self.losses.append(terms.loss.item())
        self.gradients.append(torch.cat(gradients))
        return {
            "grad_norm": 0.0,
            "clipped": 0.0,
            "ratio_deviation": 0.0,
            "kl_old": 0.0,
            "kl_ref": 0.0,
            "rows": len(rows),
        }

    def log_ratio(self, rows, *, kind, clamp):
        return sequence_log_ratio(self.log_probs(rows), self.stack_old(rows), self.mask(rows), kind=kind, clamp=clamp)


def sample_rows(seed, trajectories=6, turns=4, tokens=3):
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for i in range(trajectories):
        for turn in range(int(torch.randint(1, turns + 1, (1,), generator=generator))):
            length = int(torch.randint(1, tokens + 1, (1,), generator=generator))
            ids = torch.randint(VOCABULARY, (length,), generator=generator).tolist()
            rows.append(Row(f"t{i}", turn, tuple(ids)))
    rewards = torch.rand(trajectories, generator=generator, dtype=torch.float64)
    groups = torch.arange(trajectories) // 3
    advantages = joint_advantages(rewards, groups)
    return rows, {f"t{i}": float(a) for i, a in enumerate(advantages)}


def plain_algorithm(rows, advantages, policy, order):
    """Algorithm 1 as a double loop over turns and trajectories in plain Python floats.

    Returns the logits after the iteration, M after it, and the loss of every turn. Gradients are central
    finite differences of the plain loss.
    """
    logits = [x.tolist() for x in policy.logits]
    reference = [x.tolist() for x in policy.reference]

    def log_softmax(table):
        top = max(table)
        total = math.log(sum(math.exp(x - top) for x in table)) + top
        return [x - total for x in table]

    def log_prob(tables, row):
        table = log_softmax(tables[row.turn % len(tables)])
        return [table[token] for token in row.tokens_of_turn]

    start = [list(x) for x in logits]
    m = dict(advantages)
    losses = []
    surrogate = policy.surrogate

    def loss_of(tables, pool):
        total = 0.0
        for row in pool:
            new, old, ref = log_prob(tables, row), log_prob(start, row), log_prob(reference, row)
            mean = sum(a - b for a, b in zip(new, old, strict=True)) / len(new)
            ratio = math.exp(mean)
            bounded = max(1 - surrogate.clip_low, min(1 + surrogate.clip_high, ratio))
            total -= min(ratio * m[row.trajectory], bounded * m[row.trajectory])
            kl = [math.exp(c - a) - (c - a) - 1 for a, c in zip(new, ref, strict=True)]
            total += surrogate.kl_coefficient * sum(kl) / len(kl)
        return total / len(advantages)

    for turn in order:
        pool = [row for row in rows if row.turn == turn]
        losses.append(loss_of(logits, pool))
        gradient = [[0.0] * VOCABULARY for _ in logits]
        step = 1e-6
        for k, j in itertools.product(range(len(logits)), range(VOCABULARY)):
            up, down = [list(x) for x in logits], [list(x) for x in logits]
            up[k][j] += step
            down[k][j] -= step
            gradient[k][j] = (loss_of(up, pool) - loss_of(down, pool)) / (2 * step)
        logits = [
            [x - policy.rate * g for x, g in zip(table, slope, strict=True)]
            for table, slope in zip(logits, gradient, strict=True)
        ]
        if turn != order[-1]:
            for row in pool:
                new, old = log_prob(logits, row), log_prob(start, row)
                m[row.trajectory] *= math.exp(sum(a - b for a, b in zip(new, old, strict=True)) / len(new))
    return logits, m, losses


@pytest.mark.parametrize("order", ["reverse", "natural", "random"])
@pytest.mark.parametrize("shared", [True, False])
def test_equals_a_plain_double_loop(order, shared):
    settings_ = AlgorithmSettings(order=order)
    surrogate = SurrogateSettings(kl_coefficient=0.05)
    rows, advantages = sample_rows(7)
    policy = TabularPolicy(4, shared=shared, seed=1, rate=0.5, surrogate=surrogate, settings=settings_)
    policy.reference = [x + 0.1 for x in torch.randn(len(policy.logits), VOCABULARY, dtype=torch.float64)]
    policy.begin(rows)
    plan = plan_updates(rows, settings_, seed=5, iteration=2)
    turns = [update.turn for update in plan]
    expected_logits, _, expected_losses = plain_algorithm(rows, advantages, policy, turns)
    sequential_update(plan, advantages, policy, settings_)
    assert policy.losses == pytest.approx(expected_losses, rel=1e-4, abs=1e-9)
    for found, expected in zip(policy.logits, expected_logits, strict=True):
        assert found.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_equals_happos_factor_recursion_with_separate_parameters_and_single_tokens():
    """HAPPO (Kuba et al. 2022): agent i_m ascends E[ratio_m * M], M = A * product of earlier agents' ratios."""
    settings_ = AlgorithmSettings()
    surrogate = SurrogateSettings(clip_low=0.999, clip_high=1e9, kl_coefficient=0.0)
    generator = torch.Generator().manual_seed(0)
    turns, count = 3, 12
    actions = torch.randint(VOCABULARY, (count, turns), generator=generator)
    rows = [Row(f"t{i}", t, (int(actions[i, t]),)) for i in range(count) for t in range(turns)]
    advantage = torch.randn(count, generator=generator, dtype=torch.float64)
    policy = TabularPolicy(turns, shared=False, seed=2, rate=0.7, surrogate=surrogate, settings=settings_)
    policy.begin(rows)
    start = [x.clone() for x in policy.logits]
    sequential_update(
        plan_updates(rows, settings_, seed=0, iteration=1),
        {f"t{i}": float(a) for i, a in enumerate(advantage)},
        policy,
        settings_,
    )
    factor, expected = torch.ones(count, dtype=torch.float64), [x.clone() for x in start]
    for agent in reversed(range(turns)):
        probabilities = start[agent].softmax(-1)
        gradient = torch.zeros(VOCABULARY, dtype=torch.float64)
        for i in range(count):
            score = -probabilities
            score = score.clone()
            score[actions[i, agent]] += 1
            gradient += factor[i] * advantage[i] * score / count
        expected[agent] = start[agent] + 0.7 * gradient
        updated = expected[agent].softmax(-1)
        factor = factor * updated[actions[:, agent]] / probabilities[actions[:, agent]]
    for found, want in zip(policy.logits, expected, strict=True):
        assert torch.allclose(found, want, rtol=1e-9)


def test_on_single_turn_data_it_is_gspo_with_group_normalisation():
    generator = torch.Generator().manual_seed(4)
    rows = [
        Row(f"t{i}", 0, tuple(torch.randint(VOCABULARY, (1 + i % 4,), generator=generator).tolist())) for i in range(8)
    ]
    rewards, groups = torch.rand(8, generator=generator, dtype=torch.float64), torch.arange(8) // 4
    settings_ = AlgorithmSettings(normalization="group")
    surrogate = SurrogateSettings(kl_coefficient=0.0)
    advantage = joint_advantages(rewards, groups, normalization="group")
    policy = TabularPolicy(1, shared=True, seed=3, rate=0.3, surrogate=surrogate, settings=settings_)
    policy.begin(rows)
    start = policy.logits[0].clone().requires_grad_()
    plan = plan_updates(rows, settings_, seed=0, iteration=1)
    sequential_update(plan, {f"t{i}": float(a) for i, a in enumerate(advantage)}, policy, settings_)

    objective = 0.0
    for i, row in enumerate(rows):
        mean = rewards[groups == groups[i]].mean()
        deviation = rewards[groups == groups[i]].std()
        new = start.log_softmax(-1)[list(row.tokens_of_turn)]
        ratio = ((new - new.detach()).mean()).exp()
        objective = objective + ratio * (rewards[i] - mean) / deviation / len(rows)
    (gradient,) = torch.autograd.grad(objective, start)
    assert torch.allclose(policy.logits[0], start + 0.3 * gradient, rtol=1e-9)


def run(rows, advantages, **choices):
    settings_ = AlgorithmSettings(**choices)
    policy = TabularPolicy(
        4, shared=True, seed=9, rate=0.5, surrogate=SurrogateSettings(kl_coefficient=0.01), settings=settings_
    )
    policy.begin(rows)
    metrics = sequential_update(
        plan_updates(rows, settings_, seed=1, iteration=1, horizon=4), advantages, policy, settings_
    )
    return policy, metrics


@given(seed=st.integers(0, 500), permutation=st.permutations(range(8)))
@settings(max_examples=30, deadline=None)
def test_f11_row_order_and_id_names_change_nothing(seed, permutation):
    rows, advantages = sample_rows(seed)
    plain, _ = run(rows, advantages)
    shuffled = sorted(rows, key=lambda r: permutation[(hash(r.tokens_of_turn) + r.turn) % 8])
    renamed = {name: f"z{i}" for i, name in enumerate(sorted(advantages, reverse=True))}
    other, _ = run(
        [Row(renamed[r.trajectory], r.turn, r.tokens_of_turn) for r in shuffled],
        {renamed[name]: value for name, value in advantages.items()},
    )
    assert torch.allclose(plain.logits[0], other.logits[0], atol=1e-12)


@given(seed=st.integers(0, 500))
@settings(max_examples=30, deadline=None)
def test_m_telescopes(seed):
    """M at the end is A times the product over turns of the ratios at the time each was updated."""
    rows, advantages = sample_rows(seed)
    generator = torch.Generator().manual_seed(seed)
    correction = TurnCorrection(advantages, AlgorithmSettings())
    log_ratios = {row: float(torch.randn(1, generator=generator)) * 0.1 for row in rows}
    for (turn,) in update_order([r.turn for r in rows], "random", seed=seed, iteration=0):
        pool = [r for r in rows if r.turn == turn]
        correction.record([r.trajectory for r in pool], turn, torch.tensor([log_ratios[r] for r in pool]))
    for name, value in advantages.items():
        total = sum(log_ratios[r] for r in rows if r.trajectory == name)
        assert correction.weights([name], 0).item() == pytest.approx(value * math.exp(total), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("choices", [{}, {"order": "joint", "correction": "off"}, {"correction": "pool_centred"}])
def test_recorded_weights_are_those_of_the_steps_and_change_nothing(choices):
    rows, advantages = sample_rows(5)
    settings_ = AlgorithmSettings(**choices)

    def update(**options):
        policy = TabularPolicy(4, shared=True, seed=9, rate=0.5, surrogate=SurrogateSettings(), settings=settings_)
        policy.begin(rows)
        used, original = {}, policy.step

        def step(pool, weights, **kw):
            used.update(zip([(r.trajectory, r.turn) for r in pool], weights.tolist(), strict=True))
            return original(pool, weights, **kw)

        policy.step = step
        sequential_update(plan_updates(rows, settings_, seed=0, iteration=1), advantages, policy, settings_, **options)
        return policy.logits, used

    recorded = {}
    plain, with_record = update(), update(used_weights=recorded)
    assert recorded == with_record[1] and len(recorded) == len(rows)
    assert all(torch.equal(a, b) for a, b in zip(plain[0], with_record[0], strict=True))


def test_f13_without_learning_ratio_is_one_and_m_is_a():
    rows, advantages = sample_rows(11)
    policy = TabularPolicy(
        4, shared=True, seed=9, rate=0.0, surrogate=SurrogateSettings(), settings=AlgorithmSettings()
    )
    policy.begin(rows)
    seen = []
    original = policy.step
    policy.step = lambda pool, weights, **kw: seen.append((pool, weights)) or original(pool, weights, **kw)
    sequential_update(
        plan_updates(rows, AlgorithmSettings(), seed=0, iteration=1), advantages, policy, AlgorithmSettings()
    )
    for pool, weights in seen:
        assert weights.tolist() == pytest.approx([advantages[r.trajectory] for r in pool], abs=1e-12)


def test_f6_an_empty_turn_takes_no_step_unless_asked_to():
    rows, advantages = sample_rows(3, turns=2)
    plain, metrics = run(rows, advantages)
    assert metrics["update/optimizer_steps"] == len({r.turn for r in rows})
    assert all(pool for pool in plain.pools)
    settings_ = AlgorithmSettings(step_empty_pools=True)
    plan = plan_updates(rows, settings_, seed=1, iteration=1, horizon=4)
    assert [update.turn for update in plan] == [3, 2, 1, 0]
    assert [len(update.rows) == 0 for update in plan[:2]] == [True, True]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("order", "natural"),
        ("order", "random"),
        ("correction", "off"),
        ("correction", "pool_centred"),
        ("correction_ratio", "product"),
        ("loss_ratio", "product"),
        ("loss_ratio", "token"),
        ("pool_denominator", "real_rows"),
        ("ratio_denominator", "turn_start"),
        ("correction_ratio_clamp", (0.99, 1.01)),
        ("correction_product_clamp", (0.99, 1.01)),
    ],
)
def test_every_choice_of_the_update_changes_the_result(key, value):
    rows, advantages = sample_rows(21, trajectories=9)
    plain, _ = run(rows, advantages)
    changed, _ = run(rows, advantages, **{key: value})
    assert not torch.allclose(plain.logits[0], changed.logits[0], atol=1e-6)


def test_joint_takes_one_step_on_all_rows():
    rows, advantages = sample_rows(21)
    policy, metrics = run(rows, advantages, order="joint", correction="off")
    assert metrics["update/optimizer_steps"] == 1
    assert len(policy.pools) == 1 and len(policy.pools[0]) == len(rows)


def test_misalignment_of_the_release_multiplies_other_trajectories():
    rows, advantages = sample_rows(21, trajectories=8)
    aligned, _ = run(rows, advantages)
    misaligned, _ = run(rows, advantages, correction_alignment="balanced_position", balance_partitions=4)
    assert not torch.allclose(aligned.logits[0], misaligned.logits[0], atol=1e-9)


def test_inner_parts_cover_each_row_once_per_epoch():
    rows, advantages = sample_rows(13, trajectories=9)
    settings_ = AlgorithmSettings()
    policy = TabularPolicy(4, shared=True, seed=0, rate=0.1, surrogate=SurrogateSettings(), settings=settings_)
    policy.begin(rows)
    plan = plan_updates(rows, settings_, seed=0, iteration=1, inner_mini_batches=3)
    metrics = sequential_update(plan, advantages, policy, settings_, inner_epochs=2)
    served = [key for pool in policy.pools for key in pool]
    assert sorted(served) == sorted([(r.trajectory, r.turn) for r in rows] * 2)
    assert metrics["update/optimizer_steps"] == sum(2 * len(update.parts) for update in plan)


def test_random_order_is_seeded_fresh_per_iteration_and_a_permutation():
    orders = [update_order(range(6), "random", seed=3, iteration=i) for i in range(8)]
    assert orders == [update_order(range(6), "random", seed=3, iteration=i) for i in range(8)]
    assert len({tuple(o) for o in orders}) > 4
    assert all(sorted(t for (t,) in o) == list(range(6)) for o in orders)
    assert update_order([2, 0], "reverse", seed=0, iteration=0) == [(2,), (0,)]
    assert turn_pools([1, 0, 1]) == {0: [1], 1: [0, 2]}


def test_impossible_combinations_are_refused_with_the_reason():
    for choices, reason in [
        ({"order": "joint"}, "set correction=off"),
        ({"correction": "off", "correction_ratio_clamp": [0.8, 1.2]}, "without effect"),
        ({"correction": "pool_centred", "correction_alignment": "balanced_position"}, "needs correction_alignment"),
        ({"advantage_clamp": (3, -3)}, "lower bound"),
        ({"order": "backwards"}, "choose one of reverse"),
        ({"log_ratio_clamp": 0}, "must be positive"),
    ]:
        with pytest.raises(ConfigError, match=reason):
            AlgorithmSettings(**choices)


class PlainUpdater:
    """Forwards every row of a pool's pass, whatever is asked for: the form without savings."""

    def __init__(self, policy, rows):
        self.policy, self.rows, self.passes = policy, rows, []
        self.step, self.anchor = policy.step, policy.anchor

    def log_ratio(self, rows, *, kind, clamp):
        self.passes.append(len(rows))
        pool = [row for row in self.rows if row.turn == rows[0].turn]
        whole = dict(zip(pool, self.policy.log_ratio(pool, kind=kind, clamp=clamp), strict=True))
        return torch.stack([whole[row] for row in rows])


@pytest.mark.parametrize("order", ["reverse", "natural", "random"])
@pytest.mark.parametrize("correction", ["on", "pool_centred"])
def test_saved_passes_leave_m_and_the_weights_as_they_are(order, correction, monkeypatch):
    """Only ratios that a later update reads are computed; computing all gives the same result."""
    from seeupo_recipe.algo import sequential

    rows, advantages = sample_rows(17, trajectories=9)
    advantages["t1"] = advantages["t4"] = 0.0
    settings_ = AlgorithmSettings(order=order, correction=correction)

    def weights_after(save):
        policy = TabularPolicy(4, shared=True, seed=3, rate=0.5, surrogate=SurrogateSettings(), settings=settings_)
        policy.anchor(rows)
        updater = PlainUpdater(policy, rows)
        with monkeypatch.context() as patch:
            if not save:
                patch.setattr(sequential, "_still_needed", lambda update, *_: list(update.rows))
            sequential_update(plan_updates(rows, settings_, seed=2, iteration=1), advantages, updater, settings_)
        return policy.logits[0], sum(updater.passes)

    (saved, few), (plain, many) = weights_after(True), weights_after(False)
    assert torch.equal(saved, plain)
    assert few < many
