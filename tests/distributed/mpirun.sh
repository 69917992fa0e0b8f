#!/usr/bin/env bash
# mpirun.sh RANKS PROGRAM...: starts ranks on this machine, also more of them than it has cores, and as root
# in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# As in train/ranks/mpi.cpp, for mpirun itself.
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--gl}
ranks=$1
shift
exec mpirun -np "$ranks" --oversubscribe --bind-to none "$@"
