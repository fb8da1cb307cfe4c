"""A response that is stored is left, and followed again from a cursor, by the SDKs that know how."""

import pytest

from tests.clients.clients import Client
from tests.clients.servers import FAULTS, Server


@pytest.mark.parametrize("client", ["openai", "openai-node"], indirect=True)
def test_what_comes_after_the_cursor_comes_once(client: Client, server: Server) -> None:
    model = server.model(FAULTS[0], "responses-stream")

    def followed(after: int | None) -> tuple[list[int], str]:
        answer = client.ask(
            base_url=server.base_url, key=server.key, model=model, mode="resume", starting_after=after
        )
        assert answer["ok"], answer
        assert answer["finish"] == "completed"
        return answer["usage"]["numbers"], answer["text"]

    numbers, text = followed(None)
    assert numbers == list(range(len(numbers)))
    assert text
    for after in numbers[:-1]:
        rest, said = followed(after)
        assert rest == numbers[after + 1 :]
        assert text.endswith(said)
