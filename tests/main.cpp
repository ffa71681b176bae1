// Every test program's.
#include "tests/start.h"

int main(int argc, char** argv) { return gradus::test::run_tests(argc, argv); }
