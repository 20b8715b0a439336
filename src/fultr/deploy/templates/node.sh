#!/bin/sh
# Starts the node {{ node }} and stays in the foreground. Settings: node.env and node.toml beside this file.
set -eu
cd "$(dirname "$0")"
. ./node.env
PYTHON=${FULTR_PYTHON:-$PYTHON}
if ! [ -x "$PYTHON" ]; then
    echo "$PWD/start.sh: no Python at $PYTHON: set PYTHON in node.env to the one that has fultr[flower]" >&2
    exit 2
fi
umask 077
# Flower starts its helpers by name. It connects only to the SuperLink, installs nothing and keeps its files here.
export PATH="$(dirname "$PYTHON"):$PATH" FLWR_HOME="$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.25 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 PYTHONUNBUFFERED=1
exec flower-supernode --superlink "$SUPERLINK" --root-certificates ca.crt --auth-supernode-private-key node.key \
    --host 127.0.0.1 --port "$PORT" --node-config node.toml
