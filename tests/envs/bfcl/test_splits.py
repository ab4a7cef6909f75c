import shutil
from importlib import metadata

import pytest

from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.envs.bfcl import package
from seeupo_recipe.envs.bfcl.splits import make_splits, require_one_version


def test_the_release_split_is_the_first_and_second_half_of_base(bfcl):
    assert bfcl.task_ids("train") == tuple(f"multi_turn_base_{i}" for i in range(100))
    assert bfcl.task_ids("test") == tuple(f"multi_turn_base_{i}" for i in range(100, 200))


def test_the_release_split_is_a_domain_shift(bfcl):
    def share(split, classes):
        return sum(bool(classes & set(bfcl.tasks[id_].classes)) for id_ in bfcl.task_ids(split)) / 100

    assert share("train", {"GorillaFileSystem", "VehicleControlAPI"}) == 1
    assert share("test", {"GorillaFileSystem", "VehicleControlAPI"}) == 0
    assert share("test", {"TradingBot", "TravelAPI"}) == 1


@pytest.mark.parametrize("category", ["base", "miss_func", "miss_param", "long_context"])
@pytest.mark.parametrize("kind", ["", "random_"])
def test_train_and_test_divide_each_category_without_a_shared_scenario(bfcl, category, kind):
    train, test = (bfcl.task_ids(f"{category}_{kind}{half}") for half in ("train", "test"))
    assert (len(train), len(test)) == (100, 100)
    assert sorted([*train, *test]) == sorted(bfcl.task_ids(category))
    if kind:
        assert not {bfcl.cluster(task_id) for task_id in train} & {bfcl.cluster(task_id) for task_id in test}


def test_random_splits_depend_on_the_seed_only():
    assert make_splits(1) == make_splits(1)
    assert make_splits(1)["random_train"] != make_splits(2)["random_train"]


def test_clusters_join_the_same_scenario_of_all_categories(bfcl):
    assert len({bfcl.cluster(f"multi_turn_{c}_7") for c in ("base", "miss_func", "miss_param", "long_context")}) == 1
    assert len({bfcl.cluster(task_id) for task_id in bfcl.task_ids("all")}) == 195


def test_unknown_splits_are_refused(bfcl):
    with pytest.raises(ValueError, match="unknown split 'dev' of bfcl; known: base"):
        bfcl.task_ids("dev")


def test_task_lists_have_distinct_hashes(bfcl):
    hashes = {bfcl.split_hash(split) for split in ("train", "test", "random_train", "random_test", "all")}
    assert len(hashes) == 5
    assert load_benchmark("bfcl", max_turns=10**6, split_seed=1).split_hash("random_train") not in hashes


def test_everything_that_changes_scores_changes_the_version(bfcl):
    others = [
        load_benchmark("bfcl", max_turns=10),
        load_benchmark("bfcl", max_turns=10**6, reward="shaped"),
        load_benchmark("bfcl", max_turns=10**6, split_seed=1),
        load_benchmark("bfcl-mini"),
    ]
    assert len({bfcl.version, *(other.version for other in others)}) == 5
    assert package.VERSION in bfcl.version and package.CONTENT in bfcl.version
    assert load_benchmark("bfcl", max_turns=10**6).version == bfcl.version


def test_f23_results_of_different_versions_are_not_mixed(bfcl):
    assert require_one_version([bfcl.version, bfcl.version]) == bfcl.version
    other = bfcl.version.replace(package.VERSION, "2025.12.17")
    with pytest.raises(ValueError, match=r"(?s)2025\.12\.17.*2026\.3\.23"):
        require_one_version([bfcl.version, other])
    with pytest.raises(ValueError, match="none"):
        require_one_version([])


def test_f23_another_package_version_is_refused_with_both_versions(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "2025.12.17")
    with pytest.raises(RuntimeError, match=r"2025\.12\.17 is installed.*2026\.3\.23.*pip install"):
        package.package_dir.__wrapped__()


def test_f23_changed_package_files_are_refused(tmp_path, monkeypatch):
    copy = tmp_path / "bfcl_eval"
    shutil.copytree(package.package_dir(), copy)
    assert package.content_hash(copy) == package.CONTENT
    checker = copy / "eval_checker" / "multi_turn_eval" / "multi_turn_checker.py"
    checker.write_text(checker.read_text().replace('"valid": False', '"valid": True'))
    assert package.content_hash(copy) != package.CONTENT
    monkeypatch.setattr(package, "content_hash", lambda root: "0123456789abcdef")
    with pytest.raises(RuntimeError, match="0123456789abcdef"):
        package.package_dir.__wrapped__()


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(package.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install --no-deps bfcl-eval==2026.3.23"):
        package.package_dir.__wrapped__()
