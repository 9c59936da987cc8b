"""The console: a web page that shows a store, and on which operators act on it.

`penstock console` serves it. An application mounts it, under its own authentication:

    application.mount("/console", penstock.console.app(store, user=name_of_the_viewer))
"""

from penstock.extras import from_extra

with from_extra("console"):
    from penstock.console.app import app

__all__ = ["app"]
