"""A response that is stored is followed from a cursor, by the SDKs that know how."""

from tests.clients.canned import TEXT
from tests.clients.clients import Client
from tests.clients.servers import Server


def test_what_comes_after_the_cursor_comes_once(client: Client, canned: Server) -> None:
    if "resume" not in client.modes:
        return
    whole = client.ask(
        base_url=canned.base_url,
        key=canned.key,
        model="",
        mode="resume",
        response_id="stop",
        starting_after=-1,
    )
    numbers = whole["usage"]["numbers"]
    assert whole["text"] == "".join(TEXT)
    assert numbers == list(range(len(numbers)))
    for after in numbers[:-1]:
        rest = client.ask(
            base_url=canned.base_url,
            key=canned.key,
            model="",
            mode="resume",
            response_id="stop",
            starting_after=after,
        )
        assert rest["usage"]["numbers"] == numbers[after + 1 :]
        assert rest["finish"] == "completed"
