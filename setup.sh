#!/usr/bin/env bash
# Sets up what Groundwire needs: system packages, the kernel's source, and then, side by side, a virtual
# environment and the virtual kernel.
#   ./setup.sh run     what `make demo` needs
#   ./setup.sh host    that without the extras: runs that another machine asks for (playbooks/)
#   ./setup.sh test    what `make demo` needs, and what the tests need
#   ./setup.sh missing prints the packages of `run` that are to be installed, and does nothing
#   ./setup.sh python  prints which Python would be used, and does nothing
#   ./setup.sh source  system packages and the kernel's source only
# Each step says what it does and why, is skipped when it is done already, and on failure names the
# command that failed, what to do about it, and where everything that was said is kept.
set -euo pipefail
cd "$(dirname "$0")"

purpose=${1:-run}
venv=.venv
scratch=$(mktemp -d)
logs=$(mktemp -d "${TMPDIR:-/tmp}/groundwire-setup.XXXXXX")
log=$logs/setup.log # a job in the background has one of its own
lock_wait_s=600
reporter=""
jobs=() # the name of each background job, by its process, which leads a process group
exec {never}<> <(:) # nothing ever comes, so that reading it is a sleep without a process of its own
exec 3>&2
trap 'leave $?' EXIT

say() { printf '%s\n' "$*" >&3; }

pause() { read -r -t "$1" -u "$never" || true; }

leave() { # STATUS
    [ "$BASHPID" = "$$" ] || return 0 # a background process that is ended in its first moment has our traps
    stop_reporter
    rm -rf "$scratch"
    if [ "$1" != 0 ] && compgen -G "$logs/*.log" >/dev/null; then
        say "setup: everything that was said is in $logs"
    else
        rm -rf "$logs"
    fi
}

# attempt FIX COMMAND...: run quietly, saying now and then how far it is; when it fails show its last
# lines, the command and the fix.
attempt() {
    local fix=$1 status=0
    shift
    if [ "$log" = "$logs/setup.log" ]; then start_reporter; fi
    run "$@" || status=$?
    stop_reporter
    [ "$status" != 0 ] || return 0
    tail -n 40 "$log" >&3
    say "setup: this command failed: $*"
    say "setup: $fix"
    exit 1
}

# run COMMAND...: what it says goes to the log. apt waits for dpkg's lock by itself, but ends at once
# when another apt has the lists or the archives: then it is started again.
run() {
    local status last=$((SECONDS + lock_wait_s))
    while :; do
        status=0
        LC_ALL=C "$@" >"$log" 2>&1 </dev/null || status=$?
        if [ "$status" = 0 ] || [ "$SECONDS" -ge "$last" ] || ! tell_of_lock; then return "$status"; fi
        pause 1
    done
}

# Succeeds when another apt is in the way of the command at work, and says so once.
tell_of_lock() {
    local holder
    holder=$(grep -s -o -m 1 'Could not get lock [^ ]* .*[^.]' "$log") || return 1
    if [ ! -e "$scratch/told-of-lock" ]; then
        touch "$scratch/told-of-lock"
        say "      another apt is at work; waiting for it up to $((lock_wait_s / 60)) minutes: ${holder#Could not get lock }"
    fi
}

start_reporter() {
    report_progress &
    reporter=$!
}

report_progress() {
    local started=$SECONDS told=$SECONDS
    while pause 1; do
        tell_of_lock || true
        [ $((SECONDS - told)) -ge 15 ] || continue
        told=$SECONDS
        say "      $((SECONDS - started)) s: $(last_line "$log")"
    done
}

# stage WORDS: what a job is at, for the lines that say how far it is.
stage() { printf '%s' "$1" >"${log%.log}.stage"; }

# The stage, where there is one, and the last line that was said, without the advice of pip.
last_line() {
    local line said
    line=$(tail -n 5 "$1" 2>/dev/null | grep -v -E '^ *$|^WARNING|\[notice\]|^Successfully' | tail -n 1 | cut -c 1-90) || true
    said=$(cat "${1%.log}.stage" 2>/dev/null) || true
    [ -z "$said" ] || said="$said${line:+: }"
    said=$said$line
    printf '%s' "${said:-at work}"
}

stop_reporter() {
    if [ -n "$reporter" ]; then
        kill "$reporter" 2>/dev/null || true
        wait "$reporter" 2>/dev/null || true
        reporter=""
    fi
}

# start_job NAME FUNCTION: in the background, as a process group of its own, which can be ended as one.
start_job() {
    set -m
    (
        trap 'exit 143' TERM
        log=$logs/$1.log
        exec 2>/dev/null # bash's own words about programs that a signal ended
        "$2"
    ) </dev/null &
    jobs[$!]=$1
    set +m
}

# Waits until all jobs have ended, and says every 15 s how far each is. When one fails the others are
# stopped: nobody wants to wait minutes for the news.
finish_jobs() {
    local started=$SECONDS told=$SECONDS process status name
    while [ "${#jobs[@]}" != 0 ]; do
        pause 0.2 # not `wait`, which can miss a signal that comes just before it
        [ -z "$caught" ] || end_by_signal
        for process in "${!jobs[@]}"; do
            ! kill -0 "$process" 2>/dev/null || continue
            name=${jobs[$process]}
            unset "jobs[$process]"
            status=0
            wait "$process" || status=$?
            if [ "$status" != 0 ]; then
                [ "${#jobs[@]}" = 0 ] || say "setup: so the other half, ${jobs[*]}, is stopped too; it is not at fault"
                stop_jobs
                exit 1
            fi
            say "      $((SECONDS - started)) s: $name: done"
        done
        [ $((SECONDS - told)) -ge 15 ] || continue
        told=$SECONDS
        for name in "${jobs[@]}"; do
            say "      $((SECONDS - started)) s: $name: $(last_line "$logs/$name.log")"
        done
    done
}

stop_jobs() {
    local process tries
    for process in "${!jobs[@]}"; do
        for ((tries = 0; ; tries++)); do
            # Again now and then: a program that was just being started has not heard it.
            [ $((tries % 50)) != 0 ] || kill -TERM -- "-$process" 2>/dev/null || break
            kill -0 -- "-$process" 2>/dev/null || break
            pause 0.1
        done
    done
    jobs=()
}

end_by_signal() {
    stop_jobs
    trap - EXIT "$caught"
    leave 0
    say "setup: interrupted; the next one goes on from here"
    kill -s "$caught" $$
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

apt_waits=(-o "DPkg::Lock::Timeout=$lock_wait_s")
lists_are_fresh=no
update_lists() {
    if [ "$lists_are_fresh" = no ]; then
        lists_are_fresh=yes
        # One broken list is no reason to give up: what is needed may come from another.
        (as_root "going on with the lists that can be had" apt-get update -q "${apt_waits[@]}") || true
    fi
}

install() { # PACKAGE...
    as_root "run it by hand to see more; check the network and /etc/apt/sources.list" \
        env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${apt_waits[@]}" "$@"
}

# Without pipes: `grep -q` leaves with its first match, the writer dies of its next line, and with
# pipefail what was found counts as not found.
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
offered() { [[ "$(LC_ALL=C apt-cache policy "$1" 2>/dev/null)" == *'  Candidate: '[^\(]* ]]; }

# Prints the first Python that is new enough and can make virtual environments; nothing without one.
find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}
no_python() {
    say "setup: Python 3.11 or later with venv is needed; found $(python3 --version 2>&1)"
    exit 1
}
if [ "$purpose" = python ]; then
    python=$(find_python)
    [ -n "$python" ] || no_python
    echo "$python"
    exit
fi

if [ "$(uname -m)" != x86_64 ]; then
    say "setup: the virtual kernel is User-Mode Linux, which there is for x86-64 only, and this machine is $(uname -m)."
    say "setup: the native kernel remains: pip install . and, as root, groundwire run --kernel native SPEC"
    exit 1
fi

# Always Linux 6.12: our patches are for it, and one kernel gives the same results on every machine.
source_package=linux-source-6.12
case ${XDG_CACHE_HOME:-} in
    /*) fetched=$XDG_CACHE_HOME/groundwire/kernel/source ;;
    *) fetched=$HOME/.cache/groundwire/kernel/source ;; # a relative one counts as none (XDG)
esac
debians_keys=/usr/share/keyrings/debian-archive-keyring.gpg
for_fetching=()
[ -e "$debians_keys" ] || for_fetching=(debian-archive-keyring)
source_there() {
    compgen -G "/usr/src/$source_package*.tar.*" >/dev/null || compgen -G "$fetched/$source_package*.tar.*" >/dev/null
}

# --- 1. System packages --------------------------------------------------------------------------
# Build tools for the virtual kernel and the packet engine; venv for the environment; ping for
# `groundwire shell`; what programs with RDMA verbs need.
needed=(gcc g++ libc6-dev make flex bison bc patch xz-utils libelf-dev libssl-dev iputils-ping
    libibverbs-dev ibverbs-providers)
# Ubuntu 22.04's python3 is 3.10, and it has 3.11 beside it.
if ! command -v python3 >/dev/null || python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    needed+=(python3-venv)
elif [ -z "$(find_python)" ]; then
    needed+=(python3.11-venv)
fi
for_tests=()
if [ "$purpose" = test ]; then
    # Programs that nobody here wrote, which must keep time in the virtual kernel; stock Mininet as the
    # baseline; a browser to look at the report with; tshark to check our dissector with; an ssh server,
    # without a service that starts it, for remote hosts. Where one is not to be had its tests are
    # skipped, and say so. mmdebstrap makes clean systems, for the wheel to be installed in. Virtual
    # GPUs are compiled with Python's headers.
    for_tests=(python3-dev iproute2 iperf iperf3 sockperf tcpdump tshark mininet ibverbs-utils perftest ucx-utils chromium dropbear-bin bubblewrap mmdebstrap sudo)
fi
not_offered=" $(cat "$venv/.not-offered" 2>/dev/null || true) "

missing=()
for package in "${needed[@]}" "${for_tests[@]}"; do
    if ! installed "$package" && [[ "$not_offered" != *" $package "* ]]; then missing+=("$package"); fi
done
if [ "$purpose" = missing ]; then
    if [ -z "${GROUNDWIRE_KERNEL_SOURCE:-}" ] && ! source_there; then
        if offered "$source_package"; then missing+=("$source_package"); else missing+=("${for_fetching[@]}"); fi
    fi
    [ "${#missing[@]}" = 0 ] || printf '%s\n' "${missing[@]}"
    exit
fi
if [ "${#missing[@]}" = 0 ]; then
    say "[1/4] system packages: present"
elif ! command -v apt-get >/dev/null; then
    say "setup: this machine has no apt-get; install these, or their like, by hand: ${missing[*]}"
    exit 1
else
    say "[1/4] system packages, to build the virtual kernel${for_tests:+ and for the tests}: ${missing[*]}"
    update_lists
    if [[ " ${missing[*]} " == *" python3.11-venv "* ]] && ! offered python3.11-venv; then no_python; fi
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
# Debian's package from Debian's own archive, for systems that offer other versions only. apt checks
# the signature; it works on lists of its own here, and changes nothing of the system's.
list_of() { # SUITE KEYS
    echo "deb [signed-by=$2] ${GROUNDWIRE_DEBIAN_MIRROR:-http://deb.debian.org/debian} $1 main" >"$apt/list"
}
fetch_source() {
    local apt=$scratch/apt version
    local fix="check the network, or set GROUNDWIRE_KERNEL_SOURCE to linux-6.12.N.tar.xz from kernel.org"
    [ "${#for_fetching[@]}" = 0 ] || install "${for_fetching[@]}"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$fetched"
    touch "$apt/status"
    local own=(-o "Dir::Etc::SourceList=$apt/list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
        -o "Dir::State::Lists=$apt/lists" -o "Dir::State::Status=$apt/status" -o "Dir::Cache=$apt/cache"
        -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Acquire::Languages=none)
    list_of trixie "$debians_keys"
    if ! run apt-get "${own[@]}" update -q "${apt_waits[@]}" && grep -q NO_PUBKEY "$log"; then
        say "      the keys here are older: getting them from Debian 11, which those know"
        list_of bullseye "$debians_keys"
        attempt "$fix" apt-get "${own[@]}" update -q "${apt_waits[@]}"
        attempt "$fix" env -C "$scratch" apt-get "${own[@]}" download -q "${apt_waits[@]}" debian-archive-keyring
        attempt "is the disk full?" dpkg-deb -x "$scratch"/debian-archive-keyring_*.deb "$scratch/newer"
        list_of trixie "$scratch/newer$debians_keys"
    fi
    attempt "$fix" apt-get "${own[@]}" update -q "${apt_waits[@]}"
    attempt "$fix" env -C "$scratch" apt-get "${own[@]}" download -q "${apt_waits[@]}" "$source_package"
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

[ "$purpose" != source ] || exit 0

# --- 3 and 4. Virtual environment and virtual kernel ----------------------------------------------
# Side by side: the one waits for the network and for the disk while the other compiles.
caught="" # a signal, which ends both halves
for signal in INT TERM HUP; do trap "caught=$signal" "$signal"; done

make_environment() {
    export TMPDIR=$scratch # pip leaves what it unpacked when it is stopped
    stage "making $venv"
    [ -x "$venv/bin/pip" ] || attempt "install python3-venv, delete $venv and try again" "$python" -m venv "$venv"
    # Only the CPU build of PyTorch is of use here. PyPI's is for accelerators, with gigabytes more, so
    # the CPU build comes from PyTorch's own index. GROUNDWIRE_TORCH_INDEX names another index; when it
    # is set but empty, or PyTorch's does not answer, pip's own settings decide.
    local index=${GROUNDWIRE_TORCH_INDEX-https://download.pytorch.org/whl/cpu}
    if [ -n "${GROUNDWIRE_TORCH_INDEX:-}" ] || { [ -n "$index" ] && "$venv/bin/python" -c \
        'import sys, urllib.request as r; r.urlopen(sys.argv[1] + "/torch/", timeout=10)' "$index" 2>/dev/null; }; then
        stage "installing PyTorch"
        attempt "check GROUNDWIRE_TORCH_INDEX (here: $index)" \
            "$venv/bin/pip" install --no-compile --no-deps --progress-bar off --index-url "$index" "$(grep -o 'torch==[0-9.]*' pyproject.toml)"
    elif [ -n "$index" ]; then
        say "      $index does not answer: PyTorch comes from pip's usual index,"
        say "      which may mean gigabytes for accelerators; GROUNDWIRE_TORCH_INDEX can name a mirror of it"
    fi
    stage "installing packages"
    attempt "check the network; delete $venv and try again" "$venv/bin/pip" install --no-compile --progress-bar off -c constraints.txt -e ".$extras"
    # A guest cannot write into the clone, so it compiles anew what nobody has compiled before. That
    # costs time and nothing else, and so does a failure here. pip would compile on one core. What only
    # the host imports compiles itself when it is first used, and so do tests of packages.
    local hosts='ansible|asyncssh|dask|distributed|mypy|pandas|pip|pyarrow|pymdownx|ruamel|torchgen|tornado|virtualenv'
    local never_in_a_guest="/site-packages/($hosts|.*/tests/|torch/testing/_internal/)"
    : >"$log"
    stage "compiling Python's files, so that no guest has to"
    "$venv/bin/python" -m compileall -qq -j 0 -x "$never_in_a_guest" "$venv/lib" topologies collectives workloads simulation analysis emulator groundwire || true
    # Tests of virtual GPUs need their library. Others have it compiled by the first run that wants it.
    [ "$purpose" != test ] || stage "compiling the library of virtual GPUs"
    [ "$purpose" != test ] || "$venv/bin/python" -m workloads.virtual_gpu.building >/dev/null 2>&1 || true
    touch "$stamp"
}

build_kernel() {
    stage "compiling the packet engine"
    attempt "the compiler's words are above" "${python:-$venv/bin/python}" -m simulation.building
    stage "compiling the virtual kernel"
    attempt "when that is mended, what is compiled already counts" "${kernel_builder[@]}"
}

extras="[remote,studies,tables]"
[ "$purpose" = test ] && extras="[test]" # which has those as well
[ "$purpose" = host ] && extras=""
python=$(find_python)
stamp="$venv/.groundwire$extras-$(cat pyproject.toml constraints.txt setup.sh | sha256sum | cut -c1-16)"
if [ -e "$stamp" ] || [ -e "${stamp/"$extras"/[test]}" ]; then
    say "[3/4] virtual environment: present"
    kernel_builder=("$venv/bin/groundwire" kernel build)
else
    [ -n "$python" ] || no_python
    say "[3/4] virtual environment: creating $venv ($("$python" --version)), installing Groundwire and PyTorch"
    kernel_builder=("$python" -m emulator.virtual.building) # `groundwire kernel build` before it is there
    start_job python make_environment
fi
say "[4/4] virtual kernel (Linux as a program, in virtual time; built once, kept in the cache folder)"
say "      and packet engine (the simulator beside it; likewise)"
start_job kernel build_kernel
finish_jobs
[ -z "${not_offered// /}" ] || echo "$not_offered" >"$venv/.not-offered"
