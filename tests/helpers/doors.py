"""What anybody else on this computer may try at an open port: web pages, Py4J's commands, Spark's own messages.

Each returns what was answered, as it came; nothing if the door stayed shut.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import psutil

#: Shut doors answer at once, so waiting costs nothing but where somebody waits for more.
SECONDS = 5.0
MOST_REDIRECTIONS = 5
#: Who tries one thing after the other waits long where nothing is ever answered.
AT_ONCE = 24
LOCATION = re.compile(rb"\r\nLocation: (?:http://[^/]+)?(/\S*)")
#: Pages that show something, of Spark's master, worker, driver and history, of REST submission, and of Penstock.
READ = (
    "/",
    "/json/",
    "/json/clusterutilization",
    "/environment/",
    "/app/?appId={app}",
    "/app/json?appId={app}",
    "/logPage/?self&logType=out",
    "/logPage/?appId={app}&executorId=0&logType=stderr",
    "/log/?appId={app}&executorId=0&logType=stderr&byteLength=100000",
    "/metrics/json/",
    "/metrics/master/json/",
    "/metrics/applications/json/",
    "/metrics/prometheus/",
    "/static/spark-logo.svg",
    "/threadDump/",
    "/api/v1/applications",
    "/api/v1/applications/{app}/environment",
    "/v1/submissions/status/driver-1",
    "/v1/status",
    "/v1/topology",
    "/v1/events",
    "/metrics",
    "/nothing/that/is/there",
    "/../etc/passwd",
)
#: Requests that change something.
CHANGE = (
    ("POST", "/workers/kill/?host={machine}"),
    ("POST", "/workers/kill?host={machine}"),
    ("GET", "/workers/kill/?host={machine}"),
    ("POST", "/app/kill/?id={app}&terminate=true"),
    ("POST", "/driver/kill/?id=driver-1&terminate=true"),
    ("POST", "/v1/submissions/create"),
    ("POST", "/v1/submissions/killall"),
    ("POST", "/v1/stop"),
    ("POST", "/v1/scale-in"),
    ("POST", "/v1/pause"),
    ("DELETE", "/"),
    ("PUT", "/"),
    ("OPTIONS", "/"),
    ("TRACE", "/"),
)
#: Python objects that Java can call are named p0, p1, ...; Java's objects o0, o1, ...; classes and the gateway itself.
PY4J = (
    *(f"c\np{number}\n{method}\ne\n" for number in range(4) for method in ("toString", "getOffset", "stop")),
    "c\nt\ngetOffset\ne\n",
    "g\nr\np0\ne\n",
    "c\nz:java.lang.Runtime\ngetRuntime\ne\n",
    "c\nGATEWAY_SERVER\ngetPort\ne\n",
    "c\no0\ntoString\ne\n",
    "r\nu\njava\nrj\ne\n",
    "s\n" + "e\n" * 8,  # long enough for all: nobody is left waiting for the rest
)


@dataclass(frozen=True)
class Door:
    """A port that a process listens on."""

    process: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.process} on {self.address}:{self.port}"


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def name_of(process: psutil.Process) -> str:
    """What a process is, in a word."""
    line = " ".join(process.cmdline())
    known = {
        "deploy.master.Master": "master",
        "deploy.worker.Worker": "worker",
        "CoarseGrainedExecutorBackend": "executor",
        "SparkSubmit": "driver JVM",
        "penstock.engine.executor.worker_daemon": "Python workers",
    }
    return next((name for part, name in known.items() if part in line), "Python driver")


def doors(processes: list[psutil.Process]) -> list[Door]:
    """Every port that these listen on; workers that are forked share their parent's."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            for one in process.net_connections("inet"):
                if one.status == psutil.CONN_LISTEN:
                    found.add(Door(name_of(process), one.laddr.ip.removeprefix("::ffff:"), one.laddr.port))
    return sorted(found, key=str)


def command_lines(processes: list[psutil.Process]) -> list[str]:
    """What every user can read about these, of those that are still there."""
    lines = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            lines.append(" ".join(process.cmdline()))
    return lines


def sockets(processes: list[psutil.Process]) -> set[str]:
    """The paths of all Unix sockets that these have."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found |= {one.laddr for one in process.net_connections("unix") if one.laddr}
    return found


def tell(door: Door, said: bytes) -> bytes:
    """What comes back until the door is shut or nothing has come for a while."""
    answer = b""
    with suppress(OSError), socket.create_connection((door.address, door.port), SECONDS) as line:
        line.settimeout(SECONDS)
        line.sendall(said)
        with suppress(TimeoutError):
            while part := line.recv(65536):
                answer += part
                line.settimeout(0.2)
    return answer


def web(door: Door, method: str, path: str, token: str = "") -> list[bytes]:
    """All answers: a page may say that it is elsewhere."""
    answers = [_asked(door, method, path, token)]
    while len(answers) < MOST_REDIRECTIONS and (elsewhere := LOCATION.search(answers[-1])):
        answers.append(_asked(door, method, elsewhere[1].decode(), token))
    return answers


def status_of(answer: bytes) -> int | None:
    """The status of a page's answer; None if it is none."""
    found = re.match(rb"HTTP/1.[01] (\d+)", answer)
    return int(found[1]) if found else None


def _asked(door: Door, method: str, path: str, token: str) -> bytes:
    body = "{}" if method == "POST" else ""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {door.address}:{door.port}", "Connection: close"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return tell(door, "\r\n".join([*lines, "", body]).encode())


def spark_messages() -> Iterator[bytes]:
    """As Spark's network layer frames them, without having proved to know the secret. Each has an end that others, who
    wait for a line, take for one: nobody is left waiting."""
    name = b"/jars/app.jar"
    chunk = _framed(0, struct.pack(">qi", 0, 0))  # of a block
    file = _framed(6, struct.pack(">i", len(name)) + name)  # of the driver's
    call = _framed(3, struct.pack(">qi", 7, 5) + b"hello")
    one_way = _framed(9, struct.pack(">i", 5) + b"hello")  # it is not answered, but the call behind it is
    yield from (message + b"\n" for message in (chunk, file, one_way + call))


def _framed(kind: int, body: bytes) -> bytes:
    return struct.pack(">qb", 9 + len(body), kind) + body


@dataclass
class Tried:
    """What a stranger heard at a door, and what was let through."""

    heard: list[bytes]
    let_through: list[tuple[str, str, bytes]]


#: What a page answers to those who may not: 400 and 405 come before it is known who asks. None: it is no page.
REFUSED = {None, 400, 401, 403, 405}
#: What Spark answers to those who may ask: a block, a result, a file.
SERVED = {1, 4, 7}


def try_everything_at(door: Door, names: Mapping[str, str]) -> Tried:
    """Everything above, as somebody without any secret. What is no web page at its first address is none at others."""
    tried = Tried([], [])

    def note(what: str, answer: bytes, wrong: bool) -> None:
        tried.heard.append(answer)
        if wrong:
            tried.let_through.append((str(door), what, answer[:200]))

    is_web = status_of(_asked(door, "GET", "/", "")) is not None
    pages = [*(("GET", page) for page in READ), *CHANGE] if is_web else [("GET", "/")]
    with ThreadPoolExecutor(AT_ONCE) as strangers:
        asked = strangers.map(lambda page: web(door, page[0], page[1].format(**names)), pages)
        commanded = strangers.map(lambda command: tell(door, command.encode()), PY4J)
        messages = list(spark_messages())
        sent = strangers.map(lambda message: tell(door, message), messages)
        for (method, path), answers in zip(pages, asked, strict=True):
            for answer in answers:
                last = not LOCATION.search(answer)
                note(f"{method} {path}", answer, last and status_of(answer) not in REFUSED)
        for command, answer in zip(PY4J, commanded, strict=True):
            note(command, answer, answer.startswith(b"!y"))
        for message, answer in zip(messages, sent, strict=True):
            note(repr(message), answer, kind_of(answer) in SERVED)
    return tried


def kind_of(answer: bytes) -> int | None:
    """The kind of one of Spark's messages; None if it is none."""
    return answer[8] if len(answer) > 8 else None
