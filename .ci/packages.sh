# Debian packages that the checks need and this machine lacks. Sourced by .ci/run.

lacking_packages() {
    command -v python3 >/dev/null && python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || echo python3
    python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
    # Qpid Proton, the Python peer of the interop tests, is built from source.
    [ -f "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/Python.h" ] || echo python3-dev
    command -v make >/dev/null || echo make
    command -v cc >/dev/null || echo gcc libc6-dev
    command -v pkg-config >/dev/null || echo pkg-config
    pkg-config --exists openssl 2>/dev/null || echo libssl-dev
    # The tests make their certificates with it.
    command -v openssl >/dev/null || echo openssl
    # The same in C and C++: the library, and Debian's example programs, which the tests compile.
    command -v g++ >/dev/null || echo g++
    [ -f /usr/include/proton/proactor.h ] || echo libqpid-proton11-dev
    [ -f /usr/include/proton/container.hpp ] || echo libqpid-proton-cpp12-dev
    [ -d /usr/share/proton/examples/cpp ] || echo libqpid-proton11-dev-examples
    # The tests of jobs that write into it start a server of their own.
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || echo postgresql
    # It checks the unit in operations/.
    command -v systemd-analyze >/dev/null || echo systemd
    # rhea, the JavaScript peer.
    command -v node >/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
}

install_missing_packages() {
    local packages package known
    packages=$(lacking_packages | tr '\n' ' ')
    [ -n "${packages// /}" ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "ci: not installed, for want of root or apt: $packages; what needs them will skip or fail"
        return 0
    fi
    echo "ci: installing $packages"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >/dev/null || echo "ci: apt-get update failed; trying with the lists there are"
    # One name that a release does not have (a library's carries its version) must not keep the others out.
    known=
    for package in $packages; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            known="$known $package"
        else
            echo "ci: apt knows no $package; what needs it will skip or fail"
        fi
    done
    # shellcheck disable=SC2086 # a list of words
    apt-get install -q -y --no-install-recommends $known >/dev/null ||
        echo "ci: apt-get could not install: $known; what needs them will skip or fail"
}

# promtool checks the alert rules. Its package would start a server, so the program alone is taken out of it.
fetch_promtool() {
    local place
    command -v promtool >/dev/null && return 0
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
    place=$(mktemp -d)
    if (cd "$place" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; }) \
        >/dev/null 2>&1 && dpkg -x "$place"/prometheus_*.deb "$place/files"; then
        install -m 755 "$place/files/usr/bin/promtool" /usr/local/bin/promtool
    else
        echo "ci: apt could not bring promtool; what needs it will skip"
    fi
    rm -rf "$place"
}
