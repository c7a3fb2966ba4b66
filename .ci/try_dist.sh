#!/usr/bin/env bash
# Installs a wheel and a source archive into an empty environment outside the clone, as a user
# would, and lets each of them work there. Usage: try_dist.sh PYTHON ARCHIVE...
set -euo pipefail
clone=$(cd "$(dirname "$0")/.." && pwd)
python=$1
shift
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/venv"
pip=("$place/venv/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" -r "$clone/requirements-torch.lock" # first, or gigabytes for GPUs may come along
"${pip[@]}" "$1"                                # with all that it needs
for archive in "$@"; do
    "${pip[@]}" --force-reinstall --no-deps "$archive"
    mkdir "$place/work"
    (
        cd "$place/work"
        export PATH="$place/venv/bin:$PATH" DUALSTUDENT_CACHE="$place/cache" MPLBACKEND=Agg
        unset PYTHONPATH
        dualstudent --version
        dualstudent train demo --set data.images=1000 --set schedule.epochs=3 --out runs/demo
        python -I "$clone/tests/release/check_installed.py" "$clone"
    )
    echo "works outside the clone: $(basename "$archive")"
    rm -rf "$place/work"
done
