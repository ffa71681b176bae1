# Runs kernels made for AArch64 in an emulator: they give the bits of this machine's reference loops.
# $1 writes them. In an empty folder of its own.
set -euo pipefail
"$1" .
aarch64-linux-gnu-g++ -std=c++20 -O1 -Wall -Wextra -Werror -ffp-contract=off -static \
  -I "$GRADUS_SOURCE_DIR" -o run "$GRADUS_SOURCE_DIR/tests/cross/run.cpp" table.cpp ./*.o
rm -f ./*.o
qemu-aarch64 ./run cases
rm -f run cases  # 140 MB, which tell something where they fail
