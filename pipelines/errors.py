"""Errors of the factory; they continue the tree of `ember.errors`.

EmberError
├── RunError                   exit status 1: a run that cannot go on; says how to resume
│   ├── LockedError            another process writes this directory
│   ├── IdentityError          the directory holds another run: names what changed
│   └── VerifyError            what is on disk is not what the manifest says
└── ConfigError                exit status 2: one line per problem: file, line, key, found, expected
"""

from ember.errors import EmberError


class RunError(EmberError):
    """A run that cannot go on."""


class LockedError(RunError):
    """Another process writes this run directory."""


class IdentityError(RunError):
    """The run directory belongs to another configuration, model or stimulus set."""


class VerifyError(RunError):
    """Files on disk differ from what the manifest records."""


class ConfigError(EmberError):
    """A configuration that cannot be used; the message lists every problem found."""

    exit_status = 2
