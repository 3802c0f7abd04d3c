"""Requests generated from the control interface's own OpenAPI description, right ones and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

#: Can be read without a token.
OPEN = ("/healthz",)


def try_everything(
    schema: Any, token: str, examples: int, adapt: Callable[[Any], None] = lambda case: None, timeout: float = 20.0
) -> int:
    """Send many requests to every address: none may be answered with a server error, with something that is not
    described, or too late; and none without the token may be carried out. Returns how many were sent."""
    # Not above: every process of `make test` would import it, for the one test that needs it.
    from schemathesis import GenerationMode
    from schemathesis.checks import missing_required_header, negative_data_rejection
    from schemathesis.core.parameters import ParameterLocation

    sent = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            def check(case: Any) -> None:
                nonlocal sent
                sent += 2
                adapt(case)
                # We put the right token in, so what was wrong about the headers is right again.
                header = case.meta.components.get(ParameterLocation.HEADER)
                was_wrong = header is not None and header.mode is GenerationMode.NEGATIVE
                case.call_and_validate(
                    headers={"Authorization": f"Bearer {token}"},
                    timeout=timeout,
                    excluded_checks=[negative_data_rejection, missing_required_header] if was_wrong else [],
                )
                answer = case.call(headers={"Authorization": "Bearer guessed"}, timeout=timeout)
                expected = (200,) if case.path in OPEN else (401,)
                assert answer.status_code in expected, f"{case.method} {case.path}: {answer.status_code}"

            wanted = settings(
                max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
            )
            try:
                given(case=operation.as_strategy(generation_mode=mode))(wanted(check))()
            except Unsatisfiable:
                # There is nothing wrong that could be sent to an address without parameters.
                assert mode is GenerationMode.NEGATIVE
    return sent
