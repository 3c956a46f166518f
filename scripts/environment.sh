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

# shellcheck source=scripts/find_python.sh
. scripts/find_python.sh

list_lower_bounds() { # as constraints of pip, which know no extras
    LC_ALL=C sed -n 's/^    \([A-Za-z0-9_.-]*\)\(\[.*\]\)\{0,1\}>=\([0-9a-z.]*\)$/\1==\3/p' setup.cfg | sort -u
}

make_environment() {
    stamp=$venv/made-with-$extras
    wanted=$(cat setup.cfg pyproject.toml | sha256sum)
    if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    if python=$(find_python); then
        PYTHON=$python scripts/preflight --install --quiet --for environment || exit
    elif [ -n "$leg" ]; then
        echo "no Python for $leg versions; see scripts/find_python.sh" >&2
        exit 69 # as sysexits.h has it: what is needed is not there
    else
        scripts/preflight --install --quiet --for environment || exit
        python=$(find_python) || exit
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
