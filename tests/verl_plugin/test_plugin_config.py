import pytest
from omegaconf import OmegaConf, open_dict

from seeupo_recipe.compose import compose_config, options
from seeupo_recipe.runs import open_run
from seeupo_recipe.strict import ConfigError
from seeupo_recipe.verl_plugin.config import read_config
from seeupo_recipe.verl_plugin.translate import flatten, stock_config, verl_config


@pytest.fixture(scope="module")
def stock():
    config = stock_config()
    config.actor_rollout_ref.actor.strategy = "fsdp2"
    config.algorithm.adv_estimator = "grpo"
    config.trainer.v1.trainer_mode = "seeupo"
    return config


def with_section(stock, section=None, **changes):
    config = stock.copy()
    with open_dict(config):
        if section is not None:
            config.seeupo = section
        for key, value in changes.items():
            OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    return config


def test_a_stock_config_without_a_section_is_the_papers_algorithm(stock):
    plugin = read_config(stock)
    assert plugin.settings.order == "reverse" and plugin.settings.correction == "on"
    assert plugin.surrogate.clip_low == 0.2 and plugin.surrogate.kl_coefficient == 0.0


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"ordr": "natural"}, "unknown key 'ordr' in the seeupo section; did you mean 'order'"),
        ({"profile": "as_relesed"}, "choose one of as_paper"),
        ({"drift_action": "stop"}, "choose warn or abort"),
        ({"critic_pool": "private"}, "choose shared or own"),
        ({"inner_mini_batches": 0}, "must be at least 1"),
        ({"step_empty_pools": True}, "needs seeupo.horizon"),
        ({"method": "grop"}, "choose one of grpo"),
    ],
)
def test_a_wrong_section_is_refused(stock, section, message):
    with pytest.raises(ConfigError, match=message):
        read_config(with_section(stock, section))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor_rollout_ref.actor.strategy", "megatron"),
        ("actor_rollout_ref.actor.ulysses_sequence_parallel_size", 2),
        ("actor_rollout_ref.hybrid_engine", False),
        ("actor_rollout_ref.model.lora_rank", 8),
        ("algorithm.use_kl_in_reward", True),
        ("algorithm.rollout_correction.bypass_mode", True),
        ("algorithm.rollout_correction.rollout_is", "token"),
        ("algorithm.rollout_correction.rollout_rs", "token"),
        ("actor_rollout_ref.actor.shuffle", True),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "gspo"),
        ("algorithm.adv_estimator", "gae"),
        ("distillation.enabled", True),
    ],
)
def test_what_turn_rows_cannot_do_is_refused_with_the_value_that_works(stock, key, value):
    with pytest.raises(ConfigError, match=f"{key}={value} does not work with turn rows: set {key}="):
        read_config(with_section(stock, **{key.replace(".", "__"): value}))


def test_an_unknown_kl_estimator_is_refused_only_if_it_is_used(stock):
    changes = {"actor_rollout_ref__actor__kl_loss_type": "abs"}
    read_config(with_section(stock, **changes))
    with pytest.raises(ConfigError, match="kl_loss_type"):
        read_config(with_section(stock, **changes, actor_rollout_ref__actor__use_kl_loss=True))


def test_baselines_need_a_method(stock):
    with pytest.raises(ConfigError, match="needs seeupo.method"):
        read_config(with_section(stock, trainer__v1__trainer_mode="turn_rows"))


@pytest.fixture
def translate(tmp_path, monkeypatch):
    monkeypatch.setenv("SEEUPO_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("SEEUPO_OUTPUTS", str(tmp_path / "outputs"))
    return lambda *overrides: verl_config(open_run(compose_config(overrides)))


@pytest.mark.parametrize("algorithm", [a for a in options("algorithm") if a != "reinforce_pp"])
def test_every_algorithm_translates_to_a_config_that_verl_and_the_plugin_accept(algorithm, translate):
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = translate(f"algorithm={algorithm}")
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    assert need_critic(config) == (algorithm == "ppo")
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.clip_ratio_c == 1e6 and actor.optim.lr == 3e-4
    plugin = read_config(config)
    assert (plugin.surrogate is None) == (algorithm != "seeupo")
    expected = {"seeupo": None, "base": "grpo"}.get(algorithm, algorithm)
    assert plugin.options.method == expected


def test_loss_keys_of_the_baselines(translate):
    actor = {a: translate(f"algorithm={a}").actor_rollout_ref.actor for a in ("grpo", "gspo", "rloo")}
    assert actor["grpo"].policy_loss.loss_mode == "vanilla" and actor["gspo"].policy_loss.loss_mode == "gspo"
    assert actor["grpo"].loss_agg_mode == actor["gspo"].loss_agg_mode == "seq-mean-token-mean"
    assert actor["rloo"].loss_agg_mode == "seq-mean-token-sum" and actor["rloo"].clip_ratio_high == 1e6


def test_a_misspelt_verl_key_stops_the_start_with_the_nearest_name(translate):
    with pytest.raises(ConfigError, match=r"unknown key 'actor_rollout_ref.rollout.max_num_sqs' in the verl section"):
        translate("verl.actor_rollout_ref.rollout.max_num_sqs=4")
    changed = translate("verl.actor_rollout_ref.rollout.max_num_seqs=4")
    assert changed.actor_rollout_ref.rollout.max_num_seqs == 4


def test_a_recipe_sets_where_things_run_but_not_what_the_run_config_says(translate):
    config = translate("algorithm=ppo", "verl.seeupo.critic_pool=own", "verl.seeupo.drift_limit=0.2")
    plugin = read_config(config)
    assert plugin.options.critic_pool == "own" and plugin.options.drift_limit == 0.2
    assert plugin.options.method == "ppo"
    with pytest.raises(ConfigError, match=r"unknown key 'seeupo.critic_pol'.*did you mean 'seeupo.critic_pool'"):
        translate("verl.seeupo.critic_pol=own")
    with pytest.raises(ConfigError, match="unknown key 'seeupo.order'"):
        translate("verl.seeupo.order=natural")


def test_without_a_budget_of_its_own_a_micro_batch_holds_the_longest_row(translate):
    """verl stops in the middle of an iteration if a row is longer than the budget of a micro-batch."""
    given = translate("algorithm=ppo")
    assert given.actor_rollout_ref.actor.ppo_max_token_len_per_gpu == given.critic.ppo_max_token_len_per_gpu == 4096
    drop = ["~verl.actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "~verl.critic.ppo_max_token_len_per_gpu"]
    drop.append("~verl.critic.ppo_infer_max_token_len_per_gpu")
    config = translate("algorithm=ppo", "benchmark.max_prompt_tokens=100", "benchmark.max_new_tokens=7", *drop)
    assert config.actor_rollout_ref.rollout.max_model_len == 107
    assert config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 107
    assert config.actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu == 107
    assert config.actor_rollout_ref.ref.log_prob_max_token_len_per_gpu == 107
    assert config.critic.ppo_max_token_len_per_gpu == config.critic.ppo_infer_max_token_len_per_gpu == 107


def test_flatten_keeps_empty_trees_as_values():
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}
