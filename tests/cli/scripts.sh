# Every script prints its help and does nothing else: in a copy of the folder, where no program is to
# be had but those that read the comment.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

mkdir -p programs tree
cp -r "$GRADUS_SOURCE_DIR/scripts" tree/scripts
for program in bash env dirname sed; do
  ln -s "$(command -v "$program")" programs/
done
find tree | sort >before

helps() {
  local name=$1 status=0
  shift
  ran="scripts/$name --help"
  "$@" >out 2>err </dev/null || status=$?
  [ "$status" = 0 ] || fail "$ran: exit status $status"
  [ ! -s err ] || fail "$ran: said something on standard error"
  says out "scripts/$name"
  find tree | sort | cmp -s before - || fail "$ran: wrote files"
}
scripts=0
for script in tree/scripts/*; do
  [ -x "$script" ] || continue
  scripts=$((scripts + 1))
  helps "$(basename "$script")" env PATH="$PWD/programs" "$script" --help
done
[ "$scripts" -ge 14 ] || fail "only $scripts scripts were found"
finish
