"""Whom the cluster blames for a lost worker, and where it sends a unit that failed."""

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines import cluster
from pipelines.attempts import COMPUTED, MARK
from pipelines.cluster import DaskExecutor
from pipelines.watchdog_records import Death


def executor(run_dir: Path, **attributes: Any) -> Any:
    made = DaskExecutor.__new__(DaskExecutor)
    made._run_dir = run_dir
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def leave(run_dir: Path, name: str, age: float, *, computed: bool = False) -> None:
    folder = run_dir / ".ember/staging" / name
    (folder / MARK).mkdir(parents=True)
    os.utime(folder / MARK, (time.time() - age,) * 2)
    if computed:
        (folder / COMPUTED).touch()


@pytest.mark.parametrize("beside_first", [True, False])
def test_tries_that_only_stood_beside_a_death_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside_first: bool
) -> None:
    asked = []

    def read_death(_run_dir: Path, host: str, pid: int, wait: float) -> Death:
        asked.append((host, pid))
        return Death(host, pid, "signal", "signal 11")

    monkeypatch.setattr(cluster, "read_death", read_death)
    leave(tmp_path, "00001.0.aaaaaaaa.7.host-a", 20 if beside_first else 10, computed=True)
    leave(tmp_path, "00002.0.bbbbbbbb.7.host-a", 5)  # that is what process 7 was computing
    leave(tmp_path, "00001.0.cccccccc.3.host-b", 10 if beside_first else 20)
    outcome = executor(tmp_path)._death(SimpleNamespace(prefix="00001.0."))
    assert asked == [("host-b", 3)]
    assert (outcome.cause.host, outcome.cause.deaths) == ("host-b", 1)


def test_a_host_is_avoided_by_whatever_the_scheduler_knows_it_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, _port: None) -> list[Any]:
        if host != "host-a":
            raise socket.gaierror
        return [(None, None, None, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    workers = {"tcp://10.0.0.1:1": {"host": "10.0.0.1"}, "tcp://10.0.0.2:1": {"host": "10.0.0.2"}}
    client = SimpleNamespace(scheduler_info=lambda n_workers: {"workers": workers})
    cluster._addresses.cache_clear()
    assert executor(Path(), _client=client)._others("host-a") == ["tcp://10.0.0.2:1"]
    assert executor(Path(), _client=client)._others("10.0.0.2") == ["tcp://10.0.0.1:1"]
    assert executor(Path(), _client=client)._others("unheard-of") is None
    assert executor(Path(), _client=client)._others("") is None


def test_a_record_lost_with_its_worker_is_asked_for_again_and_nobody_is_blamed() -> None:
    task = SimpleNamespace(piece="00003")
    outcome = executor(Path())._outcome(task, SimpleNamespace(status="lost"))
    assert (outcome.task, outcome.record, outcome.cause, outcome.beside) == (task, None, None, False)
