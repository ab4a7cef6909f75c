import pytest
import yaml

from seeupo_recipe import compose
from seeupo_recipe.compose import compose_config, options
from seeupo_recipe.records.identity import make_run_id
from seeupo_recipe.runs import definition, identity
from seeupo_recipe.strict import ConfigError
from seeupo_recipe.study.cells import Selection, definition_key, full_matrix, parse_seeds, selected_cells
from seeupo_recipe.study.composition import Composer
from seeupo_recipe.study.spec import load_study, make_target, study_names

STUDY = {
    "title": "A study",
    "question": "Does it matter?",
    "scales": {"mini": {"models": ["tiny-qwen3"], "benchmarks": ["vaulthop"]}},
    "variants": [
        {"name": "seeupo", "label": "SeeUPO", "overrides": ["algorithm=seeupo"]},
        {
            "name": "{method}-lr{lr}",
            "label": "{method} at {lr}",
            "overrides": ["algorithm={method}", "training.learning_rate={lr}"],
            "style": "{method}",
            "grid": {"method": ["grpo", "seeupo"], "lr": [0.001, 0.002, 0.004]},
        },
    ],
    "table": {"layout": "grid", "reference": "seeupo", "rows": "method", "columns": "lr"},
    "figures": [{"name": "lr", "kind": "sweep", "title": "Learning rates", "x": "lr", "log": True}],
}


def write(folder, **changes):
    path = folder / "my-study.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    return str(path)


@pytest.mark.parametrize("name", study_names())
def test_every_study_composes_at_every_scale_whose_recipes_exist(name):
    study = load_study(name)
    for scale, matrix in study.scales.items():
        assert scale in options("scale")
        for kind, group in (("models", "model"), ("benchmarks", "benchmark")):
            assert set(getattr(matrix, kind)) <= set(options(group))
        cells = full_matrix(study, Selection(scale))
        assert len({c.key for c in cells}) == len(cells), "two variants are the same cell"
    assert all(v.style is None or isinstance(v.style, str) for v in study.variants)


def test_views_show_the_cells_of_their_study():
    keys = {name: {c.key for c in full_matrix(load_study(name), Selection())} for name in study_names()}
    assert keys["table3"] == keys["figure4"] == keys["table2"]
    assert keys["figure5"] == keys["table4"]
    seeupo = [c.key for c in full_matrix(load_study("table2"), Selection()) if c.variant.name == "seeupo"]
    assert set(seeupo) <= keys["table4"] & keys["table5"], "reverse and batch are SeeUPO's defaults: the same runs"


def test_aliases_name_the_ablations():
    assert load_study("ablation-order") == load_study("table4")
    assert [make_target(load_study(n)) for n in ("table2", "table4", "figure5")] == [
        "reproduce-table2", "ablation-order", "reproduce-figure5",
    ]  # fmt: skip


def test_a_grid_expands_to_the_product_of_its_values(tmp_path):
    study = load_study(write(tmp_path))
    assert [v.name for v in study.variants] == [
        "seeupo", "grpo-lr0.001", "grpo-lr0.002", "grpo-lr0.004", "seeupo-lr0.001", "seeupo-lr0.002", "seeupo-lr0.004",
    ]  # fmt: skip
    variant = study.variant("grpo-lr0.002")
    assert variant.coordinates == {"method": "grpo", "lr": 0.002} and variant.label == "grpo at 0.002"
    (cell,) = selected_cells(study, Selection(variants=("grpo-lr0.002",)))
    assert cell.config.training.learning_rate == 0.002 and cell.config.algorithm.name == "grpo"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tittle": "x"}, "unknown key 'tittle' in .*my-study.yaml; did you mean 'title'"),
        ({"scales": {"minni": STUDY["scales"]["mini"]}}, "scale 'minni': did you mean mini"),
        ({"scales": {"mini": {"models": [], "benchmarks": ["vaulthop"]}}}, "a scale has no models"),
        ({"table": {"layout": "outcome", "reference": "seeupo"}}, "layout 'outcome': did you mean outcomes"),
        ({"table": {"layout": "outcomes", "reference": "seeupoo"}}, "reference 'seeupoo': did you mean seeupo"),
        ({"table": {"layout": "grid", "reference": "seeupo", "rows": "x", "columns": "lr"}}, "table.rows 'x': choose"),
        ({"variants": [STUDY["variants"][0]] * 2}, "two variants are called seeupo"),
        ({"variants": [{"name": "A b", "overrides": []}]}, "variant name 'A b' may hold"),
        ({"variants": [{"name": "a{x}", "overrides": [], "grid": {"y": [1]}}]}, "uses {x}, not a key of its grid"),
        ({"variants": [{"name": "a", "overrides": [], "grid": {"y": 1}}]}, "grid.y of variant a must be a list"),
        ({"defaults": {"backend": "lap"}}, "backend 'lap': did you mean lab"),
        ({"figures": [{"name": "f", "kind": "curve", "title": "t"}]}, "kind of figure f 'curve': did you mean curves"),
    ],
)
def test_a_wrong_study_gives_one_line(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message) as error:
        load_study(write(tmp_path, **changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(models=("tiny-qwen4",)), "MODELS=tiny-qwen4: not in this study; did you mean tiny-qwen3"),
        (Selection(benchmarks=("vaulthopp",)), "BENCH=vaulthopp: .*did you mean vaulthop"),
        (Selection(variants=("grpo",)), "VARIANTS=grpo: .*did you mean"),
        (Selection(backend="lib"), "BACKEND=lib: .*did you mean lab"),
        (Selection("paper"), "study table2 is not defined at scale paper; it has mini"),
        (Selection(overrides=("training.iteration=3",)), "unknown key 'training.iteration'.*did you mean"),
    ],
)
def test_a_wrong_selection_gives_one_line(selection, message):
    with pytest.raises(ConfigError, match=message) as error:
        selected_cells(load_study("table2"), selection)
    assert "\n" not in str(error.value)


def test_an_unknown_study_names_the_nearest():
    with pytest.raises(ConfigError, match="there is no study 'tabel2'; did you mean table2"):
        load_study("tabel2")
    with pytest.raises(ConfigError, match="there is no study file /nowhere/a.yaml"):
        load_study("/nowhere/a.yaml")


@pytest.mark.parametrize(("text", "seeds"), [("3", (0, 1, 2)), ("0,4", (0, 4)), ("4,", (4,)), ("2,2,0", (2, 0))])
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "a", "1.5", "1,,2", "9999999"])
def test_wrong_seeds(text):
    with pytest.raises(ConfigError, match="^SEEDS="):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("selection", "benchmarks"),
    [
        (Selection(), ["vaulthop", "bfcl-mini"]),
        (Selection(backend="lab"), ["vaulthop"]),
        (Selection(backend="lab", benchmarks=("bfcl-mini",)), ["bfcl-mini"]),
    ],
)
def test_the_lab_can_have_fewer_default_benchmarks(tmp_path, selection, benchmarks):
    names = ["vaulthop", "vaulthop-trap", "bfcl-mini"]
    defaults = {"benchmarks": ["vaulthop", "bfcl-mini"], "lab_benchmarks": ["vaulthop"]}
    path = write(tmp_path, scales={"mini": {"models": ["tiny-qwen3"], "benchmarks": names}}, defaults=defaults)
    cells = selected_cells(load_study(path), selection)
    assert list(dict.fromkeys(cell.benchmark for cell in cells)) == benchmarks


def test_the_untrained_policy_takes_no_training_overrides():
    selection = Selection(overrides=("training.iterations=7", "training.learning_rate=0.5", "evaluation.every=0"))
    base, grpo = selected_cells(
        load_study("table2"),
        Selection(variants=("base", "grpo-one"), benchmarks=("vaulthop",), overrides=selection.overrides),
    )
    assert base.config.training.iterations == 0 and grpo.config.training.iterations == 7
    alone = Selection(variants=("base",), benchmarks=("vaulthop",), overrides=("evaluation.every=0",))
    (plain,) = selected_cells(load_study("table2"), alone)
    assert base.key == plain.key


def test_a_cells_key_is_its_definition_without_the_seed(world):
    cell = world.cell()
    assert {definition_key(definition(cell.at(seed))) for seed in (0, 5)} == {cell.key}
    assert cell.key != world.cell(variant="grpo-one").key != world.cell(variant="grpo-matched").key
    assert cell.key != world.cell(backend="lab").key


def test_kept_compositions_give_the_same_runs(folders):
    overrides = ("scale=mini", "algorithm=seeupo", "algorithm.seeupo.order=natural")
    composer = Composer()
    fresh = composer(overrides)
    composer.save()
    kept = Composer()(overrides)
    direct = compose_config(overrides)
    assert fresh == kept
    assert make_run_id(identity(direct)) == make_run_id(identity(kept))
    assert len(list((folders / "outputs" / "composed").iterdir())) == 1


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["algorithm.steps_per_iteration=matched", "algorithm=grpo"],
        ["++algorithm.seeupo.order=natural", "training.beta1=0.5", "++verl.trainer.device=cpu"],
        ["+verl.new.key=3", "++model.chat_template_kwargs.a=b", "evaluation={every: 3}"],
    ],
)
def test_composition_in_two_steps_is_hydras(values):
    assert compose._compose(values) == compose._compose_afresh(compose.RECIPES, tuple(values))


@pytest.mark.parametrize(
    ("override", "option"),
    [("seed=3", "SEEDS"), ("+backend=lab", "BACKEND"), ("algorithm=grpo", "VARIANTS"), ("model=tiny-qwen3", "MODELS")],
)
def test_overrides_cannot_move_a_cell_in_the_matrix(override, option):
    with pytest.raises(ConfigError, match=f"is a part of the study's matrix; select it with {option}"):
        selected_cells(load_study("table2"), Selection(overrides=(override,)))
