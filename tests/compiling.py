"""How tests compile: much, for programs that run a few times. Importable without JAX, by tests that start processes."""

# Without LLVM's optimisations it takes half of the processor time, and for eight devices the emitters of fusions take
# half of what is left, and a program in one piece for LLVM instead of 32 takes two thirds of that. Eight devices on a
# thread each are enough for two cores.
COMPILE_FAST = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_multi_thread_eigen=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)
