"""The pages of a standalone cluster's master and workers: who may ask them, and what we ask.

Every user of this computer can reach a loopback address, and the master's page lets whoever asks take machines away.
So the pages answer only those who show a token that is signed with the cluster's own key (Spark's JWSFilter). The key
is in a file that only its owner can read, and a token is good for seconds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
import urllib.request
from dataclasses import dataclass
from typing import Any

from penstock.cluster.provider import LOOPBACK

FILTER = "org.apache.spark.ui.JWSFilter"
#: How many seconds a token is good for: whoever steals one is too late.
TOKEN_SECONDS = 30.0
ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Pages:
    """What can be asked of the daemons' pages with a key, which is 32 bytes in URL-safe base 64."""

    key: str

    @staticmethod
    def with_new_key() -> Pages:
        return Pages(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())

    def __repr__(self) -> str:
        return "Pages()"  # the key is a secret

    def properties(self) -> dict[str, str]:
        """Settings of the daemons that close their pages to all who have no token."""
        return {"spark.ui.filters": FILTER, f"spark.{FILTER}.param.secretKey": self.key}

    def decommission(self, master_ui: int, host: str) -> None:
        """Tell the master that a machine is to leave: its executors take no more tasks and go."""
        self._ask(f"http://{LOOPBACK}:{master_ui}/workers/kill/?host={host}", "POST")

    def running_executors(self, host: str, worker_ui: int) -> int:
        """How many executors a worker runs now."""
        return len(json.loads(self._ask(f"http://{host}:{worker_ui}/json/", "GET"))["executors"])

    def token(self, now: float) -> str:
        """A JSON Web Signature (RFC 7515) that says nothing but until when it is good."""
        signed = f"{_encoded({'alg': 'HS256'})}.{_encoded({'exp': int(now + TOKEN_SECONDS)})}"
        signature = hmac.new(base64.urlsafe_b64decode(self.key), signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{_without_padding(signature)}"

    def _ask(self, url: str, method: str) -> bytes:
        headers = {"Authorization": f"Bearer {self.token(time.time())}"}
        # A proxy set in the environment knows nothing about this computer's loopback addresses.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310
        with direct.open(request, timeout=ANSWER_SECONDS) as answer:
            content: bytes = answer.read()
        return content


def _encoded(content: dict[str, Any]) -> str:
    return _without_padding(json.dumps(content, separators=(",", ":")).encode())


def _without_padding(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
