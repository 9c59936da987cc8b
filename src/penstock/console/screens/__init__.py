"""The screens, in the order of the navigation."""

from penstock.console.screen import Screen
from penstock.console.screens import (
    activity,
    boundaries,
    dead_letters,
    log,
    outbox,
    overview,
    pipelines,
    readers,
    reference,
    trace,
)

SCREENS: tuple[Screen, ...] = (
    *overview.SCREENS,
    *log.SCREENS,
    *trace.SCREENS,
    *readers.SCREENS,
    *boundaries.SCREENS,
    *outbox.SCREENS,
    *dead_letters.SCREENS,
    *pipelines.SCREENS,
    *activity.SCREENS,
    *reference.SCREENS,
)

#: what `/api/` answers
INDEX = reference.SCREENS[0]

#: the navigation: groups of (section, title, path)
SECTIONS = (
    ("", (("overview", "Overview", "/"), ("dead letters", "Dead letters", "/dead-letters"))),
    (
        "Log",
        (
            ("log", "Messages", "/log"),
            ("search", "Search", "/search"),
            ("trace", "Trace", "/trace"),
            ("boundaries", "Boundaries", "/boundaries"),
        ),
    ),
    (
        "Readers",
        (
            ("consumers", "Consumers", "/consumers"),
            ("queues", "Queues", "/queues"),
            ("groups", "Groups", "/groups"),
        ),
    ),
    (
        "Work",
        (
            ("outbox", "Outbox", "/outbox"),
            ("joins", "Joins", "/joins"),
            ("pipelines", "Pipelines", "/pipelines"),
            ("tables", "Tables", "/tables"),
        ),
    ),
    ("Console", (("activity", "Activity", "/activity"), ("api", "API", "/reference"))),
)

#: addresses that answer with a file
DOWNLOADS = {**log.DOWNLOADS, **outbox.DOWNLOADS}
