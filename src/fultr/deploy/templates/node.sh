#!/bin/sh
# Starts the node {{ node }} and stays in the foreground. Settings: node.toml beside this file.
set -eu
cd "$(dirname "$0")"
. ./node.env
PYTHON=${FULTR_PYTHON:-$PYTHON}
if ! [ -x "$PYTHON" ]; then
    echo "$PWD/start.sh: no Python at $PYTHON: set PYTHON in node.env to the one that has fultr[flower]" >&2
    exit 2
fi
umask 077
# It calls the SuperLink and is never called. Flower keeps its files here, and sends no telemetry.
export FLWR_HOME="$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 PYTHONUNBUFFERED=1
exec "$PYTHON" -m fultr node .
