"""A standalone Spark cluster on this machine: a master and two workers, from the pip package."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import IO

import psutil
import pyspark

from penstock.spark.java import find_java_home
from tests.forked_python import ROOT
from tests.spark.faults.drivers import kill_trees

MASTER = "127.0.0.1"
#: on addresses of their own: a task is never doubled on the machine that runs it already
WORKERS = ("127.0.0.1", "127.0.0.2")


class Cluster:
    """A master, and workers of one core each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._log: IO[bytes] = (folder / "cluster.log").open("wb")
        self._master = self._start("master.Master", f"--host={MASTER}", f"--port={self._port}")
        self._workers = {host: self._start_worker(host) for host in WORKERS}

    @property
    def url(self) -> str:
        """What a driver takes for its master."""
        return f"spark://{MASTER}:{self._port}"

    def replace_lost_workers(self) -> None:
        """Start a worker in place of each that was killed."""
        for host, worker in self._workers.items():
            if worker.poll() is not None:
                self._workers[host] = self._start_worker(host)

    def stop(self) -> None:
        """End all that was started."""
        processes = [self._master, *self._workers.values()]
        kill_trees(psutil.Process(one.pid) for one in processes if one.poll() is None)
        for one in processes:
            one.wait()
        self._log.close()

    def _start_worker(self, host: str) -> subprocess.Popen[bytes]:
        options = (f"--host={host}", "--cores=1", "--memory=1g", f"--work-dir={self._folder}")
        return self._start("worker.Worker", *options, self.url)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        options = [word for one in arguments for word in one.split("=", 1)]
        return subprocess.Popen(
            [program, f"org.apache.spark.deploy.{name}", "--webui-port", "0", *options],
            env={**os.environ, **_environment()},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )


def _environment() -> dict[str, str]:
    """Return what a worker's executors inherit, besides the worker itself."""
    return {
        "JAVA_HOME": str(find_java_home()),
        # an executor has neither the options of a session nor those of a worker
        "JDK_JAVA_OPTIONS": os.environ["SPARK_DAEMON_JAVA_OPTS"],
        "PYTHONPATH": str(ROOT),  # where its daemon is found
    }


def executor_of(task: int) -> psutil.Process:
    """Return the executor that runs a task, given the task's Python process."""
    return _above(task, "CoarseGrainedExecutorBackend")


def worker_of(task: int) -> psutil.Process:
    """Return the worker whose executor runs a task, given the task's Python process."""
    return _above(task, "org.apache.spark.deploy.worker.Worker")


def _above(process: int, name: str) -> psutil.Process:
    parents = psutil.Process(process).parents()
    return next(one for one in parents if any(name in word for word in one.cmdline()))


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind((MASTER, 0))
        return int(found.getsockname()[1])
