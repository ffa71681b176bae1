// The tool as a program of its own.
#include "tools/cli.h"

int main(int argc, char** argv) { return gradus::cli::tool(argc, argv); }
