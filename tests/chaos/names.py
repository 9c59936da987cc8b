"""The names that actors and checker share, and all that they share."""

from __future__ import annotations

#: categories of the log
ACCOUNT = "account"
TRANSFER = "transfer"
SEEN = "seen"
NOTE = "note"
OUTCOME = "outcome"
IMAGE = "image"

#: a queue, and the stream it is
MAIL = "mail"
MAIL_STREAM = "queue-mail"

#: message types, which are categories too
OPENED = "course.opened"
REQUESTED = "seat.requested"
TAKEN = "seat.taken"
DENIED = "seat.denied"
WELCOMED = "student.welcomed"

#: categories of which there must be a message before a run means anything
WORK = (ACCOUNT, TRANSFER, SEEN, NOTE, OUTCOME, "queue", REQUESTED, TAKEN, WELCOMED)

#: topics of the outbox
STEP = "step"
FINISHED = "finished"
BROKEN = "broken"

#: tables that the pipeline keeps, by stream of accounts
TOTALS = "chaos_totals"
STATES = "chaos_states"
PIPELINE = "chaos"

#: what an actor notes: that it tries something, and the result that it got
TRIED = "tried"
WRITTEN = "written"
REFUSED = "refused"
BEGUN = "begun"
COMMITTED = "committed"
ROLLED_BACK = "rolled back"
HANDLED = "handled"
POLLED = "polled"
JOINED = "joined"
ADDED = "added"
