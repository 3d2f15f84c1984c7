// CUB: what collectives give back.
namespace cub {
template <class K, class V> struct KeyValuePair { K key; V value; };
template <class T> struct Collective_ {
  struct TempStorage {};
  Collective_(); Collective_(TempStorage &);
  T Sum(T); T Sum(T, int); template <class F> T Reduce(T, F); template <class F> T Reduce(T, F, int);
  void InclusiveSum(T, T &); void ExclusiveSum(T, T &); void ExclusiveSum(T, T &, T &);
};
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
template <class T, int n, BlockReduceAlgorithm a = BLOCK_REDUCE_WARP_REDUCTIONS, int y = 1, int z = 1>
struct BlockReduce : Collective_<T> { using Collective_<T>::Collective_; };
template <class T, int n> struct BlockScan : Collective_<T> { using Collective_<T>::Collective_; };
template <class T, int n = 32> struct WarpReduce : Collective_<T> { using Collective_<T>::Collective_; };
template <class T, int n = 32> struct WarpScan : Collective_<T> { using Collective_<T>::Collective_; };
struct Sum {}; struct Max {}; struct Min {};
}
