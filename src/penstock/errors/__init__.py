"""Every error that Penstock raises.

Each error is named by what happened, carries its facts as attributes, and states in `retryable`
whether a retry can succeed. Server errors that have no class here reach the caller as psycopg
raised them.

A new error is one class in one of these modules. Its docstring has two paragraphs: what happened,
and what to do (of a group of errors, only the first). It names its fields, which are the arguments
of the constructor, and its text as a `template` over them. `sqlstates` are the codes with which the
server raises it. The names exported here, the table in `translation`, and docs/errors.md
(`make generate`) follow from the class.
"""

# ruff: noqa: F403

# in the order in which the tree and the page list them
# isort: off
from penstock.errors.base import *
from penstock.errors.log import *
from penstock.errors.database import *
from penstock.errors.consumers import *
from penstock.errors.groups import *
from penstock.errors.outbox import *
from penstock.errors.pipeline import *
from penstock.errors.lake import *
from penstock.errors.console import *
from penstock.errors.translation import error_of as error_of
from penstock.errors.translation import is_lost_connection as is_lost_connection
from penstock.errors.translation import translate as translate
from penstock.errors.tree import all_errors, drawn_tree
# isort: on

__doc__ = f"{__doc__}\n{drawn_tree()}\n"

__all__ = [error.__name__ for error in all_errors()]
