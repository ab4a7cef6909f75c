from seeupo_recipe.study.cells import Selection, selected_cells
from seeupo_recipe.study.spec import load_study


def test_a_scale_without_a_studys_default_benchmarks_takes_its_own():
    cells = selected_cells(load_study("table2"), Selection("paper", variants=("seeupo",)))
    assert {(c.model, c.benchmark) for c in cells} == {
        (model, benchmark) for model in ("qwen3-14b", "qwen2.5-14b") for benchmark in ("appworld", "bfcl")
    }
