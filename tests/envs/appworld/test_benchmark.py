import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from seeupo_recipe.envs.appworld import benchmark, worlds
from seeupo_recipe.envs.appworld.benchmark import OFFICIAL_SIZES
from seeupo_recipe.envs.appworld.mini import tasks
from seeupo_recipe.envs.appworld.mini.families import WORDS
from seeupo_recipe.envs.appworld.prompts import react_observation, react_prompt
from seeupo_recipe.envs.base import Benchmark, EpisodeKey, TeachableBenchmark, load_benchmark
from seeupo_recipe.models.tiny import build_tokenizer
from seeupo_recipe.strict import ConfigError

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def setup_script():
    specification = importlib.util.spec_from_file_location("setup_appworld", PROJECT / "scripts" / "setup_appworld.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def write_lists(root, sizes):
    folder = root / "data" / "datasets"
    folder.mkdir(parents=True)
    for split, size in sizes.items():
        ids = [f"{split[:2]}{i // 3:03d}_{i % 3 + 1}" for i in range(size)]
        (folder / f"{split}.txt").write_text("\n".join(ids))
        for task_id in ids:
            task = root / "data" / "tasks" / task_id
            task.mkdir(parents=True)
            (task / "specs.json").touch()


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Stands in for `.venv-appworld`, which no test here starts."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(benchmark, "VENV", venv)
    monkeypatch.setattr(worlds, "VENV", venv)


@pytest.fixture
def official_root(tmp_path):
    write_lists(tmp_path / "official", OFFICIAL_SIZES)
    return tmp_path / "official"


@pytest.fixture
def mini_root(tmp_path):
    write_lists(tmp_path / "mini", {"train": 6})
    (tmp_path / "mini" / "content_hash.txt").write_text(tasks.content_hash())
    return tmp_path / "mini"


def test_the_official_lists(installed, official_root):
    bench = load_benchmark("appworld", root=official_root)
    assert isinstance(bench, Benchmark)
    assert {split: len(bench.task_ids(split)) for split in OFFICIAL_SIZES} == OFFICIAL_SIZES
    assert len({bench.cluster(task_id) for task_id in bench.task_ids("dev")}) == 19
    assert (bench.max_turns, bench.max_new_tokens, bench.blocking) == (10, 3000, True)


def test_the_version_follows_the_lists_and_the_ground_truth(installed, official_root, tmp_path):
    before = load_benchmark("appworld", root=official_root).version
    truth = official_root / "data" / "tasks" / "de000_1" / "ground_truth"
    truth.mkdir()
    versions = {before}
    for name in ("answer.json", "evaluation.py"):
        (truth / name).write_text("3")
        versions.add(load_benchmark("appworld", root=official_root).version)
    path = official_root / "data" / "datasets" / "dev.txt"
    path.write_text(path.read_text().replace("de000_1", "de999_1"))
    versions.add(load_benchmark("appworld", root=official_root).version)
    assert len(versions) == 4
    assert "0.1.3.post1" in before


def test_wrong_list_sizes_are_refused(installed, tmp_path):
    write_lists(tmp_path / "data_root", {**OFFICIAL_SIZES, "dev": 30})
    with pytest.raises(ValueError, match="'dev': 30"):
        load_benchmark("appworld", root=tmp_path / "data_root")


@pytest.mark.parametrize("name", ["appworld", "appworld-mini"])
def test_without_set_up_the_error_says_what_to_run(name, monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "VENV", tmp_path / "no venv")
    with pytest.raises(ConfigError, match="make setup-appworld"):
        load_benchmark(name)


def test_missing_data_is_told_from_a_missing_environment(installed, tmp_path):
    with pytest.raises(ConfigError, match="DATA=official"):
        load_benchmark("appworld", root=tmp_path)


def test_mini(installed, mini_root):
    bench = load_benchmark("appworld-mini", root=mini_root)
    assert isinstance(bench, TeachableBenchmark)
    assert bench.version == benchmark.mini_version()
    assert bench.version.endswith(tasks.content_hash())
    assert bench.task_ids("train")[0] == "tr000_1"
    with pytest.raises(ValueError, match="no split 'test'; known: train"):
        bench.task_ids("test")


def test_demonstrations_are_played_once_and_handed_out_relabelled(installed, mini_root, monkeypatch):
    write_lists(mini_root.parent / "more", {"warm_start": 6})
    (mini_root.parent / "more" / "content_hash.txt").write_text(tasks.content_hash())
    bench = load_benchmark("appworld-mini", root=mini_root.parent / "more")
    played = []

    def play(task_id, rng, noise):
        played.append(task_id)
        return [{"role": "user", "content": f"What does my note amber say? {task_id}"}], None

    monkeypatch.setattr(bench, "play_demonstrator", play)
    rng = np.random.default_rng(0)
    texts = {bench.demonstrate("demonstration-1", rng)[0]["content"] for _ in range(200)}
    assert sorted(played) == sorted(bench.task_ids("warm_start"))
    assert {text.split("? ")[1] for text in texts} == set(played)
    assert len({text.split("?")[0] for text in texts}) == len(WORDS)


def test_the_tokenizer_writes_messages_back_without_a_change(installed, mini_root):
    tokenizer = build_tokenizer(load_benchmark("appworld-mini", root=mini_root).vocabulary())
    for text in (
        '```python\n[print(x["id"])for(x)in(apis.phone.show_alarms(access_token=t))]\n```',
        "1 amber\n2 coral",
    ):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text.replace(" ", "")


def test_mini_data_of_other_specifications_is_refused(installed, mini_root):
    (mini_root / "content_hash.txt").write_text("000000000000")
    with pytest.raises(ConfigError, match="setup-appworld"):
        load_benchmark("appworld-mini", root=mini_root)


def test_episodes_of_equal_settings_share_one_pool(installed, mini_root):
    bench = load_benchmark("appworld-mini", root=mini_root)
    again = load_benchmark("appworld-mini", root=mini_root, reward="shaped")
    other = load_benchmark("appworld-mini", root=mini_root, worlds=2)
    pools = [b.make(EpisodeKey(0, 0, "tr000_1", 0))._pool for b in (bench, bench, again, other)]
    assert pools[0] is pools[1] is pools[2] is not pools[3]


def test_unknown_options_are_refused(installed, mini_root):
    with pytest.raises(TypeError, match="wrolds"):
        load_benchmark("appworld-mini", root=mini_root, wrolds=2)


def test_the_react_prompt_holds_what_a_task_needs():
    opened = {
        "instruction": "Like {every} song.",
        "supervisor": {"first_name": "Ana", "last_name": "Reed", "email": "a@b.c", "phone_number": "123"},
        "datetime": "2023-05-18T12:00:00",
        "app_descriptions": {"spotify": "A music app."},
    }
    system, user = react_prompt(opened)
    assert (system["role"], user["role"]) == ("system", "user")
    assert "spotify: A music app." in system["content"]
    for part in ("Ana Reed", "a@b.c", "123", "2023-05-18 12:00:00", "Like {every} song."):
        assert part in user["content"]
    assert react_observation("42") == "Output:\n```\n42\n```"


def test_outputs_can_be_cut_by_a_real_tokenizer(tmp_path):
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model.train_from_iterator(["the cat sat on the mat"], trainer)
    PreTrainedTokenizerFast(tokenizer_object=model).save_pretrained(tmp_path)
    split = benchmark._tokenizer_split(str(tmp_path))
    for text in ("the cat", "  spaces\n\nand ümlauts 日本 ", ""):
        assert "".join(split(text)) == text
    assert len(split("the the the")) == 3


def test_set_up_tells_what_official_data_lacks(setup_script, official_root):
    assert setup_script.missing_official(official_root) is None
    victim = official_root / "data" / "tasks" / "de000_1" / "specs.json"
    victim.unlink()
    assert setup_script.missing_official(official_root) == "no folder for task de000_1"
    (official_root / "data" / "datasets" / "dev.txt").write_text("de000_1")
    assert setup_script.missing_official(official_root) == "1 tasks in dev, expected 57"
    (official_root / "data" / "datasets" / "train.txt").unlink()
    assert setup_script.missing_official(official_root) == "no data/datasets/train.txt"


def test_set_up_finds_a_python_that_appworld_runs_on(setup_script, monkeypatch):
    monkeypatch.setattr(setup_script.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="3.11 or 3.12"):
        setup_script.find_python()
