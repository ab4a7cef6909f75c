"""One AppWorld task at a time on the real engine: its databases, its APIs and its evaluation.

This is the part of ``appworld.AppWorld`` that an episode needs, without the in-process shell (the
policy's code runs in an :mod:`interpreter <.interpreter>` process instead) and without writing the
databases and logs to disk after every step. ``tests/envs/appworld`` holds it equal to the original.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

from appworld.apps import build_main_app, get_all_apps
from appworld.apps.api_lib import set_local_date_and_time, set_local_random_seed, unset_local_date_and_time
from appworld.apps.model_lib import (
    CachedDBHandler,
    Database,
    ModelHashHandler,
    get_cached_db_engine,
    get_db_home_path,
    get_direct_cached_sqlite3_connection,
)
from appworld.apps.supervisor.constants import TASK_STATUS_LITERAL
from appworld.collections.models import ModelCollection, ModelCollectionPair
from appworld.common.constants import DB_VERSION, DEFAULT_SYSTEM_DATETIME
from appworld.common.utils import get_name_to_apis, get_type_args
from appworld.evaluator import TestTracker
from appworld.ground_truth import GroundTruth
from appworld.requester import Requester
from appworld.task import Task
from fastapi.testclient import TestClient

RANDOM_SEED = 100  # AppWorld's default
MAX_API_CALLS_PER_BLOCK = 1000  # AppWorld's default

_ALL_APPS = tuple(sorted(get_all_apps()))
_APPS = get_all_apps(skip_admin=True)
_FINISHED = set(get_type_args(TASK_STATUS_LITERAL))
_RESERVED_ARGUMENTS = {"client", "show", "track"}


def api_names() -> dict[str, list[str]]:
    """Names of the APIs that the policy may call, by app."""
    return {app: list(get_name_to_apis(app, ignore_private_apis=True)) for app in _APPS}


class Engine:
    """The world: at most one open task."""

    def __init__(self) -> None:
        self._api_names = {app: frozenset(names) for app, names in api_names().items()}
        self._app = build_main_app(_ALL_APPS)
        self._task: Task | None = None
        self._freezer: Any = None
        self._engine_details: dict[Any, Any] = {}
        _remember_engine_details(self._engine_details)

    def warm_up(self) -> None:
        """Do once what every world would do at first use, on the base databases and without any task.

        Leaves the clock frozen at AppWorld's default date, and no thread, connection or task data behind,
        so that the process may be forked.
        """
        set_local_date_and_time(DEFAULT_SYSTEM_DATETIME)
        base = get_db_home_path(storage_type="disk", type="base")
        starts = get_db_home_path(storage_type="memory", type="task_input", task_id="warm_up")
        ends = get_db_home_path(storage_type="memory", type="task_output", task_id="warm_up")
        start = ModelCollection.load(to_db_home_path=starts, from_db_home_path=base, load_apps=[*_APPS, "admin"])
        end = ModelCollection.load(to_db_home_path=ends, from_db_home_path=base, load_apps=_APPS)
        self._connect(ends, base)
        self._requester.request("api_docs", "show_app_descriptions")
        for app, names in self._api_names.items():
            if "login" in names:
                self._requester.request(app, "login", raise_on_failure=False, username="nobody", password="none")
                self._requester.request(app, "show_account", raise_on_failure=False, access_token="none")
        ModelCollectionPair(starts, start, ends, end).changed_model_names()
        self._requester.close()
        self.close()
        get_direct_cached_sqlite3_connection.cache_clear()
        get_cached_db_engine.cache_clear()
        gc.collect()
        gc.freeze()
        gc.set_threshold(500_000)

    def open(self, task_id: str) -> Task:
        """Load a task's databases and freeze the clock at its date.

        Raises:
            ValueError: If the task was made for another version of the databases.
        """
        self.close()
        task = Task.load(task_id=task_id, load_ground_truth=False)
        if task.db_version != DB_VERSION:
            raise ValueError(f"task {task_id} has database version {task.db_version}, this package has {DB_VERSION}")
        if task.datetime != DEFAULT_SYSTEM_DATETIME:
            self._freezer = set_local_date_and_time(task.datetime)
        set_local_random_seed(RANDOM_SEED)
        self._home = get_db_home_path(storage_type="memory", type="task_output", task_id=task_id)
        self._models = ModelCollection.load(
            to_db_home_path=self._home, from_db_home_path=task.models_from_db_home_path, load_apps=task.allowed_apps
        )
        self._connect(self._home, task.models_from_db_home_path)
        self._task = task
        return task

    def begin_block(self) -> None:
        """Start counting API calls anew, as AppWorld does for every code block."""
        self._requester.reset_request_count()

    def call(self, app: Any, api: Any, arguments: Any) -> Any:
        """Call a public API with keyword arguments sent by the policy's code.

        Raises:
            Exception: With AppWorld's message, if the call fails or is not allowed.
        """
        if not (isinstance(app, str) and isinstance(api, str) and isinstance(arguments, Mapping)):
            raise Exception("malformed API call")
        if api not in self._api_names.get(app, ()):
            raise Exception(f"No API named '{api}' found in the {app} app.")
        for name in arguments:
            if name in _RESERVED_ARGUMENTS or name.startswith("_"):
                raise Exception(f"Unexpected parameter '{name}' passed to apis.{app}.{api}.")
        return self._requester.request(app, api, **arguments)

    def completed(self) -> bool:
        """Whether ``complete_task`` was called."""
        return self._requester.request("supervisor", "show_active_task", track=False)["status"] in _FINISHED

    def evaluate(self) -> dict[str, Any]:
        """Run the task's evaluation program on the databases before and after the episode.

        Returns:
            ``passed`` and ``failed`` requirements, and ``error`` if the program itself broke on this state
            (then the requirements it did not reach count as failed).
        """
        task = self._task
        truth = GroundTruth.load(task_id=task.id)
        start = task.model_collection
        pair = ModelCollectionPair(task.models_from_db_home_path, start, self._home, self._models)
        tracker = TestTracker(test_data=truth.test_data, difficulty=truth.metadata["difficulty"], suppress_errors=True)
        error = None
        try:
            truth.evaluation_module().evaluate(
                test=tracker,
                public_data=truth.public_data,
                private_data=truth.private_data,
                main_user=pair.start.admin.MainUser.find_one(**task.supervisor),
                models=pair,
                ground_truth_answer=truth.answer,
            )
        except Exception as exception:
            error = f"{type(exception).__name__}: {exception}"
        passed = [entry["requirement"] for entry in tracker.passes]
        failed = [entry["requirement"] for entry in truth.test_data if entry["requirement"] not in passed]
        return {"passed": passed, "failed": failed, "difficulty": truth.metadata["difficulty"], "error": error}

    def close(self) -> None:
        """Drop the open task's databases and go back to the default date."""
        if self._freezer is not None:
            unset_local_date_and_time(self._freezer)
            self._freezer = None
        CachedDBHandler.reset()
        ModelHashHandler.reset()
        self._engine_details.clear()
        self._task = None

    def _connect(self, home: str, source: str) -> None:
        if _ALL_APPS not in Requester.clients:
            Requester.clients[_ALL_APPS] = TestClient(self._app).__enter__()
        self._requester = Requester(
            to_db_home_path=home,
            from_db_home_path=source,
            load_apps=_APPS,
            raise_on_failure=True,
            max_num_requests=MAX_API_CALLS_PER_BLOCK,
        )


def _remember_engine_details(memory: dict[Any, Any]) -> None:
    """Look up a database's url, path and connection once: AppWorld does it at every switch between databases."""
    details = Database._get_engine_to_details

    def remembered(engine: Any) -> Any:
        if engine not in memory:
            memory[engine] = details(engine)
        return memory[engine]

    Database._get_engine_to_details = staticmethod(remembered)
