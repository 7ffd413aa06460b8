"""The file of `kvarn up --ready-file`: where the stack is reached and which processes it is made of, for scripts."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from kvarn_cli.supervisor import ProcessView


def write_ready_file(path: Path, base_url: str, processes: Sequence[ProcessView]) -> None:
    """Replaced in one step: a reader sees the old or the new content, never half of it."""
    router_pids = [each.pid for each in processes if each.plan.role == "router"]
    content = {
        "base_url": base_url,
        "router_pid": router_pids[0],
        "workers": [
            {
                "role": each.plan.role,
                "worker_id": each.plan.name,
                "address": each.plan.address,
                "pid": each.pid,
                "metrics_port": each.plan.metrics_port,
                "stage": each.stage.value,
                "restarts": each.restarts,
            }
            for each in processes
            if each.plan.role != "router"
        ],
    }
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(fresh, path)
