#!/bin/sh
# Checks for what the build needs besides Rust's own packages. Installs what is missing where it may: with apt as root, or with sudo after
# asking on a terminal. Everywhere else it names the packages and stops. promtool is wanted by one test only, so its absence never stops.
set -u

have() { command -v "$1" >/dev/null 2>&1; }

have_compiler() { have c++ || have g++ || have clang++; }

# bindgen loads libclang when the solver's bindings are made; libclang-cpp is another library and does not help.
have_libclang() {
    dirs="${LIBCLANG_PATH:-}"
    if have llvm-config; then dirs="$dirs $(llvm-config --libdir 2>/dev/null)"; fi
    dirs="$dirs /usr/lib /usr/lib64 /usr/local/lib /usr/lib/*-linux-gnu /usr/lib/llvm*/lib /usr/lib/llvm/*/lib64 /usr/lib64/llvm*/lib64"
    dirs="$dirs /opt/homebrew/opt/llvm/lib /usr/local/opt/llvm/lib"
    dirs="$dirs /Library/Developer/CommandLineTools/usr/lib /Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib"
    for dir in $dirs; do
        for file in "$dir"/libclang.so "$dir"/libclang.so.* "$dir"/libclang-[0-9]*.so "$dir"/libclang-[0-9]*.so.* "$dir"/libclang.dylib; do
            if [ -e "$file" ]; then return 0; fi
        done
    done
    # LIBCLANG_PATH may name the file itself.
    [ -n "${LIBCLANG_PATH:-}" ] && [ -f "$LIBCLANG_PATH" ]
}

look() {
    missing=""
    have_compiler || missing="$missing c++"
    have cmake || missing="$missing cmake"
    have_libclang || missing="$missing libclang"
    have make || missing="$missing make"
    have git || missing="$missing git"
    wanted=""
    have promtool || wanted="promtool"
}

# The Debian package of a need. libclang1 follows the release's default version; libclang-dev is the fallback where it does not exist.
debian_package() {
    case "$1" in
        c++) echo g++ ;;
        libclang) if apt-cache show libclang1 >/dev/null 2>&1; then echo libclang1; else echo libclang-dev; fi ;;
        promtool) echo prometheus ;;
        *) echo "$1" ;;
    esac
}

name_packages() {
    echo "Missing:$missing. Install it, then run the same command again:" >&2
    echo "  Debian, Ubuntu  apt-get install g++ cmake libclang1 make git       (prometheus for one test)" >&2
    echo "  Fedora          dnf install gcc-c++ cmake clang-libs make git      (golang-github-prometheus for one test)" >&2
    echo "  Alpine          apk add g++ cmake clang-libclang make git          (prometheus for one test)" >&2
    echo "  macOS           xcode-select --install; brew install cmake llvm    (prometheus for one test)" >&2
    echo "If libclang lies elsewhere, set LIBCLANG_PATH to its folder." >&2
}

# $1: how to become root, or nothing. The services that packages bring are not started: policy-rc.d is the package system's own switch.
install() {
    become="$1"
    packages=""
    # Without the lists apt-cache knows no package.
    apt-cache show cmake >/dev/null 2>&1 || $become apt-get update -q || return 1
    for need in $missing; do packages="$packages $(debian_package "$need")"; done
    if [ -n "$packages" ]; then
        echo "Installing:$packages"
        # shellcheck disable=SC2086
        $become env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages ||
            { $become apt-get update -q && $become env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages; } || return 1
    fi
    if [ -n "$wanted" ]; then install_promtool "$become" || echo "promtool could not be installed; the test that wants it will say that it is skipped." >&2; fi
}

install_promtool() {
    become="$1"
    policy=/usr/sbin/policy-rc.d
    placed=""
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | $become tee "$policy" >/dev/null && $become chmod +x "$policy" && placed=yes
        # The switch must not outlive an interrupted installation.
        trap '$become rm -f "$policy"; exit 1' INT TERM
    fi
    echo "Installing: prometheus (for promtool; its service is not started)"
    $become env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends prometheus
    outcome=$?
    if [ -n "$placed" ]; then
        $become rm -f "$policy"
        trap - INT TERM
    fi
    return $outcome
}

main() {
    if ! have cargo; then
        echo "Missing: cargo (Rust 1.95 or newer). Install it from https://rustup.rs, then run the same command again." >&2
        exit 1
    fi
    look
    root=""
    [ "$(id -u)" = 0 ] && root=yes
    if [ -z "$missing" ]; then
        # Only root gets the optional tool unasked: nobody is kept waiting for a password.
        if [ -n "$wanted" ] && [ -n "$root" ] && have apt-get; then install ""; fi
        exit 0
    fi
    if have apt-get && [ -n "$root" ]; then
        install "" || { name_packages; exit 1; }
    elif have apt-get && have sudo && [ -t 0 ] && [ -t 1 ]; then
        printf 'Missing:%s. Install with sudo apt-get? [y/N] ' "$missing"
        read -r answer
        case "$answer" in
            y | Y | yes) install sudo || { name_packages; exit 1; } ;;
            *) name_packages; exit 1 ;;
        esac
    else
        name_packages
        exit 1
    fi
    look
    if [ -n "$missing" ]; then
        name_packages
        exit 1
    fi
}

main
