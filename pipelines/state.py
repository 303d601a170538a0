"""Names of what a run keeps for itself: everything under `.ember/`, which readers of the tables never look at."""

from typing import Final

STATE_DIR: Final = ".ember"
LOCK: Final = ".ember/lock"
IDENTITY: Final = ".ember/identity.json"
RUNTIME: Final = ".ember/runtime.json"
STIMULI_RECORD: Final = ".ember/stimuli.json"
RECEIPTS: Final = ".ember/receipts"
DEATHS: Final = ".ember/deaths"
LOGS: Final = ".ember/log"
PLANS: Final = ".ember/plan"
FOLDERS: Final = (RECEIPTS, DEATHS, LOGS, PLANS)
