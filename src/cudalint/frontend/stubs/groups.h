// Cooperative groups: ranks and sizes. A grid counts in 64 bits, the rest in 32.
namespace cooperative_groups {
struct thread_group {
  void sync() const; unsigned int size() const; unsigned int num_threads() const; unsigned int thread_rank() const;
};
struct thread_block : thread_group { static dim3 group_index(); static dim3 thread_index(); static dim3 group_dim(); };
struct grid_group {
  void sync() const; bool is_valid() const; unsigned long long size() const; unsigned long long num_threads() const;
  unsigned long long thread_rank() const; unsigned long long block_rank() const; unsigned long long num_blocks() const;
  static dim3 group_dim(); dim3 dim_blocks() const;
};
struct coalesced_group : thread_group {
  template <class T> T shfl(T, int) const; template <class T> T shfl_down(T, int) const; unsigned int ballot(int) const;
  int any(int) const; int all(int) const;
};
template <unsigned int n, class Parent = void> struct thread_block_tile : coalesced_group {
  template <class T> T shfl_up(T, int) const; template <class T> T shfl_xor(T, int) const;
  unsigned int meta_group_rank() const; unsigned int meta_group_size() const;
};
thread_block this_thread_block();
grid_group this_grid();
coalesced_group coalesced_threads();
template <unsigned int n, class G> thread_block_tile<n, G> tiled_partition(const G &);
thread_group tiled_partition(const thread_group &, unsigned int);
template <class T> struct plus {};
template <class T> struct less {};
template <class T> struct greater {};
template <class G, class T, class F> T reduce(const G &, T, F);
}
