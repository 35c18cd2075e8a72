#!/bin/bash
# A run under SLURM that outlives its time limit and preemption:
#
#     sbatch examples/slurm.sh permuted-mnist --method n-gateon --out "$SCRATCH/pm10"
#
# The words behind the script are those of `gateon run`; --out is a path that all nodes see. Every
# task of the job is one process; together they train one network.
#SBATCH --job-name=gateon
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export WORLD_SIZE=$SLURM_NTASKS OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

trap : TERM USR1 # the tasks hear of them too, and save

# Under SLURM the processes get their numbers from it, as they would from torchrun.
srun --kill-on-bad-exit=0 bash -c \
	'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; exec gateon run "$@"' gateon "$@" &
tasks=$!
wait $tasks
code=$?
while kill -0 $tasks 2> /dev/null; do # a signal ended the waiting, not the tasks
	wait $tasks
	code=$?
done

# 75: saved. The same job goes on from there when it is its turn again.
if [ $code -eq 75 ]; then
	scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
