# Sourced by tests/run, examples/run and docs/run, at the root of a checkout.
#
# require NEED... makes sure that all NEEDs are there. What is missing is installed if apt-get can do
# it, else it is named and the script ends.
# use_ccache, if there is one: what another checkout has compiled is not compiled again.

# Succeeds if the preprocessor accepts a text.
_preprocesses() {
    local compiler
    for compiler in c++ g++-12 clang++-16; do
        if command -v "$compiler" >/dev/null; then
            "$compiler" -std=c++20 -x c++ -E - <<<"$1" >/dev/null 2>&1
            return
        fi
    done
    return 1
}

# Debian's own, whatever else is first in PATH.
_imports() { /usr/bin/python3 -c "$1" 2>/dev/null; }

_has() {
    case $1 in
    boost) _preprocesses '
        #include <boost/version.hpp>
        #if BOOST_VERSION < 108100
        #error
        #endif' ;;
    nlohmann_json) _preprocesses '
        #include <nlohmann/json.hpp>
        #if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR < 11
        #error
        #endif' ;;
    catch2) _preprocesses '
        #if !__has_include(<catch2/catch.hpp>) && !__has_include(<catch2/catch_all.hpp>)
        #error
        #endif' ;;
    hiredis) _preprocesses '
        #if !__has_include(<hiredis/hiredis.h>)
        #error
        #endif' ;;
    libssl) _preprocesses '
        #include <openssl/opensslv.h>
        #if OPENSSL_VERSION_MAJOR < 3
        #error
        #endif' ;;
    # Debian has its sanitizers in a package of their own.
    clang++-16) command -v clang++-16 >/dev/null &&
        clang++-16 -fsanitize=address -x c++ -o /dev/null - <<<'int main() {}' 2>/dev/null ;;
    mkdocs-material) _imports 'import mkdocs.utils as m; assert "material" in m.get_theme_names()' ;;
    debootstrap | ip | nft) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

_packages() {
    case $1 in
    boost) echo libboost1.81-dev ;;
    nlohmann_json) echo nlohmann-json3-dev ;;
    c++) echo g++ ;;
    clang++-16) echo clang-16 libclang-rt-16-dev ;;
    clang++-19) echo clang-19 ;;
    i686-linux-gnu-g++ | s390x-linux-gnu-g++) echo "g++-${1%-g++}" ;;
    x86_64-w64-mingw32-g++-posix) echo g++-mingw-w64-x86-64-posix ;;
    qemu-s390x-static) echo qemu-user-static ;;
    llvm-cov-16) echo llvm-16 ;;
    ninja) echo ninja-build ;;
    hiredis) echo libhiredis-dev ;;
    libssl) echo libssl-dev ;;
    etcd) echo etcd-server ;;
    etcdctl) echo etcd-client ;;
    ip) echo iproute2 ;;
    nft) echo nftables ;;
    *) echo "$1" ;;
    esac
}

_missing() {
    local need
    for need in "$@"; do
        _has "$need" || echo "$need"
    done
}

_apt_install() (
    # Two may want to install at once. In a shared directory somebody else could have the name first.
    mine=${XDG_CACHE_HOME:-${HOME:?}/.cache}/coetcd
    mkdir -p "$mine" && exec {turn}>"$mine/install" && flock "$turn"
    as_root=()
    if ((EUID != 0)); then
        as_root=(sudo)
        [[ -t 2 ]] || as_root=(sudo -n)
    fi
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
    # Debian starts what it installs, but the machine shall not get a service of etcd or Redis.
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        trap '"${as_root[@]}" rm -f "$policy"' EXIT
        "${as_root[@]}" sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy" || exit
    fi
    "${apt[@]}" update || true # an old index may do
    "${apt[@]}" install -y --no-remove --no-install-recommends "$@" >/dev/null || exit
    command -v systemctl >/dev/null || return 0
    for service in etcd redis; do # at the next boot
        [[ " $* " != *" $service-server "* ]] ||
            "${as_root[@]}" systemctl disable "$service-server" "$service" >/dev/null 2>&1 || true
    done
)

require() {
    local missing need packages=()
    mapfile -t missing < <(_missing "$@")
    ((${#missing[@]})) || return 0
    if command -v apt-get >/dev/null && { ((EUID == 0)) || command -v sudo >/dev/null; }; then
        for need in "${missing[@]}"; do
            read -ra need < <(_packages "$need")
            packages+=("${need[@]}")
        done
        echo "Installing ${packages[*]}"
        _apt_install "${packages[@]}" || true
        mapfile -t missing < <(_missing "$@")
        ((${#missing[@]})) || return 0
    fi
    echo "Please install what is missing: ${missing[*]}" >&2
    echo "(on Debian 12: apt-get install $(for need in "${missing[@]}"; do _packages "$need"; done | xargs))" >&2
    exit 1
}

use_ccache() {
    if command -v ccache >/dev/null; then
        export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
        # Or it leaves precompiled headers alone.
        export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS-pch_defines,time_macros}
        export CCACHE_BASEDIR=${CCACHE_BASEDIR-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR-true}
    fi
}
