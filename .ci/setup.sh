# Sourced by ./run and ./check: what the build needs, installed only where it is missing.
# A machine that has it all is asked nothing: no apt, no network.

readonly BUILD_PACKAGES=(g++ cmake ninja-build libfmt-dev libsimdjson-dev libxxhash-dev libcli11-dev
  libboost1.81-dev)
readonly CHECK_PACKAGES=(clang-format libgtest-dev libbenchmark-dev python3 python3-venv)

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# missing_packages PACKAGE...: those that dpkg does not have, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] ||
      echo "$package"
  done
}

# install_packages PACKAGE...
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "$(basename "$0"): not a Debian system; going on with what is installed (needs: $*)" >&2
    return
  fi
  local missing sudo=()
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then return; fi
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      fail "these packages are missing: ${missing[*]}. Install them as root, then run this again."
    sudo=(sudo)
  fi
  echo "installing: ${missing[*]}" >&2
  "${sudo[@]}" apt-get -qq update >&2 || fail "apt-get update failed; missing: ${missing[*]}"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "${missing[@]}" >&2 ||
    fail "apt-get could not install: ${missing[*]}"
}

# build ROOT PRESET TARGET...: configures and builds; prints the log only when that fails.
build() {
  local root=$1 preset=$2 log
  shift 2
  log="$root/build/$preset/build.log"
  { mkdir -p "$root/build/$preset" && : >"$log"; } 2>/dev/null ||
    fail "cannot write $log; use a copy of the repository that you may write"
  if ! (cd "$root" && cmake --preset "$preset" && cmake --build --preset "$preset" -j "$(nproc)" \
    --target "$@") >"$log" 2>&1; then
    grep -E 'error|Error|FAILED' "$log" | cut -c 1-400 | head -40 >&2 || tail -n 30 "$log" >&2
    echo "$(basename "$0"): the build failed; the whole log is in $log" >&2
    return 1
  fi
}
