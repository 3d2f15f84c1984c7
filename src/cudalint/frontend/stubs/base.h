// What the language, CUDA's runtime and the C library declare, as far as it carries types.
// Memory spaces and sides are dropped: a type does not follow them.
#define _Pragma(text)
#define __device__
#define __host__
#define __shared__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __global__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define NULL __null
#define offsetof(type, member) __builtin_offsetof(type, member)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807l
#define UINT64_MAX 18446744073709551615ul
#define SIZE_MAX 18446744073709551615ul

typedef unsigned long size_t;
typedef long ssize_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long clock_t;
typedef long time_t;

#define VECTOR(T, name) \
  struct name##1 { T x; }; \
  struct name##2 { T x, y; }; \
  struct name##3 { T x, y, z; }; \
  struct name##4 { T x, y, z, w; }; \
  name##1 make_##name##1(T); \
  name##2 make_##name##2(T, T); \
  name##3 make_##name##3(T, T, T); \
  name##4 make_##name##4(T, T, T, T);
VECTOR(signed char, char)
VECTOR(unsigned char, uchar)
VECTOR(short, short)
VECTOR(unsigned short, ushort)
VECTOR(int, int)
VECTOR(unsigned int, uint)
VECTOR(long, long)
VECTOR(unsigned long, ulong)
VECTOR(long long, longlong)
VECTOR(unsigned long long, ulonglong)
VECTOR(float, float)
VECTOR(double, double)
#undef VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
extern const int warpSize;

struct __half {
  __half();
  __half(float);
  operator float() const;
};
typedef __half half;
struct __half2 { __half x, y; };
typedef __half2 half2;
struct __nv_bfloat16 {
  __nv_bfloat16();
  __nv_bfloat16(float);
  operator float() const;
};
typedef __nv_bfloat16 nv_bfloat16;
struct __nv_bfloat162 { __nv_bfloat16 x, y; };

enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600 };
typedef cudaError cudaError_t;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault
};
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
struct cudaExtent { size_t width, height, depth; };
struct cudaPitchedPtr { void *ptr; size_t pitch, xsize, ysize; };
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, totalConstMem, memPitch, textureAlignment, sharedMemPerMultiprocessor,
      sharedMemPerBlockOptin;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate, major, minor,
      multiProcessorCount, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, l2CacheSize, memoryClockRate,
      memoryBusWidth, concurrentKernels, cooperativeLaunch, regsPerMultiprocessor, managedMemory;
};
template <class T> cudaError_t cudaMalloc(T **, size_t);
template <class T> cudaError_t cudaMallocManaged(T **, size_t, unsigned int = 1);
template <class T> cudaError_t cudaMallocHost(T **, size_t, unsigned int = 0);
cudaError_t cudaFree(void *);
cudaError_t cudaMemcpy(void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t = 0);
cudaError_t cudaMemset(void *, int, size_t);
cudaError_t cudaGetLastError();
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetDevice(int *);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *, int);
const char *cudaGetErrorString(cudaError_t);
cudaExtent make_cudaExtent(size_t, size_t, size_t);

void __syncthreads();
void __syncwarp(unsigned int = 0);
template <class T> T __ldg(const T *);
template <class T, class U> T atomicAdd(T *, U);
template <class T, class U> T atomicMax(T *, U);
template <class T, class U> T atomicMin(T *, U);
template <class T, class U, class V> T atomicCAS(T *, U, V);
template <class T> T __shfl_sync(unsigned int, T, int, int = 32);
template <class T> T __shfl_down_sync(unsigned int, T, unsigned int, int = 32);
template <class T> T __shfl_up_sync(unsigned int, T, unsigned int, int = 32);
template <class T> T __shfl_xor_sync(unsigned int, T, int, int = 32);
unsigned int __ballot_sync(unsigned int, int);
unsigned int __activemask();
int __popc(unsigned int);
int __popcll(unsigned long long);
int __clz(int);
int __ffs(int);

int min(int, int);
unsigned int min(unsigned int, unsigned int);
unsigned int min(int, unsigned int);
unsigned int min(unsigned int, int);
long min(long, long);
unsigned long min(unsigned long, unsigned long);
long long min(long long, long long);
unsigned long long min(unsigned long long, unsigned long long);
float min(float, float);
double min(double, double);
int max(int, int);
unsigned int max(unsigned int, unsigned int);
unsigned int max(int, unsigned int);
unsigned int max(unsigned int, int);
long max(long, long);
unsigned long max(unsigned long, unsigned long);
long long max(long long, long long);
unsigned long long max(unsigned long long, unsigned long long);
float max(float, float);
double max(double, double);

#define REAL(name) float name(float); double name(double); double name(int); float name##f(float);
REAL(sqrt) REAL(ceil) REAL(floor) REAL(round) REAL(exp) REAL(log) REAL(log2) REAL(fabs) REAL(sin) REAL(cos) REAL(tanh)
#undef REAL
float pow(float, float);
double pow(double, double);
int abs(int);
long abs(long);
float abs(float);
double abs(double);
long lround(double);

int printf(const char *, ...);
struct FILE;
extern FILE *stdin, *stdout, *stderr;
int fprintf(FILE *, const char *, ...);
int atoi(const char *);
long atol(const char *);
long long atoll(const char *);
double atof(const char *);
long strtol(const char *, char **, int);
unsigned long strtoul(const char *, char **, int);
int rand();
void *malloc(size_t);
void *calloc(size_t, size_t);
void free(void *);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
size_t strlen(const char *);
int strcmp(const char *, const char *);
void exit(int);
void assert(bool);
