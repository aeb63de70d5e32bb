#!/bin/sh
# Builds the real servers that `make test-servers` starts, from their own sources, into a cache folder outside the tree; only what is missing
# there. The versions are those of go.mod and go.sum beside this file. Prints the folder that holds the binaries.
#
#   build.sh [DIR]     DIR: default $TURNAROUND_SERVERS, else the user's cache folder. Needs: go >= 1.26, cargo, a C compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-${TURNAROUND_SERVERS:-${XDG_CACHE_HOME:-$HOME/.cache}/turnaround/servers}}
mkdir -p "$dir/bin"

# One name a set of versions: another go.sum builds anew, beside what older checkouts use.
version=$(cat "$here/go.mod" "$here/go.sum" "$here/build.sh" | sha256sum | cut -c1-12)
influxd="$dir/bin/influxd-$version"

if [ ! -x "$influxd" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "Missing: go (1.26 or newer), to build InfluxDB from its sources. Install it from https://go.dev/dl, put an influxd 2.x on PATH, or name one in TURNAROUND_INFLUXD." >&2
        exit 1
    fi
    echo "Building InfluxDB once, about six minutes on two cores ..." >&2
    work="$dir/work"
    mkdir -p "$work"
    cp "$here/go.mod" "$here/go.sum" "$here/tools.go" "$work/"
    cd "$work"
    # Several GB of modules and objects that nothing needs afterwards.
    GOMODCACHE=${GOMODCACHE:-$work/modules} GOCACHE=$work/objects CARGO_TARGET_DIR=
    export GOMODCACHE GOCACHE
    unset CARGO_TARGET_DIR
    # Flux's Rust half is built by this stand-in for pkg-config, which calls cargo. Its sources deny warnings that newer compilers have more of.
    GOBIN="$work" go install github.com/influxdata/pkg-config@v0.2.14
    printf '%s\n' '#!/bin/sh' 'case " $* " in *" --cap-lints "*) exec "$@" ;; *) exec "$@" --cap-lints warn ;; esac' > rustc-warns
    chmod +x rustc-warns
    PKG_CONFIG="$work/pkg-config" RUSTC_WRAPPER="$work/rustc-warns" RUSTUP_TOOLCHAIN="${SERVERS_RUST:-stable}" \
        go build -mod=mod -tags 'sqlite_foreign_keys,sqlite_json' -ldflags '-s -w' -o influxd github.com/influxdata/influxdb/v2/cmd/influxd >&2
    mv influxd "$influxd"
    cd "$dir"
    chmod -R u+w "$work"
    rm -rf "$work"
fi
ln -sf "$(basename "$influxd")" "$dir/bin/influxd"
echo "$dir/bin"
