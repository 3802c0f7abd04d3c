"""The life of the driver's JVM: it is started so that nobody else on this computer can read its secrets or call its
Python half, and it is ended with its session."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Mapping
from typing import Any

from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaClass, JavaObject
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from penstock.logs import LOGGER, traced

#: Settings that hold secrets, by Spark's own rule for what it does not show (spark.redaction.regex).
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")
#: How long Py4J keeps a connection that nobody uses: its own default.
_IDLE_SECONDS = 30
#: How long the JVM may take to end before it is killed.
_END_SECONDS = 20


def has_session() -> bool:
    """Whether this process has a Spark session already: PySpark would hand that one out again, whatever it is asked."""
    return SparkContext._active_spark_context is not None


def start_jvm(conf: Mapping[str, str]) -> None:
    """Start the driver's JVM with the settings that others may see: PySpark puts all on a command line, which every
    user of this computer can read. The others reach it with the session, over Py4J."""
    shown = SparkConf(loadDefaults=False).setAll([item for item in conf.items() if not _SECRET.search(item[0])])
    SparkContext._ensure_initialized(conf=shown)


def close_callbacks(spark: SparkSession) -> None:
    """Let nobody but the driver's JVM call Python back: the port is open to every user of this computer, who could ask
    our sources for rows and tell our sinks of batches.

    PySpark starts that server without a token. Py4J knows one on both sides, but the Java half forgets it as soon as it
    is told the port (PythonClient.copyWith): so it gets a client that was made with port and token."""
    gateway: Any = getattr(spark.sparkContext, "_gateway", None) if has_session() else None
    if gateway is None:
        return  # Spark Connect: nobody calls back
    token = secrets.token_hex(32)
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]

    def java(name: str) -> Any:
        return JavaClass(name, gateway._gateway_client)

    server: Any = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    port, address = gateway._callback_server.port, server.getCallbackClient().getAddress()
    if isinstance(gateway, ClientServer):
        seconds, sockets = java("java.util.concurrent.TimeUnit").SECONDS, java("javax.net.SocketFactory").getDefault()
        client = java("py4j.PythonClient")(
            server.getGateway(), None, port, address, _IDLE_SECONDS, seconds, sockets, server, True, 0, token
        )
    else:  # the user has set PYSPARK_PIN_THREAD=false
        client = java("py4j.CallbackClient")(port, address, token)
    field = server.getGateway().getClass().getDeclaredField("cbClient")
    field.setAccessible(True)
    field.set(server.getGateway(), client)


def end_jvm() -> None:
    """End the JVM with its session: PySpark keeps it until Python ends, and a host that is stopped leaves no process
    behind."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    if process is not None:
        # The JVM ends when its standard input closes. It must be gone before the gateway is shut down: that waits for
        # threads which wait for the JVM.
        with traced("the standard input of the driver's JVM could not be closed", OSError):
            process.stdin.close()
        try:
            process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            LOGGER.warning("the driver's JVM did not end within %d s: Penstock kills it", _END_SECONDS)
            process.kill()
            process.wait()
    with traced("the gateway to the driver's JVM could not be shut down", Exception):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
