"""Every stock client does its four checks against the real server. ``make clients`` runs the same with more to read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients import environment, serving
from tests.clients.run import CLIENTS, Client, run, served

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def where() -> Iterator[dict[str, str]]:
    try:
        environment.python()
    except environment.Missing as e:
        pytest.skip(f"the clients cannot be installed here: {e}")
    try:
        with served(serving.REAL) as variables:
            yield variables
    except serving.NotStarted as e:
        pytest.fail(f"the server did not start: {e}")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda c: f"{c.language}-{c.script}")
def test_a_stock_client_talks(client: Client, where: dict[str, str]) -> None:
    if client.language == "js":
        try:
            environment.node()
        except environment.Missing as e:
            pytest.skip(f"the clients cannot be installed here: {e}")
    failed = {name: check["detail"] for name, check in run(client, where).items() if not check["ok"]}
    assert not failed
