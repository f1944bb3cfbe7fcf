#!/usr/bin/env bash
# Sets up what Groundwire needs: system packages, a virtual environment, the virtual kernel.
#   ./setup.sh run     what `make demo` needs
#   ./setup.sh test    that, and what the tests need
# Each step says what it does and why, is skipped when it is done already, and on failure names the
# command that failed and what to do about it.
set -euo pipefail
cd "$(dirname "$0")"

purpose=${1:-run}
venv=.venv
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say() { printf '%s\n' "$*" >&2; }

# attempt FIX COMMAND...: run quietly; when it fails show its last lines, the command and the fix.
attempt() {
    local fix=$1
    shift
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        say "setup: this command failed: $*"
        say "setup: $fix"
        exit 1
    fi
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# --- 1. System packages --------------------------------------------------------------------------
# Build tools and the kernel source for the virtual kernel; python3-venv for the environment.
packages="gcc make flex bison bc xz-utils libelf-dev libssl-dev python3-venv iputils-ping"
if [ "$purpose" = test ]; then
    # Programs that nobody here wrote, which must keep time in the virtual kernel; stock Mininet as the
    # baseline; a browser to look at the report with; tshark to check our dissector with.
    packages="$packages iperf3 tcpdump tshark mininet chromium"
fi

installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

missing=""
for package in $packages; do installed "$package" || missing="$missing $package"; done
if ! ls /usr/src/linux-source-*.tar.* >/dev/null 2>&1; then missing="$missing linux-source"; fi

if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
        say "setup: this machine has no apt-get; install these (or their like) by hand:$missing"
        exit 1
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        say "setup: root is needed to install$missing, and there is no sudo; run as root: apt-get install$missing"
        exit 1
    fi
    say "[1/3] installing system packages (to build and boot the virtual kernel):$missing"
    attempt "check the network and /etc/apt/sources.list" as_root apt-get update -q
    case "$missing" in
    *linux-source*)
        # The virtual kernel needs the EEVDF scheduler: 6.6 or later (older ones hang under Gloo).
        source=$(apt-cache search --names-only '^linux-source-[0-9.]+$' | awk '{print $1}' |
            sort -t- -k3 -V | awk -F- '{split($3, v, "."); if (v[1] > 6 || (v[1] == 6 && v[2] >= 6)) print}' |
            grep -x linux-source-6.12 || true)
        if [ -z "$source" ]; then
            source=$(apt-cache search --names-only '^linux-source-[0-9.]+$' | awk '{print $1}' | sort -t- -k3 -V | tail -n 1)
        fi
        missing=${missing/linux-source/$source}
        ;;
    esac
    # shellcheck disable=SC2086
    attempt "run it by hand to see more; on Debian 12 the kernel source comes from bookworm-security" \
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
else
    say "[1/3] system packages: present"
fi

# --- 2. Virtual environment ----------------------------------------------------------------------
extras=""
[ "$purpose" = test ] && extras="[test]"
stamp="$venv/.groundwire$extras-$(cat pyproject.toml setup.sh | sha256sum | cut -c1-16)"
if [ -e "$stamp" ] || { [ -z "$extras" ] && [ -e "${stamp/.groundwire/.groundwire[test]}" ]; }; then
    say "[2/3] virtual environment: present"
else
    python=""
    for candidate in python3 python3.13 python3.12 python3.11; do
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
    say "[2/3] creating $venv ($($python --version)) and installing Groundwire with PyTorch: about a minute"
    [ -x "$venv/bin/python" ] || attempt "install python3-venv" "$python" -m venv "$venv"
    # Only the CPU build of PyTorch is of use here; where the index offers builds for other devices,
    # point GROUNDWIRE_TORCH_INDEX at one with CPU builds.
    if [ -n "${GROUNDWIRE_TORCH_INDEX:-}" ]; then
        attempt "check GROUNDWIRE_TORCH_INDEX" "$venv/bin/pip" install -q --index-url "$GROUNDWIRE_TORCH_INDEX" torch==2.13.0
    fi
    attempt "check the network; delete $venv and try again" "$venv/bin/pip" install -q -e ".$extras"
    touch "$stamp"
fi

# --- 3. The virtual kernel -----------------------------------------------------------------------
say "[3/3] virtual kernel (Linux as a program, in virtual time; built once, kept in the cache folder)"
"$venv/bin/groundwire" kernel build
