# shellcheck shell=sh
# Sourced by quickstart, test and check: makes .venv in the checkout once, and again when setup.cfg changes.
# $extras: which of setup.cfg's extras the script needs (default: manager)
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root" || exit 1

find_python() {
    for python in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    echo "regiondag needs Python 3.11 or later; found $(python3 --version 2>&1 || echo none). Set PYTHON=/path/to/python3.12" >&2
    exit 1
}

make_environment() {
    stamp=.venv/made-with-$extras
    wanted=$(cat setup.cfg pyproject.toml | sha256sum)
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    python=$(find_python) || exit 1
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            echo "==> apt-get install python$version-venv" >&2
            apt-get install -y -q "python$version-venv" >&2
        else
            echo "Python's venv is missing; run: sudo apt-get install python$version-venv" >&2
            exit 1
        fi
    fi
    echo "==> Python environment in .venv (about a minute)" >&2
    "$python" -m venv .venv &&
        .venv/bin/python -m pip install --quiet --editable ".[$extras]" >&2 &&
        printf '%s\n' "$wanted" >"$stamp"
}

extras=${extras:-manager}
make_environment || {
    echo "the environment could not be made; see the lines above" >&2
    exit 1
}
PATH=$root/.venv/bin:$PATH
