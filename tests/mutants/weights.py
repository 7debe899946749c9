"""One-line bugs of the named weights."""

from __future__ import annotations

from tests.mutants.run import Mutant

STORE = "pipelines/weights/store.py"
SOURCES = "pipelines/weights/sources.py"

TESTS = ("tests/pipelines/weights/test_store.py",)

MUTANTS = (
    Mutant("a wrong hash is taken", STORE, "if digest != file.sha256:", "if False:"),
    Mutant("a second process fetches again", STORE, "if not self._trusted(weight):  # another", "if True:  # another"),
    Mutant("a damaged file is trusted", STORE, "return bool(stamp == _state(folder, weight.files))", "return bool(stamp)"),
    Mutant("the lock is not taken", STORE, "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
    Mutant("a resumed file is written over", SOURCES, '"ab" if have else "wb"', '"wb"'),
)
