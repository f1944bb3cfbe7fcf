#!/usr/bin/env bash
# Sets up what Groundwire needs: system packages, the kernel's source, a virtual environment, the
# virtual kernel.
#   ./setup.sh run     what `make demo` needs
#   ./setup.sh test    that, and what the tests need
# Each step says what it does and why, is skipped when it is done already, and on failure names the
# command that failed and what to do about it.
set -euo pipefail
cd "$(dirname "$0")"

purpose=${1:-run}
venv=.venv
scratch=$(mktemp -d)
reporter=""
trap 'stop_reporter; rm -rf "$scratch"' EXIT

say() { printf '%s\n' "$*" >&2; }

# attempt FIX COMMAND...: run quietly, saying now and then how far it is; when it fails show its last
# lines, the command and the fix.
attempt() {
    local fix=$1 status=0
    shift
    : >"$scratch/log"
    report_progress &
    reporter=$!
    "$@" >"$scratch/log" 2>&1 </dev/null || status=$?
    stop_reporter
    [ "$status" != 0 ] || return 0
    tail -n 20 "$scratch/log" >&2
    say "setup: this command failed: $*"
    say "setup: $fix"
    exit 1
}

report_progress() {
    local started=$SECONDS never
    exec {never}<> <(:) # nothing ever comes, so that reading it is a sleep without a process of its own
    while ! read -r -t 15 -u "$never"; do
        say "      $((SECONDS - started)) s: $(tail -n 1 "$scratch/log" | cut -c 1-90)"
    done
}

stop_reporter() {
    if [ -n "$reporter" ]; then
        kill "$reporter" 2>/dev/null || true
        wait "$reporter" 2>/dev/null || true
        reporter=""
    fi
}

as_root() { # FIX COMMAND...
    local fix=$1
    shift
    if [ "$(id -u)" = 0 ]; then
        attempt "$fix" "$@"
    elif command -v sudo >/dev/null && sudo true; then # asks for the password where it can be seen
        attempt "$fix" sudo "$@"
    else
        say "setup: root is needed here, and no sudo would give it; have root run this, then try again:"
        say "    $*"
        exit 1
    fi
}

lists_are_fresh=no
update_lists() {
    if [ "$lists_are_fresh" = no ]; then
        lists_are_fresh=yes
        # One broken list is no reason to give up: what is needed may come from another.
        (as_root "going on with the lists that can be had" apt-get update -q) || true
    fi
}

install() { # PACKAGE...
    as_root "run it by hand to see more; check the network and /etc/apt/sources.list" \
        env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# Without pipes: `grep -q` leaves with its first match, the writer dies of its next line, and with
# pipefail what was found counts as not found.
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
offered() { [[ "$(LC_ALL=C apt-cache policy "$1" 2>/dev/null)" == *'  Candidate: '[^\(]* ]]; }

if [ "$(uname -m)" != x86_64 ]; then
    say "setup: the virtual kernel is User-Mode Linux, which there is for x86-64 only, and this machine is $(uname -m)."
    say "setup: the native kernel remains: pip install . and, as root, groundwire run --kernel native SPEC"
    exit 1
fi

# --- 1. System packages --------------------------------------------------------------------------
# Build tools for the virtual kernel; python3-venv for the environment; ping for `groundwire shell`.
needed=(gcc libc6-dev make flex bison bc patch xz-utils libelf-dev libssl-dev python3-venv iputils-ping)
for_tests=()
if [ "$purpose" = test ]; then
    # Programs that nobody here wrote, which must keep time in the virtual kernel; stock Mininet as the
    # baseline; a browser to look at the report with; tshark to check our dissector with. Where one is
    # not to be had its tests are skipped, and say so.
    for_tests=(iproute2 iperf iperf3 sockperf tcpdump tshark mininet chromium)
fi
not_offered=" $(cat "$venv/.not-offered" 2>/dev/null || true) "

missing=()
for package in "${needed[@]}" "${for_tests[@]}"; do
    if ! installed "$package" && [[ "$not_offered" != *" $package "* ]]; then missing+=("$package"); fi
done
if [ "${#missing[@]}" = 0 ]; then
    say "[1/4] system packages: present"
elif ! command -v apt-get >/dev/null; then
    say "setup: this machine has no apt-get; install these, or their like, by hand: ${missing[*]}"
    exit 1
else
    say "[1/4] system packages, to build the virtual kernel${for_tests:+ and for the tests}: ${missing[*]}"
    update_lists
    found=()
    for package in "${missing[@]}"; do
        if [[ " ${for_tests[*]} " == *" $package "* ]] && ! offered "$package"; then
            say "      $package is not offered here: the tests that need it will be skipped"
            not_offered="$not_offered$package "
        else
            found+=("$package")
        fi
    done
    [ "${#found[@]}" = 0 ] || install "${found[@]}"
fi

# --- 2. The kernel's source ----------------------------------------------------------------------
# Always Linux 6.12: our patches are for it, and one kernel gives the same results on every machine.
source_package=linux-source-6.12
case ${XDG_CACHE_HOME:-} in
    /*) fetched=$XDG_CACHE_HOME/groundwire/kernel/source ;;
    *) fetched=$HOME/.cache/groundwire/kernel/source ;; # a relative one counts as none (XDG)
esac
source_there() {
    compgen -G "/usr/src/$source_package*.tar.*" >/dev/null || compgen -G "$fetched/$source_package*.tar.*" >/dev/null
}

# Debian's package from Debian's own archive, for systems that offer other versions only. apt checks
# the signature; it works on lists of its own here, and changes nothing of the system's.
fetch_source() {
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg apt=$scratch/apt version
    local fix="check the network, or set GROUNDWIRE_KERNEL_SOURCE to linux-6.12.N.tar.xz from kernel.org"
    [ -e "$keys" ] || install debian-archive-keyring
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$fetched"
    touch "$apt/status"
    echo "deb [signed-by=$keys] ${GROUNDWIRE_DEBIAN_MIRROR:-http://deb.debian.org/debian} trixie main" >"$apt/list"
    local own=(-o "Dir::Etc::SourceList=$apt/list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
        -o "Dir::State::Lists=$apt/lists" -o "Dir::State::Status=$apt/status" -o "Dir::Cache=$apt/cache"
        -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any)
    attempt "$fix" apt-get "${own[@]}" update -q
    attempt "$fix" env -C "$scratch" apt-get "${own[@]}" download -q "$source_package"
    version=$(dpkg-deb -f "$scratch/$source_package"_*.deb Version)
    attempt "is the disk full?" dpkg-deb -x "$scratch/$source_package"_*.deb "$scratch/unpacked"
    mv "$scratch/unpacked/usr/src/$source_package.tar.xz" "$fetched/$source_package-$version.tar.xz"
}

if [ -n "${GROUNDWIRE_KERNEL_SOURCE:-}" ]; then
    say "[2/4] kernel source: $GROUNDWIRE_KERNEL_SOURCE, as GROUNDWIRE_KERNEL_SOURCE says"
elif source_there; then
    say "[2/4] kernel source: present"
elif ! command -v apt-get >/dev/null; then
    say "setup: no kernel source: set GROUNDWIRE_KERNEL_SOURCE to linux-6.12.N.tar.xz from kernel.org"
    exit 1
else
    offered "$source_package" || update_lists
    if offered "$source_package"; then
        say "[2/4] kernel source, for the virtual kernel: installing $source_package (150 MB)"
        install "$source_package"
    else
        say "[2/4] kernel source, for the virtual kernel: this system has no $source_package;"
        say "      fetching Debian's (150 MB) into $fetched"
        fetch_source
    fi
fi

# --- 3. Virtual environment ----------------------------------------------------------------------
extras=""
[ "$purpose" = test ] && extras="[test]"
stamp="$venv/.groundwire$extras-$(cat pyproject.toml setup.sh | sha256sum | cut -c1-16)"
if [ -e "$stamp" ] || { [ -z "$extras" ] && [ -e "${stamp/.groundwire/.groundwire[test]}" ]; }; then
    say "[3/4] virtual environment: present"
else
    python=""
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        say "setup: Python 3.11 or later with venv is needed; found $(python3 --version 2>&1)"
        exit 1
    fi
    say "[3/4] virtual environment: creating $venv ($("$python" --version)), installing Groundwire and PyTorch"
    [ -x "$venv/bin/pip" ] || attempt "install python3-venv, delete $venv and try again" "$python" -m venv "$venv"
    # Only the CPU build of PyTorch is of use here. PyPI's is for accelerators, with gigabytes more, so
    # the CPU build comes from PyTorch's own index. GROUNDWIRE_TORCH_INDEX names another index; when it
    # is set but empty, or PyTorch's does not answer, pip's own settings decide.
    index=${GROUNDWIRE_TORCH_INDEX-https://download.pytorch.org/whl/cpu}
    if [ -n "${GROUNDWIRE_TORCH_INDEX:-}" ] || { [ -n "$index" ] && "$venv/bin/python" -c \
        'import sys, urllib.request as r; r.urlopen(sys.argv[1] + "/torch/", timeout=10)' "$index" 2>/dev/null; }; then
        attempt "check GROUNDWIRE_TORCH_INDEX (here: $index)" \
            "$venv/bin/pip" install --progress-bar off --index-url "$index" "$(grep -o 'torch==[0-9.]*' pyproject.toml)"
    elif [ -n "$index" ]; then
        say "      $index does not answer: PyTorch comes from pip's usual index,"
        say "      which may mean gigabytes for accelerators; GROUNDWIRE_TORCH_INDEX can name a mirror of it"
    fi
    attempt "check the network; delete $venv and try again" "$venv/bin/pip" install --progress-bar off -e ".$extras"
    touch "$stamp"
fi
[ -z "${not_offered// /}" ] || echo "$not_offered" >"$venv/.not-offered"

# --- 4. The virtual kernel -----------------------------------------------------------------------
say "[4/4] virtual kernel (Linux as a program, in virtual time; built once, kept in the cache folder)"
"$venv/bin/groundwire" kernel build
