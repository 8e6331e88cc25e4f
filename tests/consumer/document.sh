# Runs the commands of pages of docs/. Sourced by the tests of this folder.
#
# run_documents BUILD_FOLDER DOCUMENT...: runs every ```sh block of the documents in order, in one shell and in the folder
# $work/work. There, lmx/build is a built lmx. The output is stored in $work/out. The test fails at the first failing
# command, and if a line of a ```text block was not printed. A ```cpp block with a file name defines that file.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

blocks() {  # blocks DOCUMENT KIND: the lines of its blocks of that kind
  awk -v begin="\`\`\`$2" '$0 == begin {on = 1; next} /^```$/ {on = 0} on' "$1"
}

expect() {  # expect TEXT: fails if it was not printed
  grep -qF -- "$1" "$work/out" && return
  echo "expected '$1' in:" >&2
  cat "$work/out" >&2
  exit 1
}

run_documents() {
  local build=$1 document line
  shift
  mkdir -p "$work/home" "$work/work/lmx"
  ln -s "$build" "$work/work/lmx/build"
  ln -s "$(dirname "$1")" "$work/work/lmx/docs"
  for document in "$@"; do
    blocks "$document" sh >"$work/part"
    [[ -s $work/part ]] || { echo "$document has no commands" >&2; exit 1; }
    cat "$work/part" >>"$work/script"
    awk -v folder="$work/work/" '/^```cpp [a-z_]+\.cc$/ {file = folder $2; next} /^```$/ {file = ""} file {print > file}' "$document"
  done
  [[ $(wc -l <"$work/script") -ge 10 ]] || { echo "$* have no commands" >&2; exit 1; }
  export HOME=$work/home
  (cd "$work/work" && bash -euxo pipefail "$work/script") >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
  for document in "$@"; do
    while IFS= read -r line; do expect "$line"; done < <(blocks "$document" text)
  done
}
