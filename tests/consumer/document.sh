# Runs the commands of a page of docs/. Sourced by the tests of this folder.
#
# run_document DOCUMENT BUILD_FOLDER: runs every ```sh block of the document in order, in the folder $work/work. There,
# lmx/build is a built lmx. The output is stored in $work/out. The test fails at the first failing command, and if a
# line of a ```text block was not printed. A ```cpp block with a file name defines that file.
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

run_document() {
  local document=$1 build=$2 line
  mkdir -p "$work/home" "$work/work/lmx"
  ln -s "$build" "$work/work/lmx/build"
  ln -s "$(dirname "$document")" "$work/work/lmx/docs"
  blocks "$document" sh >"$work/script"
  awk -v folder="$work/work/" '/^```cpp [a-z_]+\.cc$/ {file = folder $2; next} /^```$/ {file = ""} file {print > file}' "$document"
  [[ $(wc -l <"$work/script") -ge 10 ]] || { echo "$document has no commands" >&2; exit 1; }
  export HOME=$work/home
  (cd "$work/work" && bash -euxo pipefail "$work/script") >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
  while IFS= read -r line; do expect "$line"; done < <(blocks "$document" text)
}
