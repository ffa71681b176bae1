# Whole messages of errors, in addition to those of docs/errors.md. errors.txt has files, commands and
# what the commands print; here it is written once more, by running them, and compared. A line that
# begins with
#   '== '  names a case,
#   '-- '  names a file, whose text follows,
#   '$ '   is a command of bash, followed by its standard error, standard output and exit status.
# Files stay for the cases that follow. Each case has one command that fails.
# If a message has been improved, the file `now` in the folder of this test is the new errors.txt.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"
export LC_ALL=C
known=$GRADUS_SOURCE_DIR/tests/cli/errors.txt

gradus() { "$GRADUS" "$@"; }

# transcript COMMAND: the command, and what came of it.
transcript() {
  local status=0
  printf '$ %s\n' "$1"
  eval "$1" 2>err >out </dev/null || status=$?
  cat err
  sed 's/^/stdout: /' out
  [ "$status" = 0 ] || echo "exit $status"
}

file=
output=
while IFS= read -r line; do
  case $line in
    '== '*)
      [ -z "$output" ] || echo
      file= output=
      echo "$line"
      ;;
    '-- '*)
      file=${line#-- } output=
      : >"$file"
      echo "$line"
      ;;
    '$ '*)
      file= output=yes
      transcript "${line#\$ }"
      ;;
    *)
      [ -z "$output" ] || continue
      [ -z "$file" ] || printf '%s\n' "$line" >>"$file"
      printf '%s\n' "$line"
      ;;
  esac
done <"$known" >now

ran='errors.txt'
: >out
diff -u --label 'errors.txt' --label 'what is printed now' "$known" now >err ||
  fail 'messages have changed'
is "$(grep -c '^== ' now)" "$(grep -c '^exit ' now)"
finish
