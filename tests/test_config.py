import pytest

from seeupo_recipe.algo.settings import PROFILES, AlgorithmSettings, resolve_settings
from seeupo_recipe.compose import compose_config, options
from seeupo_recipe.records.identity import make_run_id
from seeupo_recipe.runs import definition, full_definition, identity
from seeupo_recipe.strict import ConfigError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm=grop", "did you mean algorithm=grpo"),
        ("training.iteratons=3", "did you mean 'training.iterations'"),
        ("algorithm.seeupo.ordr=natural", "did you mean 'order'"),
        ("algorithm.seeupo.order=backwards", "choose one of reverse"),
        ("algorithm.seeupo.profile=as_papr", "choose one of as_paper"),
        ("evaluation.temperature=0", "makes all samples of a task equal"),
        ("training.group_size=1", "at least 2 rollouts"),
        ("training.iterations=0", "0 iterations are for algorithm=base"),
        ("seed=x", "seed must be int"),
        ("backend=vrl", "choose one of verl, lab"),
        ("training.learning_rate=fast", "must be a number"),
        ("algorithm.steps_per_iteration=matched", "is for baselines"),
        ("training.temperature=0", "must be above 0"),
        ("algorithm.surrogate.clip_low=2", "must lie in"),
    ],
)
def test_a_wrong_value_gives_one_clear_line(override, message):
    with pytest.raises(ConfigError, match=message) as error:
        compose_config([override])
    assert "\n" not in str(error.value)


def test_a_misspelt_key_in_a_recipe_file_is_reported_with_its_file(tmp_path, monkeypatch):
    import shutil

    from seeupo_recipe import compose

    recipes = tmp_path / "recipes"
    shutil.copytree(compose.RECIPES, recipes)
    (recipes / "algorithm" / "seeupo.yaml").write_text("# @package _global_\nalgorithm:\n  nme: seeupo\n")
    monkeypatch.setattr(compose, "RECIPES", recipes)
    with pytest.raises(ConfigError, match=r"unknown key 'nme'.*did you mean 'name'.*recipes/algorithm/seeupo.yaml"):
        compose_config()


def test_seeupo_choices_are_refused_for_baselines():
    with pytest.raises(ConfigError, match="has no effect on algorithm.name=grpo"):
        compose_config(["algorithm=grpo", "algorithm.seeupo.order=natural"])


def test_the_default_run_is_the_papers_algorithm():
    config = compose_config()
    assert config.algorithm.settings() == AlgorithmSettings()
    assert config.algorithm.surrogate.clip_low == config.algorithm.surrogate.clip_high == 0.2
    assert config.algorithm.surrogate.kl_coefficient == 0.002
    assert config.training.group_size == 8


def test_profiles_expand_and_each_choice_is_settable_alone():
    released = compose_config(["profile=as_released"]).algorithm.settings()
    aligned = compose_config(["profile=as_released_aligned"]).algorithm.settings()
    assert released.correction_alignment == "balanced_position" and aligned.correction_alignment == "trajectory"
    assert released.ratio_denominator == "turn_start" and released.loss_ratio == "token"
    for key, value in PROFILES["as_released"].items():
        alone = resolve_settings({key: value})
        assert getattr(alone, key) == value != getattr(AlgorithmSettings(), key)


def test_the_run_id_is_stable_and_every_setting_of_ours_is_in_it():
    base = make_run_id(identity(compose_config()))
    assert base == make_run_id(identity(compose_config()))
    for override in (
        "seed=1",
        "training.learning_rate=0.002",
        "algorithm.seeupo.order=natural",
        "algorithm.surrogate.clip_high=0.3",
        "evaluation.samples_per_task=8",
        "benchmark.max_turns=5",
        "backend=lab",
        "profile=as_released_aligned",
        "verl.actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048",
    ):
        assert make_run_id(identity(compose_config([override]))) != base, override


def test_what_does_not_change_a_result_is_not_in_the_run_id():
    base = identity(compose_config(["backend=lab"]))
    assert base == identity(compose_config(["backend=lab", "training.checkpoint_every=5"]))
    assert base == identity(compose_config(["backend=lab", "verl.actor_rollout_ref.actor.ppo_max_token_len_per_gpu=9"]))


@pytest.mark.parametrize("algorithm", options("algorithm"))
def test_every_algorithm_recipe_composes(algorithm):
    assert compose_config([f"algorithm={algorithm}"]).algorithm.name == algorithm


def test_missing_weights_name_the_command_that_builds_them():
    with pytest.raises(ConfigError, match="make warm-start MODEL=tiny-qwen3 BENCH=vaulthop"):
        identity(compose_config(["model.path='results/mini/warm_start/nowhere/{benchmark}'"]))


def test_a_definition_leaves_out_defaults_and_what_a_run_never_reads():
    grpo = compose_config(["algorithm=grpo", "backend=lab"])
    same = compose_config(["algorithm=grpo", "backend=lab", "algorithm.critic.lam=0.5", "profile=as_released"])
    other = compose_config(["algorithm=grpo", "backend=lab", "training.beta1=0.5"])
    assert definition(grpo) == definition(same) != definition(other)
    assert "beta1" not in definition(grpo)["training"] and definition(other)["training"]["beta1"] == 0.5
    seeupo = compose_config(["profile=as_released"])
    assert definition(seeupo)["algorithm"]["seeupo"]["loss_ratio"] == "token"
    assert "order" not in definition(seeupo)["algorithm"]["seeupo"]


def test_a_definition_with_defaults_is_the_whole_config():
    config = compose_config(["algorithm=ppo", "training.beta1=0.5", "evaluation.every=3"])
    full, plain = full_definition(definition(config)), config.as_dict()
    for missing in (full["training"], plain["training"]):
        missing.pop("checkpoint_every")
    for missing in (full["algorithm"], plain["algorithm"]):
        missing.pop("seeupo")
    assert full == plain
