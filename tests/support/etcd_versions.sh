# Sourced: official etcds of other versions than the installed one, and other programs in Go, built
# with modules from Go's module proxy.

# The newest patch of every minor version that is maintained.
etcd_versions=(3.5.35 3.6.16 3.7.3)

# etcd_of VERSION: makes sure that this user's cache has it, and prints where.
# Fails with 2 if it cannot be had here, and with 1 if it does not build; then it prints why.
etcd_of() (
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/coetcd/etcd
    if [[ ! -x $cache/$1/etcd ]]; then
        command -v go >/dev/null || { echo 'no go' && exit 2; }
        echo "Building etcd $1" >&2
        mkdir -p "$cache" && work=$(mktemp -d "$cache/building.XXXXXX") || exit 1
        trap 'rm -rf "$work"' EXIT
        trap 'exit 130' INT TERM
        cd "$work" || exit 1
        # etcd's own main package cannot be installed by its name: its go.mod replaces modules.
        printf '%s\n' 'package main' \
            'import ("os"; "go.etcd.io/etcd/server/v3/etcdmain")' \
            'func main() { etcdmain.Main(os.Args) }' >main.go
        export GOFLAGS='' GOWORK=off CGO_ENABLED=0
        go mod init etcd 2>words || { cat words && exit 1; }
        # It fails without network, if there is no such version, or if that wants a newer Go.
        go get "go.etcd.io/etcd/server/v3/etcdmain@v$1" >words 2>&1 ||
            { grep -v '^go: downloading' words | xargs -d '\n' && exit 2; }
        GOPROXY=off go build -p "${jobs:-1}" -trimpath -ldflags '-s -w' -o built/etcd . 2>&1 || exit 1
        built/etcd --version >words && grep -qFx "etcd Version: $1" words || { cat words && exit 1; }
        mv -T built "$cache/$1" 2>words || [[ -x $cache/$1/etcd ]] || { cat words && exit 1; }
    fi
    echo "$cache/$1/etcd"
)

# go_program_of DIRECTORY: makes sure that this user's cache has the program whose module is there,
# as it is now, and prints where. Fails as etcd_of does.
go_program_of() (
    cd "$1" || exit 1
    sum=$(cat go.mod go.sum ./*.go | sha256sum) && name=$(awk '/^module/ {print $2}' go.mod)
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/$name/${sum:0:16}
    if [[ ! -x $cache/program ]]; then
        command -v go >/dev/null || { echo 'no go' && exit 2; }
        echo "Building $name" >&2
        mkdir -p "$cache" && words=$(mktemp) || exit 1
        trap 'rm -f "$words"' EXIT
        trap 'exit 130' INT TERM
        export GOFLAGS='' GOWORK=off CGO_ENABLED=0
        # It fails without network, or if that wants a newer Go.
        go mod download >"$words" 2>&1 || { xargs -d '\n' <"$words" && exit 2; }
        GOPROXY=off go build -p "${jobs:-1}" -trimpath -ldflags '-s -w' -o "$cache/program" . 2>&1 ||
            exit 1
    fi
    echo "$cache/program"
)
