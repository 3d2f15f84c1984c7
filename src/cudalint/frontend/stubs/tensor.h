// Tensors of PyTorch: sizes and strides are int64_t.
namespace c10 {
template <class T> struct ArrayRef {
  using value_type = T;
  ArrayRef(); ArrayRef(std::initializer_list<T>);
  size_t size() const; bool empty() const; const T *data() const; const T *begin() const; const T *end() const;
  const T &operator[](size_t) const; const T &front() const; const T &back() const;
};
using IntArrayRef = ArrayRef<int64_t>;
struct Device { int index() const; };
enum class ScalarType : signed char { Byte, Char, Short, Int, Long, Half, Float, Double };
}
namespace at {
using c10::ArrayRef; using c10::Device; using c10::IntArrayRef; using c10::ScalarType;
struct TensorOptions {
  TensorOptions dtype(ScalarType) const; TensorOptions device(Device) const;
};
template <class T, size_t n> struct TensorAccessor {
  T *data(); int64_t size(int64_t) const; int64_t stride(int64_t) const; TensorAccessor<T, n - 1> operator[](int64_t) const;
  IntArrayRef sizes() const;
};
template <class T> struct TensorAccessor<T, 1> {
  T *data(); int64_t size(int64_t) const; int64_t stride(int64_t) const; T &operator[](int64_t) const;
};
template <class T> struct RestrictPtrTraits;
template <class T> struct DefaultPtrTraits;
template <class T, size_t n, template <class> class P = DefaultPtrTraits, class I = int64_t> struct PackedTensorAccessor {
  T *data(); I size(int) const; I stride(int) const; PackedTensorAccessor<T, n - 1, P, I> operator[](I) const;
};
template <class T, template <class> class P, class I> struct PackedTensorAccessor<T, 1, P, I> {
  T *data(); I size(int) const; I stride(int) const; T &operator[](I) const;
};
template <class T, size_t n, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor32 = PackedTensorAccessor<T, n, P, int32_t>;
template <class T, size_t n, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor64 = PackedTensorAccessor<T, n, P, int64_t>;
struct Tensor {
  int64_t dim() const; int64_t ndimension() const; int64_t numel() const; int64_t size(int64_t) const;
  int64_t stride(int64_t) const; IntArrayRef sizes() const; IntArrayRef strides() const; int64_t storage_offset() const;
  size_t nbytes() const; size_t itemsize() const; int64_t element_size() const; int64_t get_device() const;
  bool is_contiguous() const; bool is_cuda() const; bool defined() const;
  Tensor contiguous() const; Tensor view(IntArrayRef) const; Tensor reshape(IntArrayRef) const; Tensor clone() const;
  Tensor t() const; Tensor transpose(int64_t, int64_t) const; Tensor to(ScalarType) const; Tensor detach() const;
  Tensor sum() const; Tensor max() const; Tensor operator[](int64_t) const; TensorOptions options() const;
  ScalarType scalar_type() const; Device device() const;
  void *data_ptr() const; template <class T> T *data_ptr() const; template <class T> const T *const_data_ptr() const;
  template <class T> T *mutable_data_ptr() const; template <class T> T *data() const; template <class T> T item() const;
  template <class T, size_t n> TensorAccessor<T, n> accessor() const;
  template <class T, size_t n, template <class> class P = DefaultPtrTraits>
  PackedTensorAccessor32<T, n, P> packed_accessor32() const;
  template <class T, size_t n, template <class> class P = DefaultPtrTraits>
  PackedTensorAccessor64<T, n, P> packed_accessor64() const;
};
Tensor empty_like(const Tensor &);
Tensor zeros_like(const Tensor &);
template <class T> T ceil_div(T, T);
namespace cuda {
struct CUDAStream { cudaStream_t stream() const; operator cudaStream_t() const; };
CUDAStream getCurrentCUDAStream(int = -1);
cudaDeviceProp *getCurrentDeviceProperties();
}
}
namespace torch {
using namespace at;
using at::Tensor;
}
