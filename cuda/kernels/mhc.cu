// All kernels, as one translation unit and so one module.
#include "forward.cu"
#include "grad.cu"
#include "backward.cu"
#include "sinkhorn.cu"
#include "apply.cu"
