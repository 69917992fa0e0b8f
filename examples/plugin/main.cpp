// The program longhand as a program of your own: a place to register variants and tasks without a
// plugin.
#include "longhand/train/cli/main.h"

int main(int argc, char** argv) { return longhand::cli::main(argc, argv); }
