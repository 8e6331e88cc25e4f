# zsh_completed.zsh FOLDER LINE...: prints each line as the Tab key completes it in an interactive zsh that has sourced lmx's
# completion, one per line. The script writes its files to FOLDER.
zmodload zsh/zpty || exit 77
folder=$1
shift
export TERM=dumb ZDOTDIR=$folder
cat > $folder/.zshrc <<'RC'
autoload -U compinit && compinit -u -D
source <(lmx completion zsh)
report() { print -r -- "$BUFFER|" > $ZDOTDIR/answer.tmp && mv $ZDOTDIR/answer.tmp $ZDOTDIR/answer; BUFFER= }
zle -N report
bindkey '^X' report
touch $ZDOTDIR/ready
RC
zpty -b shell zsh -d -i
wait_for() {
  repeat 1800; do
    [[ -e $1 ]] && return
    zpty -r -t shell ignored 2> /dev/null
    sleep 0.05
  done
  print "zsh never came to ${1:t}"
  exit 1
}
wait_for $folder/ready
for line in "$@"; do
  zpty -n -w shell "$line"$'\t\C-x'
  wait_for $folder/answer
  cat $folder/answer
  rm $folder/answer
done
zpty -d shell
