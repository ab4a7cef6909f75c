"""What the recipes compose to changes only where the change is meant."""

import importlib.util
import json
from pathlib import Path

spec = importlib.util.spec_from_file_location("snapshot", Path(__file__).with_name("snapshot.py"))
snapshot = importlib.util.module_from_spec(spec)
spec.loader.exec_module(snapshot)


def test_the_papers_cells_compose_as_recorded():
    recorded, found = json.loads(snapshot.FILE.read_text()), snapshot.compose()
    assert found.keys() == recorded.keys()
    for name in recorded:
        assert found[name] == recorded[name], name
