"""Build AppWorld's data folder for ``appworld-mini`` from task specifications, with AppWorld's own models.

Reads what :func:`seeupo_recipe.envs.appworld.mini.tasks.build_input` returns as JSON from stdin and writes
``data/`` under ``APPWORLD_ROOT`` in AppWorld's layout: API docs, base databases, one folder per task.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from appworld.apps import get_all_apps
from appworld.apps.model_lib import CachedDBHandler, ModelHashHandler, get_db_home_path
from appworld.collections.api_docs import ApiDocCollection
from appworld.collections.models import ModelCollection
from appworld.common.constants import CANARY_STRING, DB_VERSION
from appworld.common.path_store import path_store
from appworld.common.utils import freeze_time

_APPS = get_all_apps(skip_admin=True)
_PERSON = ("first_name", "last_name", "email", "phone_number")


def main() -> None:
    content = json.load(sys.stdin)
    data = Path(path_store.data)
    now = datetime.fromisoformat(content["date_and_time"])
    with freeze_time(now):
        docs = ApiDocCollection.build(load_apps=tuple(_APPS), include_response_schemas=True)
        _write_api_docs(data / "api_docs" / "standard", docs)
        base = get_db_home_path(storage_type="disk", type="base")
        _write_base_databases(base, docs)
        write = functools.partial(_write_task, data / "tasks", base, now, content["programs"])
        with multiprocessing.get_context("fork").Pool() as pool:
            pool.map(write, content["tasks"], chunksize=8)
    for split, task_ids in content["splits"].items():
        _write(data / "datasets" / f"{split}.txt", "\n".join(task_ids))
    _write(data / "version.txt", DB_VERSION)


def _write_api_docs(folder: Path, docs: ApiDocCollection) -> None:
    for app, apis in docs.items():
        _write(folder / f"{app}.json", {name: {**doc, "canary_string": CANARY_STRING} for name, doc in apis.items()})


def _write_base_databases(base: str, docs: ApiDocCollection) -> None:
    os.makedirs(base)
    models = ModelCollection.load(
        to_db_home_path=base, from_db_home_path=base, load_apps=[*_APPS, "admin"], create_db=True
    )
    fields = ("path", "method", "description", "parameters", "response_schemas")
    for app, apis in docs.items():
        for name, doc in apis.items():
            models.api_docs.ApiDoc.create_save(app_name_=app, api_name=name, **{field: doc[field] for field in fields})
    ModelHashHandler.save(base, base)
    CachedDBHandler.reset()


def _write_task(tasks: Path, base: str, now: datetime, programs: dict[str, str], task: dict[str, Any]) -> None:
    folder, person, question, program = tasks / task["id"], task["person"], task["question"], programs[task["family"]]
    models = ModelCollection.load(
        to_db_home_path=f":memory:task_input-{task['id']}", from_db_home_path=base, load_apps=[*_APPS, "admin"]
    )
    models.admin.MainUser.create_save(**person)
    supervisor = models.supervisor.Supervisor.create_save(**person)
    models.supervisor.Task.create_save(supervisor_id=supervisor.id, instruction=task["instruction"])
    for app, password in task["passwords"].items():
        models.supervisor.AccountPassword.create_save(supervisor_id=supervisor.id, account_name=app, password=password)
        models[app].User.create_save(**_user(app, person, password, question["balance"]))
    for app, model, fields in question["records"]:
        models[app][model].create_save(**{name: _value(name, value) for name, value in fields.items()})
    apps = [*_APPS, "admin"]
    models.save(str(folder / "dbs"), "changes", apps, delete_if_exists=True, save_model_hashes=True)
    models.close()
    specs = {"instruction": task["instruction"], "supervisor": {key: person[key] for key in _PERSON}}
    specs |= {"datetime": now.isoformat(), "db_version": DB_VERSION, "canary_string": CANARY_STRING}
    _write(folder / "specs.json", specs)
    truth = folder / "ground_truth"
    _write(truth / "public_data.json", question["values"])
    _write(truth / "private_data.json", question["private"])
    _write(truth / "answer.json", question["answer"])
    _write(truth / "evaluation.py", program)
    requirements = re.findall(r'with test\("(.*?)"\)', program)
    _write(truth / "test_data.json", [{"requirement": text, "label": "no_op_fail"} for text in requirements])
    unknown = dict.fromkeys(("num_apps", "num_apis", "num_api_calls", "num_solution_code_lines"))
    _write(truth / "metadata.json", {"difficulty": 1, "mode": "minimal", **unknown})


def _user(app: str, person: dict[str, str], password: str, balance: float) -> dict[str, Any]:
    fields: dict[str, Any] = {key: person[key] for key in ("first_name", "last_name")} | {"password": password}
    if app == "phone":
        return fields | {"phone_number": person["phone_number"]}
    fields |= {"email": person["email"], "verified": True}
    return fields | ({"venmo_balance": balance} if app == "venmo" else {})


def _value(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if name.endswith("_date") else value


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) and path.suffix != ".json" else json.dumps(content))


if __name__ == "__main__":
    main()
