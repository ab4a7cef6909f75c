"""Savings of the update against their plain forms, on verl's worker: skipped rows, offload traffic, columns."""

from pathlib import Path

import pytest
import torch
import worker_case as case

SCRIPT = Path(case.__file__).with_name("updater_case.py")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    case.build_folder(folder)
    return case.launch(SCRIPT, folder, folder / "out.pt", ranks=1)


def tokens(rows):
    return sum(row.tokens for row in rows)


def assert_same_weights(a, b, limit=1e-6):
    assert a["weights"].keys() == b["weights"].keys()
    for name, value in a["weights"].items():
        assert torch.allclose(value, b["weights"][name], atol=limit), name


def test_rows_whose_m_is_zero_are_skipped_without_kl_and_the_update_is_the_same(cases):
    plain, unskipped = cases["plain"], cases["unskipped"]
    silent = [row for row in plain["rows"] if row.trajectory in ("t0", "t3")]
    assert silent and plain["backward"] == unskipped["backward"] - tokens(silent)
    assert_same_weights(plain, unskipped)
    assert plain["metrics"]["update/product_deviation"] == pytest.approx(
        unskipped["metrics"]["update/product_deviation"], rel=1e-3
    )


def test_with_kl_every_row_has_a_gradient_and_none_is_skipped(cases):
    assert cases["kl"]["backward"] == cases["kl_unskipped"]["backward"] == tokens(cases["kl"]["rows"])
    assert_same_weights(cases["kl"], cases["kl_unskipped"], limit=0.0)


def test_optimizer_state_moves_once_each_way_in_an_iteration(cases):
    steps_and_passes = len(cases["offload"]["requests"])
    assert steps_and_passes > case.TURNS
    assert cases["offload"]["moves"] == 2
    assert cases["restless"]["moves"] == 2 * steps_and_passes
    assert_same_weights(cases["offload"], cases["restless"], limit=0.0)


def test_workers_fetch_only_what_they_read(cases):
    for request in cases["kl"]["requests"]:
        assert {"input_ids", "response_mask"} <= set(request.fields)
        assert "task_facts" not in request.fields
