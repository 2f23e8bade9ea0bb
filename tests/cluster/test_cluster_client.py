"""Getting to a cluster: what is missing or differs is said in a sentence."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from types import SimpleNamespace

import distributed.utils
import pytest
from command_line import fails, python
from dask_cluster import client, scheduler
from distributed import LocalCluster

from gandalf.cluster import client as clients
from gandalf.cluster.client import connected, need_same_versions, versions
from gandalf.errors import DataError

assert client and scheduler  # fixtures


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{found.getsockname()[1]}"


def test_nobody_answers(monkeypatch, nobody, made_up):
    monkeypatch.setattr(clients.connected.__wrapped__, "__kwdefaults__", {"wait": 0.5, "workers": None})
    remedy = "start one with dask scheduler, or use --cluster local"
    sentence = fails("graph", made_up, "--cluster", nobody)
    assert sentence == f"no Dask scheduler answers at {nobody} within 0.5 s; {remedy}"


@pytest.mark.parametrize("address", ["localhost", "http://127.0.0.1:8786", "tcp://host", ""])
def test_an_address_that_is_none(made_up, address):
    assert "is not the address of a Dask scheduler" in fails("graph", made_up, "--cluster", address)


def test_a_scheduler_without_workers():
    with (
        LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
        ) as empty,
        pytest.raises(DataError, match="has no workers; start some with dask worker"),
        connected(empty.scheduler_address, wait=0.2),
    ):
        pass


def test_workers_with_other_versions(client):
    with pytest.raises(DataError, match=r"has numpy \d.* 0\.9; install the same versions"):
        need_same_versions(client, {**versions(), "numpy": "0.9"})


def test_workers_that_cannot_import_gandalf(client, monkeypatch):
    def nowhere(*_):
        raise ModuleNotFoundError("No module named 'gandalf'")

    monkeypatch.setattr(client, "run", nowhere)
    with pytest.raises(DataError, match=r"a worker cannot import gandalf \(No module named"):
        need_same_versions(client, versions())


def test_an_interrupt_before_a_call_has_begun_leaves_no_traceback(client, monkeypatch, caplog):
    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            raise KeyboardInterrupt

    busy = threading.Event()
    client.loop.add_callback(busy.wait)  # so that the call cannot begin
    with monkeypatch.context() as patch:
        names = SimpleNamespace(Event=Interrupted, get_ident=threading.get_ident)
        patch.setattr(distributed.utils, "threading", names)
        with pytest.raises(KeyboardInterrupt):
            client.sync(asyncio.sleep, 0)
    busy.set()
    client.sync(asyncio.sleep, 0.05)  # what the interrupted call has queued has run
    assert not [record for record in caplog.records if record.name == "tornado.application"]
    logging.getLogger("tornado.application").error("anything else is heard")
    assert caplog.records[-1].message == "anything else is heard"


def test_without_the_extra(made_up, tmp_path):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['dask', 'distributed']))\n"
        "from gandalf.cli.main import app\n"
        "app(sys.argv[1:])\n"
    )
    for words in (
        ("graph", made_up),
        ("augment", made_up, tmp_path / "out"),
        ("predict", tmp_path, made_up, "-o", "x"),
    ):
        done = python(code, *words, "--cluster", "local")
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr == "error: --cluster needs dask; pip install 'gandalf-xmc[cluster]'\n"


def test_counting_on_a_cluster_needs_no_engine():
    code = "import sys; sys.modules['torch'] = None; import gandalf.cluster.sharded, gandalf.cluster.points"
    assert python(code).returncode == 0


@pytest.mark.cluster
def test_work_that_kills_every_worker_ends_in_a_sentence():
    with pytest.raises(DataError, match="several workers died"), connected("local") as own:
        own.submit(os._exit, 1).result()


def test_one_machine_imports_none_of_it(made_up):
    code = (
        "import sys\n"
        "from gandalf.cli.main import app\n"
        "app(['graph', sys.argv[1]], standalone_mode=False)\n"
        "assert not {'dask', 'distributed', 'pyarrow'} & set(sys.modules), 'imported'\n"
    )
    done = python(code, made_up)
    assert done.returncode == 0, done.stderr
