#!/bin/bash
# Runs a stage plan on this machine: smoke test, held-out set, training, export, evaluation.
#
# Usage: run_training.sh CORPUS.json.gz [PLAN [WAIT_SECONDS [LEFT_SECONDS]]]
#
# The work goes on in the background, in build/tiny_agent_run. The call waits for its end, at most WAIT_SECONDS, then copies what there is to $OUT
# (default: build/tiny_agent_run/out) in pieces below 16 MiB, and shows the end of the log. Call it again, the same, to wait on; what was done is not
# done again. With LEFT_SECONDS the stage under way ends in that time instead of the planned one. Afterwards: cat model.tar.* | tar x.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/build/tiny_agent_run
python=${PYTHON:-python3}
corpus=$(realpath "${1:?usage: run_training.sh CORPUS.json.gz [PLAN [WAIT_SECONDS]]}")
plan=$(realpath "${2:-$here/plan.txt}")
wait_seconds=${3:-570}
left_seconds=${4:-}
out=${OUT:-$work/out}
mkdir -p "$work" "$out"
export TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton PYTHONDONTWRITEBYTECODE=1

plain="--inverse solve --scan loop --no-graphs --ranks 1"  # what the committed weights were trained with

say() { echo "== $(date +%T) $*"; }

# Scores a stage's exported model; beside the next stage when there is one.
evaluate() {
  CUDA_VISIBLE_DEVICES=$(nvidia-smi -L 2> /dev/null | wc -l | awk '{ print ($1 > 0 ? $1 - 1 : "") }') "$python" "$here/evaluate.py" "$1/model" "$work/heldout.jsonl" "$1/scores.json.part" && mv "$1/scores.json.part" "$1/scores.json"
}

export_stage() {
  rm -rf "$1/model.part"
  mkdir -p "$1/model.part"
  cp "$root"/models/tiny-agent/{tokenizer.json,tokenizer_config.json,chat_template.jinja} "$1/model.part/"
  "$python" "$here/export.py" "$1/last.pt" "$1/model.part"
  mv "$1/model.part" "$1/model"
  tar -C "$1" -cf - model | split -d -a 1 -b 12M - "$1/model.tar."
  touch "$1/exported"
}

train_stage() {
  local name=$1 seconds=$2 rows=$3 rate=$4 shard=$5 from=$6 long=$7 quant=$8 init=()
  case $from in
    none) ;;
    model) init=(--init "$root/models/tiny-agent") ;;
    *) init=(--init "$work/$from/last.pt") ;;
  esac
  rm -rf "$work/$name/shards"
  mkdir -p "$work/$name"
  # shellcheck disable=SC2046  # the flags are words
  "$python" "$here/train.py" --corpus "$corpus" --work "$work/$name/shards" --out "$work/$name/last.pt" --steps 40000 --deadline "$seconds" --rows "$rows" \
    --lr "$rate" --first-shard "$shard" --long-from "$long" --quant-from "$quant" --save-every 120 --end-file "$work/end" "${init[@]}" $(cat "$work/flags") 2>&1 | tee "$work/$name/train.log"
  rm -rf "$work/$name/shards"
  grep -q '^done ' "$work/$name/train.log"
}

drive() {
  set -o pipefail
  say "smoke test"
  [ -s "$work/heldout.jsonl" ] || { "$python" "$here/make_heldout.py" "$corpus" "$work/heldout.part" 220 && mv "$work/heldout.part" "$work/heldout.jsonl"; } < /dev/null &
  [ -s "$work/flags" ] || timeout 150 "$python" "$here/smoke.py" --flags "$work/flags" || echo "$plain" > "$work/flags"
  wait
  local last=""
  while read -r name rest; do
    case $name in "" | \#*) continue ;; esac
    last=$name
    if [ ! -e "$work/$name/exported" ]; then
      say "stage $name: $rest"
      # shellcheck disable=SC2086  # the rest of the line is words
      if ! train_stage "$name" $rest < /dev/null; then
        say "stage $name once more, as plainly as can be"
        echo "$plain" > "$work/flags"
        # shellcheck disable=SC2086
        train_stage "$name" $rest < /dev/null
      fi
      export_stage "$work/$name"
    fi
    [ -s "$work/$name/scores.json" ] || evaluate "$work/$name" < /dev/null > "$work/$name/evaluate.log" 2>&1 &
  done < "$plan"
  wait
  cat "$work/$last/evaluate.log"
  say "all done"
  touch "$work/done"
}

deliver() {
  local newest
  newest=$(find "$work" -mindepth 2 -maxdepth 2 -name exported -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
  rm -f "$out"/model.tar.* "$out/results.tar.gz"
  if [ -n "$newest" ]; then
    cp "$(dirname "$newest")"/model.tar.* "$out/"
  fi
  (cd "$work" && find . \( -name '*.log' -o -name scores.json -o -name heldout.jsonl -o -name flags \) -type f ! -path './out/*' ! -path './inductor/*' -print0 | tar --null -T - -czf "$out/results.tar.gz")
  cp "$work/run.log" "$out/run.log"
}

if [ "${TINY_AGENT_DRIVE:-}" = 1 ]; then
  drive
  exit
fi
if [ ! -e "$work/done" ] && ! { [ -e "$work/pid" ] && kill -0 "$(cat "$work/pid")" 2> /dev/null; }; then
  TINY_AGENT_DRIVE=1 setsid "$here/run_training.sh" "$corpus" "$plan" >> "$work/run.log" 2>&1 < /dev/null &
  echo $! > "$work/pid"
fi
if [ -n "$left_seconds" ]; then
  echo $(($(date +%s) + left_seconds)) > "$work/end.part" && mv "$work/end.part" "$work/end"
fi
end=$((SECONDS + wait_seconds))
while [ ! -e "$work/done" ] && kill -0 "$(cat "$work/pid")" 2> /dev/null && [ $SECONDS -lt $end ]; do
  sleep 1
done
deliver
tail -n 60 "$work/run.log"
if [ -e "$work/done" ]; then
  echo "finished"
elif kill -0 "$(cat "$work/pid")" 2> /dev/null; then
  echo "still running: call again"
else
  echo "stopped before its end: see the log"
  exit 1
fi
