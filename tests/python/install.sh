# pip install of the tree into a clean environment, and those Python tests there that read what a
# package brings: its native module, its other modules, and its data.
set -euo pipefail

cd "$GRADUS_SOURCE_DIR"
rm -rf "$FOLDER" && mkdir -p "$FOLDER"
"$PYTHON" -m venv "$FOLDER/venv"
pip=("$FOLDER/venv/bin/python" -m pip --disable-pip-version-check --quiet)
if ! "${pip[@]}" install pytest; then
  echo "skipped: pip reaches no package index"
  exit 77
fi
# With the tools of the environment that this build's module was compiled in: the compiler's cache knows
# what it compiled by the path of nanobind's headers too.
"$PYTHON" -m pip --disable-pip-version-check --quiet wheel . \
  --no-build-isolation --no-deps --wheel-dir "$FOLDER" \
  --config-settings=cmake.build-type="$BUILD_TYPE" \
  --config-settings=cmake.define.CMAKE_CXX_FLAGS_"${BUILD_TYPE^^}"="$FLAGS" \
  --config-settings=cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR="${STRICT:-OFF}"
"${pip[@]}" install "$FOLDER"/gradus-*.whl
cd "$FOLDER"
# Not what lies in the tree: the package that was installed.
env -u PYTHONPATH "$FOLDER/venv/bin/python" -c '
import gradus, sys
assert gradus.__file__.startswith(sys.prefix), gradus.__file__'
env -u PYTHONPATH PYTHONDONTWRITEBYTECODE=1 "$FOLDER/venv/bin/python" -m pytest -q \
  -p no:cacheprovider "$GRADUS_SOURCE_DIR"/tests/python/test_{programs,functions,display}.py
