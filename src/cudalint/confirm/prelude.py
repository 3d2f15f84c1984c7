"""What kernels take for granted and NVRTC does not know: C's and C++'s names that come with a host compiler."""

from __future__ import annotations

PRELUDE = """\
#ifndef INT_MAX
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN (-128)
#define CHAR_MAX 127
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LONG_MIN (-9223372036854775807L - 1)
#define LONG_MAX 9223372036854775807L
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MIN (-9223372036854775807LL - 1)
#define LLONG_MAX 9223372036854775807LL
#define ULLONG_MAX 18446744073709551615ull
#endif
#ifndef INT8_MAX
#define INT8_MAX SCHAR_MAX
#define INT8_MIN SCHAR_MIN
#define UINT8_MAX UCHAR_MAX
#define INT16_MAX SHRT_MAX
#define INT16_MIN SHRT_MIN
#define UINT16_MAX USHRT_MAX
#define INT32_MAX INT_MAX
#define INT32_MIN INT_MIN
#define UINT32_MAX UINT_MAX
#define INT64_MAX LONG_MAX
#define INT64_MIN LONG_MIN
#define UINT64_MAX ULONG_MAX
#define SIZE_MAX ULONG_MAX
#endif
#ifndef FLT_MAX
#define FLT_MIN 1.175494351e-38f
#define FLT_MAX 3.402823466e+38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MIN 2.2250738585072014e-308
#define DBL_MAX 1.7976931348623158e+308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000ll)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
#ifndef NULL
#define NULL 0
#endif
#ifndef assert
#define assert(condition) ((void)0)
#endif
#ifndef CUDART_INF_F
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_PI_F 3.141592654f
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ll)
#define CUDART_PI 3.1415926535897931e+0
#endif
#ifndef _CUDA_STD_CSTDINT
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef long ptrdiff_t;
#endif
typedef long ssize_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
namespace std {
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t; using ::uint32_t;
using ::int64_t; using ::uint64_t; using ::size_t; using ::ptrdiff_t; using ::intptr_t; using ::uintptr_t;
using ::abs; using ::fabs; using ::sqrt; using ::exp; using ::log; using ::pow; using ::sin; using ::cos; using ::tan;
using ::floor; using ::ceil; using ::fmin; using ::fmax; using ::isnan; using ::isinf; using ::tanh; using ::round;
template <typename T> __device__ constexpr const T &min(const T &a, const T &b) { return b < a ? b : a; }
template <typename T> __device__ constexpr const T &max(const T &a, const T &b) { return a < b ? b : a; }
template <typename T> __device__ void swap(T &a, T &b) { T kept = a; a = b; b = kept; }
template <typename T, T v> struct integral_constant {
    static constexpr T value = v;
    typedef T value_type;
    __device__ constexpr operator T() const { return v; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <typename A, typename B> struct is_same : false_type {};
template <typename A> struct is_same<A, A> : true_type {};
template <typename A, typename B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <bool, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { typedef T type; };
template <bool c, typename T = void> using enable_if_t = typename enable_if<c, T>::type;
template <bool, typename A, typename> struct conditional { typedef A type; };
template <typename A, typename B> struct conditional<false, A, B> { typedef B type; };
template <bool c, typename A, typename B> using conditional_t = typename conditional<c, A, B>::type;
template <typename T> struct remove_reference { typedef T type; };
template <typename T> struct remove_reference<T &> { typedef T type; };
template <typename T> struct remove_reference<T &&> { typedef T type; };
template <typename T> struct remove_cv { typedef T type; };
template <typename T> struct remove_cv<const T> { typedef T type; };
template <typename T> struct remove_cv<volatile T> { typedef T type; };
template <typename T> using remove_reference_t = typename remove_reference<T>::type;
template <typename T> using remove_cv_t = typename remove_cv<T>::type;
template <typename T> using decay_t = remove_cv_t<remove_reference_t<T>>;
template <typename T> struct is_floating_point : false_type {};
template <> struct is_floating_point<float> : true_type {};
template <> struct is_floating_point<double> : true_type {};
template <typename T> struct is_integral : false_type {};
#define CUDALINT_INTEGRAL(T) template <> struct is_integral<T> : true_type {};
CUDALINT_INTEGRAL(bool) CUDALINT_INTEGRAL(char) CUDALINT_INTEGRAL(signed char) CUDALINT_INTEGRAL(unsigned char)
CUDALINT_INTEGRAL(short) CUDALINT_INTEGRAL(unsigned short) CUDALINT_INTEGRAL(int) CUDALINT_INTEGRAL(unsigned int)
CUDALINT_INTEGRAL(long) CUDALINT_INTEGRAL(unsigned long) CUDALINT_INTEGRAL(long long)
CUDALINT_INTEGRAL(unsigned long long)
#undef CUDALINT_INTEGRAL
template <typename T> inline constexpr bool is_integral_v = is_integral<T>::value;
template <typename T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <typename T> struct numeric_limits;
#define CUDALINT_LIMITS(T, lo, lowest_, hi) \\
    template <> struct numeric_limits<T> { \\
        __device__ static constexpr T min() { return lo; } \\
        __device__ static constexpr T lowest() { return lowest_; } \\
        __device__ static constexpr T max() { return hi; } \\
        __device__ static T infinity() { return (T)INFINITY; } \\
        __device__ static T quiet_NaN() { return (T)NAN; } \\
        __device__ static constexpr T epsilon() { return (T)(sizeof(T) == 4 ? FLT_EPSILON : DBL_EPSILON); } \\
    };
CUDALINT_LIMITS(signed char, SCHAR_MIN, SCHAR_MIN, SCHAR_MAX)
CUDALINT_LIMITS(unsigned char, 0, 0, UCHAR_MAX)
CUDALINT_LIMITS(short, SHRT_MIN, SHRT_MIN, SHRT_MAX)
CUDALINT_LIMITS(unsigned short, 0, 0, USHRT_MAX)
CUDALINT_LIMITS(int, INT_MIN, INT_MIN, INT_MAX)
CUDALINT_LIMITS(unsigned int, 0, 0, UINT_MAX)
CUDALINT_LIMITS(long, LONG_MIN, LONG_MIN, LONG_MAX)
CUDALINT_LIMITS(unsigned long, 0, 0, ULONG_MAX)
CUDALINT_LIMITS(long long, LLONG_MIN, LLONG_MIN, LLONG_MAX)
CUDALINT_LIMITS(unsigned long long, 0, 0, ULLONG_MAX)
CUDALINT_LIMITS(float, FLT_MIN, -FLT_MAX, FLT_MAX)
CUDALINT_LIMITS(double, DBL_MIN, -DBL_MAX, DBL_MAX)
#undef CUDALINT_LIMITS
template <typename T, size_t n> struct array {
    T items[n];
    __device__ constexpr T &operator[](size_t i) { return items[i]; }
    __device__ constexpr const T &operator[](size_t i) const { return items[i]; }
    __device__ constexpr size_t size() const { return n; }
    __device__ constexpr T *data() { return items; }
};
}
"""
