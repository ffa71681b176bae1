# Debian's LAMMPS moves argon by the KIM driver, beside KIM's own Lennard-Jones argon: the same
# positions, forces, energies and stresses of atoms over 1,000 steps, on one rank and on two.
# SPEC S1
# $BUILD is the build folder, $GRADUS_SOURCE_DIR the tree; the folder is empty and ours.
set -eu
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
for needed in lmp kim-api-collections-management; do
  command -v $needed >/dev/null || { echo "skipped: no $needed (lammps, openkim-models, libkim-api-dev)"; exit 77; }
done
here=$GRADUS_SOURCE_DIR/tests/clients
prefix=$PWD/prefix
cmake --install "$BUILD" --prefix "$prefix" >install.log
export KIM_API_MODEL_DRIVERS_DIR=$PWD/drivers KIM_API_PORTABLE_MODELS_DIR=$PWD/models
export KIM_API_SIMULATOR_MODELS_DIR=$PWD/simulator_models
mkdir drivers models simulator_models

# item NAME FOLDER: builds and installs a KIM item.
item() {
  cmake -S "$2" -B "$1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_CXX_FLAGS='-O2 -Wall -Wextra -Wno-missing-field-initializers -Werror' \
    -DKIM_API_INSTALL_COLLECTION=ENVIRONMENT >"$1.log" 2>&1 &&
    cmake --build "$1" -t install >>"$1.log" 2>&1 || { tail -20 "$1.log" >&2; fail "$1"; }
}
item driver "$GRADUS_SOURCE_DIR/clients/kim/driver"
item argon "$GRADUS_SOURCE_DIR/clients/kim/argon"
theirs=LJ_Shifted_Bernardes_1958LowCutoff_Ar__MO_720819638419_004

# moves OUT MODEL [COMMAND...]: 1,000 steps by that model.
moves() {
  local out=$1 model=$2
  shift 2
  timeout 200 "$@" lmp -in "$here/argon.in" -var model "$model" -var out "$out.dump" -log "$out.log" \
    >"$out.out" 2>&1 || { tail -5 "$out.out" >&2; grep error kim.log >&2; fail "$out"; }
}
moves theirs $theirs
moves ours gradus_argon
python3 "$here/same_numbers.py" ours.dump theirs.dump 1e-9 || fail 'one rank'

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if command -v mpirun.openmpi >/dev/null; then
  moves ranks gradus_argon mpirun.openmpi --oversubscribe -np 2
  python3 "$here/same_numbers.py" ranks.dump theirs.dump 1e-9 || fail 'two ranks'
fi

# KIM's own test programs: energies and forces of clusters beside KIM's argon, and each force beside
# differences of energies by Ridders' method, whose weighted mean error is alpha.
examples=/usr/share/doc/libkim-api-dev/examples/simulators
if [ -d "$examples" ] && command -v gfortran >/dev/null; then
  for program in ex_test_Ar_fcc_cluster ex_test_Ar_fcc_cluster_cpp utility_forces_numer_deriv; do
    { cmake -S "$examples/$program" -B "$program" -G Ninja -DCMAKE_BUILD_TYPE=None &&
      cmake --build "$program"; } >"$program.log" 2>&1 || { tail -20 "$program.log" >&2; fail "$program"; }
    for model in gradus_argon $theirs; do
      echo $model | timeout 100 "$program/$program" >"$program.$model" 2>&1 ||
        { tail -5 "$program.$model" >&2; fail "$program of $model"; }
    done
  done
  # clusters PROGRAM MODEL: energy, norm of forces and lattice spacing, a line each.
  clusters() { tr -d , <"$1.$2" | awk 'NF == 3 && $1 + 0 == $1 && !seen[$3]++'; }
  for program in ex_test_Ar_fcc_cluster ex_test_Ar_fcc_cluster_cpp; do
    clusters $program gradus_argon >ours.clusters
    clusters $program $theirs >theirs.clusters
    [ "$(wc -l <ours.clusters)" -ge 16 ] || fail "$program gives no table"
    python3 "$here/same_numbers.py" ours.clusters theirs.clusters 1e-8 || fail "$program"
  done
  sed -n 's/^alpha = .*= *\([-0-9.E+]*\) .*/\1/p' utility_forces_numer_deriv.gradus_argon >alphas
  awk '$1 < 1e-11 { n++ } END { exit !(n > 0 && n == NR) }' alphas || fail "forces by differences: alpha is $(cat alphas)"
else
  echo 'not tried without libkim-api-doc and gfortran: KIM'"'"'s own test programs'
fi

# Water, of two species, beside ASE.
cp -r "$GRADUS_SOURCE_DIR/clients/kim/argon" water
rm water/argon.*
cp "$GRADUS_SOURCE_DIR"/examples/potentials/water.{ir,safetensors} water
sed -i 's/gradus_argon/gradus_water/; s/argon\./water./g' water/CMakeLists.txt
item water_build water
export PYTHONPATH=$BUILD/python PYTHONDONTWRITEBYTECODE=1
if "$PYTHON" -c 'import ase, gradus' 2>/dev/null; then
  "$PYTHON" "$GRADUS_SOURCE_DIR/examples/potentials/compare.py" --kim water=gradus_water \
    --steps 20 --check || fail 'energies and forces of KIM and ASE'
else
  echo 'not tried without ase and the Python module: water'
fi

# What is no potential is refused, and KIM's log says why.
broken() {
  # Installing compares times in seconds, so that a model built within one would stay the former.
  rm -rf broken broken_build models/gradus_broken
  mkdir broken
  cp "$GRADUS_SOURCE_DIR"/clients/kim/argon/* broken
  sed -i 's/project(gradus_argon/project(gradus_broken/' broken/CMakeLists.txt
  sed -i "$1" broken/argon.ir
  item broken_build broken
  rm -f kim.log
  ! lmp -in "$here/argon.in" -var model gradus_broken -var out broken.dump -log broken.log \
    >broken.out 2>&1 || fail "a model that is wrong runs: $1"
  grep -q "$2" kim.log || { cat kim.log >&2; fail "the log does not say: $2"; }
}
broken 's/shifts/offsets/' "no input 'shifts'"
broken 's/square(%d)$/mul(%d, %ri)/' "the potential fails the check 'sum'"
