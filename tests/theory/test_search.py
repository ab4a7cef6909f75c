"""The search for small counterexamples."""

import numpy as np

from seeupo_recipe.theory.search import batch, grid_policy, pick, smallest, smallest_shared
from seeupo_recipe.theory.shared import one_row


def test_the_search_is_deterministic_and_stops_at_the_first_violating_size():
    def only_two_turns(game, policy):
        return game.reward.max(1) * (game.turns == 2)

    runs = [smallest("test", only_two_turns, 0.5, ((1, 2), (2, 2), (3, 2)), 50) for _ in range(2)]
    assert runs[0].describe() == runs[1].describe()
    assert runs[0].game.turns == 2 and runs[0].tried == 100 and runs[0].violation == 1.0


def test_without_a_violation_the_largest_value_is_returned():
    found = smallest("test", lambda game, policy: game.reward.min(1), 5.0, ((1, 2), (2, 2)), 50)
    assert found.tried == 100 and found.violation <= 1.0


def test_a_found_game_is_the_candidate_it_was_in_the_batch():
    game, policy = batch("test", 2, 2, 20, chance_turns=(0,))
    own, tables = pick(game, policy, 7)
    np.testing.assert_allclose(own.value(tables, 0)[0], game.value(policy, 0)[7])
    assert own.agent_turns == (1,)


def test_grid_policies_have_full_support_on_a_coarse_grid():
    for table in grid_policy(np.random.default_rng(0), 30, 2, 3):
        np.testing.assert_allclose(table.sum(-1), 1.0)
        assert table.min() >= 0.05 - 1e-12
        np.testing.assert_allclose(table * 20, np.round(table * 20), atol=1e-9)


def test_descriptions_hold_the_whole_instance():
    found = smallest("test", lambda game, policy: game.reward.sum(1), 0.0, ((2, 2),), 10, chance_turns=(0,))
    text = found.describe()
    assert "T=2 A=2" in text and "environment at turn 1" in text and "pi1" not in text and "pi2" in text


def test_the_shared_search_reports_contexts_and_rows():
    found = smallest_shared("test", one_row, lambda game, rows, theta: float(theta[0, 0]), 0.1, ((2, 1, 2),), 5)
    assert "S=2 T=1 A=2" in found.describe() and found.theta.shape == (1, 2)
