import json
import subprocess
import sys

import pytest

from seeupo_recipe.records.identity import digest, folder_digest, make_run_id
from seeupo_recipe.records.run import FINISHED, RecordError, RunRecord, finite

IDENTITY = {"benchmark": "b", "model": "m", "algorithm": "a", "seed": 0, "config": {"x": 1}}


def new_record(tmp_path, identity=IDENTITY):
    return RunRecord.create(tmp_path / "run", config_yaml="x: 1\n", manifest={"identity": identity})


def test_run_id_depends_on_everything_that_defines_the_result_and_on_nothing_else():
    assert make_run_id(IDENTITY) == make_run_id(dict(reversed(IDENTITY.items())))
    assert make_run_id(IDENTITY) != make_run_id({**IDENTITY, "config": {"x": 2}})
    assert make_run_id(IDENTITY).startswith("b--m--a--s0--")


def test_folder_digest_sees_names_and_bytes(tmp_path):
    (tmp_path / "a").write_text("1")
    first = folder_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    second = folder_digest(tmp_path)
    (tmp_path / "b").write_text("2")
    assert len({first, second, folder_digest(tmp_path)}) == 3


def test_metrics_must_follow_each_other(tmp_path):
    record = new_record(tmp_path)
    record.append_metrics(1, {"a": 1.0})
    record.append_metrics(2, {"a": 2.0})
    for wrong in (2, 4):
        with pytest.raises(RecordError, match=f"iteration {wrong} after iteration 2"):
            record.append_metrics(wrong, {})
    assert [line["a"] for line in record.metrics()] == [1.0, 2.0]


def test_a_torn_last_line_is_dropped_and_overwritten_by_the_next_append(tmp_path):
    record = new_record(tmp_path)
    record.append_metrics(1, {"a": 1})
    path = record.folder / "metrics.jsonl"
    with path.open("ab") as handle:
        handle.write(b'{"iteration": 2, "a": 2')
    assert record.last_iteration() == 1
    record.append_metrics(2, {"a": 3})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"iteration": 1, "a": 1},
        {"iteration": 2, "a": 3},
    ]


def test_damage_before_the_last_line_is_an_error(tmp_path):
    record = new_record(tmp_path)
    (record.folder / "metrics.jsonl").write_text('{"iteration": 1\n{"iteration": 2}\n')
    with pytest.raises(RecordError, match="damaged"):
        record.metrics()


def test_rewind_moves_later_lines_aside_and_loses_none(tmp_path):
    record = new_record(tmp_path)
    for i in range(1, 5):
        record.append_metrics(i, {"a": i})
    record.append_evaluations(
        {"iteration": i, "split": "test", "task_id": "t", "sample": 0, "score": 1.0, "success": True} for i in (2, 4)
    )
    record.rewind(2)
    assert record.last_iteration() == 2
    assert record.evaluated(4, "test") == set() and record.evaluated(2, "test") == {("t", 0)}
    moved = [json.loads(line) for line in (record.folder / "superseded.jsonl").read_text().splitlines()]
    assert [(m["file"], m["iteration"]) for m in moved] == [
        ("metrics.jsonl", 3),
        ("metrics.jsonl", 4),
        ("eval.jsonl", 4),
    ]


def test_an_existing_record_is_reopened_and_another_identity_refused(tmp_path):
    record = new_record(tmp_path)
    record.set_status(FINISHED, note="kept")
    again = new_record(tmp_path)
    assert again.finished and again.status()["note"] == "kept"
    with pytest.raises(RecordError, match="belongs to another run"):
        new_record(tmp_path, {**IDENTITY, "seed": 1})


def test_only_one_process_writes(tmp_path):
    record = new_record(tmp_path)
    code = (
        "import sys; from pathlib import Path; from seeupo_recipe.records.run import RunRecord\n"
        "with RunRecord(Path(sys.argv[1])).locked(): print('locked')"
    )
    with record.locked():
        other = subprocess.run([sys.executable, "-c", code, str(record.folder)], capture_output=True, text=True)
    assert other.returncode != 0 and "being written by another process" in other.stderr
    free = subprocess.run([sys.executable, "-c", code, str(record.folder)], capture_output=True, text=True)
    assert free.stdout == "locked\n"


def test_values_that_json_cannot_hold_become_null():
    assert finite({"a": float("nan"), "b": float("inf"), "c": 1.5}) == {"a": None, "b": None, "c": 1.5}
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
