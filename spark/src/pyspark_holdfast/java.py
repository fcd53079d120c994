"""Finds a Java that Spark 4 can run on, and says in one line what is missing where there is none.

Rules of this file: starts `java -version` and nothing else; reads no environment variable, the caller hands
over the environment. Spark always passes `--add-modules=jdk.incubator.vector`, which reduced runtimes refuse:
a Java counts only if it starts with it. `make setup` puts a runtime of its own where the machine has none.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError

VERSION_MIN: Final = 17
START_TIME_LIMIT_S: Final = 60.0
"""A JVM starts in 0.1 s; a machine that is busy may take long, one that hangs must not hold us."""

_VERSION: Final = re.compile(r'version "(\d+)')


def own_java_home(prefix: Path | None = None) -> Path:
    """Where `make setup` puts the environment's own Java; `prefix` is the virtual environment's directory."""
    return (prefix or Path(sys.prefix)) / "share" / "holdfast" / "java-home"


def suits(java: Path) -> bool:
    """Whether `java` starts with the module that Spark asks for, and is of version 17 or later."""
    try:
        done = subprocess.run(
            [str(java), "--add-modules=jdk.incubator.vector", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    return done.returncode == 0 and found is not None and int(found[1]) >= VERSION_MIN


def find_java_home(environment: Mapping[str, str], prefix: Path | None = None) -> Path:
    """A directory with a suitable `bin/java`: JAVA_HOME, then the PATH's, then the environment's own.

    Raises ConfigError that lists what was tried.
    """
    tried = []
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append(Path(environment["JAVA_HOME"]))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        # Spark wants the directory above bin; /usr/bin/java is a chain of links to it.
        candidates.append(Path(on_path).resolve().parent.parent)
    candidates.append(own_java_home(prefix))
    for home in candidates:
        java = home / "bin" / "java"
        if java.is_file() and suits(java):
            return home
        tried.append(str(java))
    raise ConfigError(
        f"there is no Java that Spark can use (tried {', '.join(tried)}); run `make setup`, which installs one, or set "
        f"JAVA_HOME to version {VERSION_MIN} or later"
    )
