# gradus check-potential.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"
argon=$GRADUS_SOURCE_DIR/examples/potentials/argon

runs 0 check-potential "$argon.ir" --weights "$argon.safetensors"
says out 'rotation      ok' 'permutation   ok' 'forces        ok' 'virial        ok' 'ghosts        ok'
runs 0 check-potential "$argon.ir" --weights "$argon.safetensors" --random 7 --spacing 3.6
# A cutoff within reach of the potential: what is there beyond it, and a jump.
"$GRADUS" check-potential "$argon.ir" --weights "$argon.safetensors" --cutoff 5 --spacing 3 >out 2>err && fail 'a jump passes'
says out 'cutoff        WRONG' 'smooth        WRONG' 'rotation      ok'
says err '2 of 11 checks failed'
refuses 1 'no weights are found for: eps f64[], sigma f64[], onset f64[], cutoff f64[]' check-potential "$argon.ir" --cutoff 8.5
refuses 1 'no cutoff is known' check-potential "$argon.ir"
refuses 1 'is no potential' check-potential "$GRADUS_SOURCE_DIR/examples/argon.ir"
refuses 1 'cannot be read' check-potential "$argon.ir" --weights none.safetensors

finish
