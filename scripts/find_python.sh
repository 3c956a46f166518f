# shellcheck shell=sh
# Sourced by environment.sh and preflight: which Python this machine has for regiondag.
# $leg: lowest or newest take the Python of theirs alone; PYTHON names one to try first.

find_python() { # print the path of the first that is 3.11 or later
    case ${leg:-} in
        lowest) set -- python3.11 ;;
        newest) set -- python3.14 python3.13 ;;
        *) set -- "${PYTHON:-python3}" python3 python3.14 python3.13 python3.12 python3.11 ;;
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
    return 69 # as sysexits.h has it: what is needed is not there
}
