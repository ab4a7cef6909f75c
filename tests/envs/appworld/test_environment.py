import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from seeupo_recipe.envs.appworld.environment import INTERPRETER_LOST, NO_CODE, AppWorldEnvironment, EpisodeSettings
from seeupo_recipe.envs.appworld.prompts import bare_prompt
from seeupo_recipe.envs.base import Action, Environment, EnvironmentFailure


def settings(**changes):
    return EpisodeSettings(
        **{
            "max_turns": 6,
            "observation_tokens": 1000,
            "split": list,
            "short_errors": False,
            "wrap": str,
            "prompt": bare_prompt,
            "reward": "sparse",
            "execute_seconds": 20.0,
            "retries": 2,
            **changes,
        }
    )


def block(code):
    return Action(f"I think.\n```python\n{code}\n```")


def text(observation):
    (message,) = observation.messages
    assert message["role"] == "user"
    return message["content"]


@pytest.fixture
def play(fake_pool):
    """Plays one episode and returns its observations and outcome."""
    shared = fake_pool()

    def play(*codes, task_id="t", pool=None, **changes):
        environment = AppWorldEnvironment(task_id, pool or shared, settings(**changes))
        try:
            environment.reset()
            observations = [environment.step(block(code)) for code in codes]
            return observations, environment.score()
        finally:
            environment.close()

    play.pool = shared
    return play


def test_an_episode_from_reset_to_score(play):
    environment = AppWorldEnvironment("water the plants", play.pool, settings())
    assert isinstance(environment, Environment)
    assert environment.reset().messages == ({"role": "user", "content": "do water the plants"},)
    assert text(environment.step(block("say hello"))) == "hello"
    assert text(environment.step(Action("no code at all"))) == NO_CODE
    environment.step(block("pass one"))
    environment.step(block("fail two"))
    last = environment.step(block("complete"))
    assert last.done
    outcome = environment.score()
    environment.close()
    assert (outcome.score, outcome.success, outcome.reward) == (0.5, False, 0.0)
    assert outcome.info == {
        "passed": 1,
        "failed": 1,
        "completed": True,
        "truncated": False,
        "turns": 5,
        "turns_without_code": 1,
        "interpreters_lost": 0,
        "worlds_lost": 0,
        "evaluation_error": None,
    }


def test_the_step_limit_ends_the_episode_and_is_flagged(play):
    observations, outcome = play(*["pass x"] * 6)
    assert [observation.done for observation in observations] == [False] * 5 + [True]
    assert outcome.info["truncated"] and not outcome.info["completed"]


def test_rewards(play):
    solved, half = ("pass a", "pass b", "complete"), ("pass a", "fail b", "complete")
    assert play(*solved)[1].reward == 1.0
    assert play(*half)[1].reward == 0.0
    assert play(*solved, reward="shaped")[1].reward == 1.5
    assert play(*half, reward="shaped")[1].reward == 0.25
    assert play(*half, "say " + "very " * 500, reward="shaped")[1].reward == -1.0


def test_outputs_are_cut(play):
    observations, _ = play("say " + "x" * 500, "pass a", observation_tokens=10)
    assert text(observations[0]) == "xxxxx\n[... 490 of 500 tokens left out ...]\nxxxxx"


def test_short_errors_show_the_last_line(play):
    failure = "Execution failed. Traceback:\n  File x\nNameError: no t"
    observations, _ = play(f"say {failure}", "pass a", short_errors=True)
    assert text(observations[0]) == "Error: NameError: no t"
    observations, _ = play(f"say {failure}", "pass a")
    assert text(observations[0]) == failure


def test_a_lost_interpreter_is_an_observation_and_the_episode_goes_on(play):
    observations, outcome = play("lose", "say still here", "pass a")
    assert text(observations[0]) == INTERPRETER_LOST
    assert text(observations[1]) == "still here"
    assert outcome.success and outcome.info["interpreters_lost"] == 1


def test_an_episode_survives_the_death_of_its_world(play, tmp_path):
    observations, outcome = play("pass a", f"die unless {tmp_path / 'died'}", "pass b", "fail c")
    assert not observations[1].done
    assert (outcome.info["passed"], outcome.info["failed"], outcome.info["worlds_lost"]) == (2, 1, 1)


def test_an_episode_survives_a_world_that_is_killed_before_the_score(play):
    environment = AppWorldEnvironment("t", play.pool, settings())
    environment.reset()
    environment.step(block("pass a"))
    environment._world.host.request("kill", pids=[environment._world.pid])
    outcome = environment.score()
    environment.close()
    assert outcome.success and outcome.info["worlds_lost"] == 1


def test_a_world_that_keeps_dying_is_an_environment_failure(play):
    with pytest.raises(EnvironmentFailure, match="lost 3 worlds"):
        play("pass a", "die")
    assert play.pool.counts["lost"] == 3


def test_a_hanging_world_is_an_environment_failure(play):
    with pytest.raises(EnvironmentFailure, match="lost 1 worlds.*timed out"):
        play("hang", execute_seconds=0.3, retries=0)


def test_a_replay_that_differs_is_an_environment_failure(play):
    with pytest.raises(EnvironmentFailure, match="another output"):
        play("pid", "die")


def test_an_unknown_task_is_an_environment_failure(play):
    with pytest.raises(EnvironmentFailure, match="no such task"):
        play(task_id="unknown")


def test_a_host_that_does_not_start_is_an_environment_failure(fake_pool, play):
    with pytest.raises(EnvironmentFailure, match="this host is broken"):
        play("pass a", pool=fake_pool(arguments=["--broken"]))


def test_failed_episodes_leave_the_pool_usable(fake_pool, play):
    pool = fake_pool(size=1)
    for codes in (["die"], ["pid", "die"]):
        with pytest.raises(EnvironmentFailure):
            play(*codes, pool=pool)
    assert play("pass a", pool=pool)[1].success


def test_closing_twice_or_before_reset_is_harmless(play):
    environment = AppWorldEnvironment("t", play.pool, settings())
    environment.close()
    environment.reset()
    environment.close()
    environment.close()
    assert play("pass a")[1].success


def test_one_bad_episode_changes_no_other(fake_pool, play):
    pool = fake_pool(size=4)
    scripts = [["pass a", "say x", *["fail b"] * (i % 3), "complete"] for i in range(16)]
    scripts[5] = ["die"]
    scripts[11] = ["hang"]
    ready = threading.Barrier(len(scripts))

    def episode(script):
        ready.wait()
        try:
            return play(*script, pool=pool, execute_seconds=1.0, retries=1)[1]
        except EnvironmentFailure:
            return None

    with ThreadPoolExecutor(len(scripts)) as threads:
        outcomes = list(threads.map(episode, scripts))
    assert [i for i, outcome in enumerate(outcomes) if outcome is None] == [5, 11]
    for i, outcome in enumerate(outcomes):
        if outcome is not None:
            assert outcome.score == 1 / (1 + i % 3)
            assert outcome.info["worlds_lost"] == 0
