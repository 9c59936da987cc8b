"""A crash of the server undoes the claims of dispatchers, which do not wait for the disk."""

from __future__ import annotations

import penstock
from penstock import ClaimedMessage, Dispatcher
from tests.servers import own_server


def test_a_message_whose_claim_is_undone_is_handled_again_and_finished() -> None:
    with own_server() as server, penstock.connect(server.url) as store:
        ids = [store.outbox.enqueue("mail", {"number": number}) for number in range(3)]
        dispatcher, handled = Dispatcher(store, concurrency=1, lease=60), list[ClaimedMessage]()

        @dispatcher.handler("mail")
        def handle(message: ClaimedMessage) -> None:
            handled.append(message)
            if len(handled) == 1:
                with server.crashing():
                    pass

        dispatcher.run_until_idle()

        assert [one.id for one in handled] == [ids[0], *ids]
        assert all(one.state == "done" for one in store.outbox.list())
