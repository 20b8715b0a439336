#!/bin/sh
# Starts the SuperLink of {{ name }} and stays in the foreground. Settings: superlink.env beside this file.
set -eu
cd "$(dirname "$0")"
. ./superlink.env
PYTHON=${FULTR_PYTHON:-$PYTHON}
if ! [ -x "$PYTHON" ]; then
    echo "$PWD/start.sh: no Python at $PYTHON: set PYTHON in superlink.env to the one that has fultr[flower]" >&2
    exit 2
fi
umask 077
# Flower starts its helpers by name. It connects to nobody, installs nothing and keeps its files here.
export PATH="$(dirname "$PYTHON"):$PATH" FLWR_HOME="$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FULTR_RELEASES="$(dirname "$PWD")/state"  # nodes fetch the current ranker from there
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 PYTHONUNBUFFERED=1
# Other machines can reach only the Fleet API (nodes): fultr/deploy/superlink.py ensures that. It is run as a file (-P: its
# folder is not searched for modules), since the SuperLink does not need the rest of fultr in memory.
fultr=$("$PYTHON" -c 'from importlib.util import find_spec; print(find_spec("fultr").submodule_search_locations[0])')
exec "$PYTHON" -P "$fultr/deploy/superlink.py" --host "$HOST" --port "$PORT" --database "$PWD/state.db" \
    --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \
    --enable-supernode-auth --disable-runtime-dependency-installation
