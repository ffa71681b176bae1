# Sourced by the tests of the command-line tool. $GRADUS is the tool; the folder is empty and ours.
set -u
failures=0

fail() {
  echo "FAILED: $*" >&2
  [ ! -s out ] || sed 's/^/  out: /' out >&2
  [ ! -s err ] || sed 's/^/  err: /' err >&2
  failures=$((failures + 1))
}

# runs STATUS ARGUMENT...: the tool ends with that status; what it said is in the files out and err.
runs() {
  local expected=$1 status=0
  shift
  ran="gradus $*"
  "$GRADUS" "$@" >out 2>err </dev/null || status=$?
  [ "$status" = "$expected" ] || fail "$ran: exit status $status, expected $expected"
  # An error says nothing on standard output, success nothing on standard error.
  if [ "$expected" = 0 ]; then
    [ ! -s err ] || fail "$ran: said something on standard error"
  else
    [ -s err ] || fail "$ran: said nothing on standard error"
  fi
}

# says FILE TEXT...: the output of the last command holds each text.
says() {
  local file=$1 text
  shift
  for text; do
    grep -qF -- "$text" "$file" || fail "$ran: expected in $file: $text"
  done
}

# refuses STATUS TEXT ARGUMENT...: an error that holds the text, and nothing on standard output.
refuses() {
  local status=$1 text=$2
  shift 2
  runs "$status" "$@"
  [ ! -s out ] || fail "$ran: said something on standard output"
  says err "$text"
}

is() {
  [ "$1" = "$2" ] || fail "$ran: expected '$2', got '$1'"
}

finish() {
  [ "$failures" = 0 ] || exit 1
}
