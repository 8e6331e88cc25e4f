// Unrolled loops of kernels. The emulated device has no such loops.
#pragma once

// Before a loop whose index selects registers of an array. Such an array must not be indexed by a variable at run time.
// LMX_UNROLL_BY(n) limits how many passes of another loop the compiler computes side by side, which takes registers.
#if defined(__CUDACC__)
#define LMX_PRAGMA(text) _Pragma(#text)
#define LMX_UNROLL LMX_PRAGMA(unroll)
#define LMX_UNROLL_BY(n) LMX_PRAGMA(unroll n)
#else
#define LMX_UNROLL
#define LMX_UNROLL_BY(n)
#endif
