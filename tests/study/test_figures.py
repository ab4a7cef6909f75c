import dataclasses

import numpy as np
import pandas as pd
import pytest

from seeupo_recipe.study.build import Builder
from seeupo_recipe.study.collapse import window
from seeupo_recipe.study.figures import curves, data, style
from seeupo_recipe.study.figures.drawing import Drawing
from seeupo_recipe.study.spec import load_study
from seeupo_recipe.study.training import curve, mean_curve


def block_of(world, study="figure4"):
    return Builder("mini", [study], world.overrides).blocks(load_study(study))[0]


def test_effort_is_accumulated_and_epochs_drop_the_last_incomplete_batch(world):
    world.finish(world.cell(), seconds=2.0)
    run = block_of(world)["seeupo", "vaulthop"].finished[0]
    frame = curve(run)
    assert run.epoch_iterations == 256 // 4
    assert frame["epoch"].tolist() == pytest.approx([i / 64 for i in range(1, 13)])
    assert frame["optimizer_steps"].iloc[-1] == 12 * 6 and frame["sampled_tokens"].iloc[1] == 1000
    assert frame["seconds"].iloc[-1] == pytest.approx(2.0 * (12 + 3))


def test_mean_curves_are_over_shared_iterations(world):
    for seed, level in enumerate((0.2, 0.6)):
        world.finish(world.cell(), seed, curve=[level] * 12)
    assert mean_curve(block_of(world)["seeupo", "vaulthop"].finished)["success"].tolist() == pytest.approx([0.4] * 12)


def test_curves_are_smoothed_as_the_collapse_rule_does_and_have_a_band_from_three_seeds(world):
    raw = [np.linspace(0.1, 0.5 + 0.1 * seed, 12) for seed in range(3)]
    for seed in range(3):
        world.finish(world.cell(), seed, curve=raw[seed])
        if seed < 2:
            world.finish(world.cell(variant="grpo-one"), seed, curve=raw[seed])
    block = block_of(world)
    frame = data.curve_frame(block, block.variants)
    width = window(12)
    expected = np.mean([[row[i : i + width].mean() for i in range(12 - width + 1)] for row in raw], axis=0)
    mine = frame[(frame["variant"] == "seeupo") & (frame["seed"] == 1)]
    assert mine["mean"].to_numpy() == pytest.approx(expected)
    assert mine["iteration"].tolist() == list(range(width, 13))
    assert (mine["low"] <= mine["mean"]).all() and (mine["mean"] <= mine["high"]).all()
    assert frame[frame["variant"] == "grpo-one"]["low"].isna().all()


def test_heldout_points_are_those_that_all_seeds_have(world):
    for seed in (0, 1):
        world.finish(world.cell(), seed)
    block = block_of(world)
    frame = data.heldout_frame(block, block.variants)
    assert frame[["split", "iteration"]].values.tolist() == [["test", 12], ["validation", 6], ["validation", 12]]
    runs = block["seeupo", "vaulthop"].finished
    assert frame["value"].iloc[1] == pytest.approx(np.mean([run.validation_scores()[6] for run in runs]))


def test_turn_diagnostics_average_over_seeds(world):
    for seed in (0, 1):
        world.finish(world.cell(), seed)
    frame = data.turn_frame(block_of(world), load_study("table2").variant("seeupo"))
    assert set(frame["turn"]) == set(range(1, 7)) and set(frame["metric"]) == set(data.DIAGNOSTICS)
    assert frame[(frame["turn"] == 2) & (frame["metric"] == "pool_size")]["value"].tolist() == [16.0] * 12


def test_one_look_per_method_everywhere():
    looks = {}
    for name in ("table2", "table4", "table5"):
        study = load_study(name)
        for place, variant in enumerate(study.variants):
            look = style.style_of(variant, "one", place)
            looks.setdefault(variant.style or variant.algorithm, set()).add((look.color, look.marker))
    assert all(len(found) == 1 for found in looks.values())
    assert len({found.copy().pop() for found in looks.values()}) == len(looks)


def test_a_sweeps_lines_have_their_methods_colour_and_differ():
    for name in ("ablation-lr", "ablation-inner-steps"):
        looks = {}
        for place, variant in enumerate(load_study(name).variants):
            method, steps = variant.algorithm, "one" if "one" in variant.name and "grpo" in variant.name else "matched"
            look = style.style_of(variant, steps, place)
            assert look.color == style.COLOURS[method]
            looks.setdefault((method, steps), set()).add(look)
        assert all(len(found) == 1 for found in looks.values())
        assert len({found.copy().pop() for found in looks.values()}) == len(looks)


def test_methods_differ_in_greyscale_or_marker():
    def grey(colour):
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    names = list(style.COLOURS)
    for i, a in enumerate(names):
        for b in names[:i]:
            apart = abs(grey(style.COLOURS[a]) - grey(style.COLOURS[b])) > 40
            assert apart or style.MARKERS[a] != style.MARKERS[b], (a, b)
    assert style.DASHES["one"] != style.DASHES["matched"]


def test_figures_are_the_same_bytes_again_and_only_for_backends_that_ran(world, folders):
    for seed in (0, 1):
        world.finish(world.cell(backend="lab"), seed)
    world.finish(world.cell(backend="lab", variant="base"))
    builder = Builder("mini", ["figure4", "figure5"], ())
    assert builder.figures() == [], "these runs were made with overrides: they are not the study's"
    builder = Builder("mini", ["figure4", "figure5"], world.overrides)
    first = {path: path.read_bytes() for path in builder.figures()}
    assert {p.name for p in first} == {
        f"{name}-lab{suffix}"
        for name in ("figure4", "figure1-heldout", "effort", "turns", "figure5")
        for suffix in (".png", ".pdf", ".csv")
    }
    for path in first:
        path.unlink()
    again = Builder("mini", ["figure4", "figure5"], world.overrides).figures()
    assert {path: path.read_bytes() for path in again} == first
    assert all(b"CreationDate" not in content for path, content in first.items() if path.suffix == ".pdf")


def test_a_figure_is_drawn_again_only_if_its_data_changed(world):
    world.finish(world.cell(backend="lab"), 0)
    builder = Builder("mini", ["figure5"], world.overrides)
    png, _, csv = builder.figures()
    png.write_bytes(b"kept")
    builder.figures(redraw=False)
    assert png.read_bytes() == b"kept"
    csv.write_text(csv.read_text().replace("0.2", "0.3"))
    builder.figures(redraw=False)
    assert png.read_bytes() != b"kept"


def test_data_of_a_figure_lie_beside_it(world):
    world.finish(world.cell(backend="lab"), 0)
    *_, csv = Builder("mini", ["figure5"], world.overrides).figures()
    frame = pd.read_csv(csv)
    assert {"benchmark", "variant", "model", "seed", "iteration", "epoch", "mean"} <= set(frame.columns)


def test_the_papers_points_stand_only_at_its_scale(world):
    """A run on what calls itself the paper's benchmark and model, shown at either scale."""
    world.overrides = (*world.overrides, "benchmark.paper_name=AppWorld")
    world.finish(world.cell())
    block = dataclasses.replace(block_of(world), model="Qwen3-14B")
    study = load_study("figure4")
    legends = {}
    for scale in ("mini", "paper"):
        drawing = Drawing(study, study.figures[0], scale, [block])
        curves.curves(drawing, curves.curve_frames(drawing))
        legends[scale] = [text for text in drawing.legend if "as described" in text]
    assert legends == {"mini": [], "paper": ["SeeUPO: the paper's figure, as described"]}
