# shellcheck shell=sh
# Sourced by quickstart, test, check, docs, mutants and .ci/run: makes a Python environment in the checkout once, and
# again when setup.cfg changes.
# $extras: which of setup.cfg's extras the script needs (default: none)
# $leg: lowest: every package at the lower bound that setup.cfg promises, on Python 3.11, in .venv-lowest;
#       newest: the newest packages on the newest Python here, in .venv-newest; else .venv
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root" || exit 1
extras=${extras:-}
leg=${leg:-}
venv=.venv${leg:+-$leg}

find_python() {
    case $leg in
        lowest) set -- python3.11 ;;
        newest) set -- python3.14 python3.13 ;;
        *) set -- "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11 ;;
    esac
    for python in "$@"; do
        # pyenv has more than what it puts on PATH, where its stand-ins for the others only fail.
        for found in "$python" "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/${python#python}".*/bin/python; do
            if "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
                command -v "$found"
                return
            fi
        done
    done
    echo "regiondag needs Python 3.11 or later; found $(python3 --version 2>&1 || echo none)," \
        "looked for: $*. Set PYTHON=/path/to/python3.12" >&2
    return 69 # as sysexits.h has it: what is needed is not there
}

list_lower_bounds() { # as constraints of pip, which know no extras
    LC_ALL=C sed -n 's/^    \([A-Za-z0-9_.-]*\)\(\[.*\]\)\{0,1\}>=\([0-9a-z.]*\)$/\1==\3/p' setup.cfg | sort -u
}

make_environment() {
    stamp=$venv/made-with-$extras
    wanted=$(cat setup.cfg pyproject.toml | sha256sum)
    if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    python=$(find_python) || exit
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            echo "==> apt-get install python$version-venv" >&2
            apt-get -o DPkg::Lock::Timeout=300 install -y -q "python$version-venv" >&2
        else
            echo "Python's venv is missing; run: sudo apt-get install python$version-venv" >&2
            exit 1
        fi
    fi
    echo "==> Python environment in $venv (about a minute)" >&2
    "$python" -m venv "$venv" || return
    if [ "$leg" = lowest ]; then list_lower_bounds; fi >"$venv/constraints.txt"
    # The type checker finds the package regiondag, which lies in workflows/, by this link.
    mkdir -p "$venv/packages" && ln -sfn ../../workflows "$venv/packages/regiondag"
    "$venv/bin/python" -m pip install --quiet --editable ".${extras:+[$extras]}" --constraint "$venv/constraints.txt" >&2 &&
        printf '%s\n' "$wanted" >"$stamp"
}

make_environment || {
    echo "the environment could not be made; see the lines above" >&2
    exit 1
}
PATH=$root/$venv/bin:$PATH
