// Thrust: its vectors count as the standard ones do.
namespace thrust {
template <class T> struct device_ptr {
  explicit device_ptr(T * = 0); T *get() const; device_ptr operator+(ptrdiff_t) const; T &operator*() const;
  T &operator[](ptrdiff_t) const; ptrdiff_t operator-(const device_ptr &) const;
  using value_type = T; using difference_type = ptrdiff_t;
};
template <class T> device_ptr<T> device_pointer_cast(T *);
template <class T> T *raw_pointer_cast(T *);
template <class T> T *raw_pointer_cast(const device_ptr<T> &);
#define VECTOR(name, pointer) \
  template <class T> struct name { \
    using value_type = T; using size_type = size_t; using difference_type = ptrdiff_t; using iterator = pointer; \
    name(); explicit name(size_t); name(size_t, const T &); template <class C> name(const C &); \
    template <class I> name(I, I); template <class C> name &operator=(const C &); \
    size_t size() const; bool empty() const; size_t capacity() const; pointer data(); pointer begin(); pointer end(); \
    T &front(); T &back(); T &operator[](size_t); const T &operator[](size_t) const; \
    void resize(size_t); void resize(size_t, const T &); void push_back(const T &); void clear(); \
  };
VECTOR(device_vector, device_ptr<T>)
VECTOR(host_vector, T *)
VECTOR(universal_vector, T *)
#undef VECTOR
template <class T> struct plus {};
template <class T> struct maximum {};
template <class I, class T, class F> T reduce(I, I, T, F);
template <class I, class T> T reduce(I, I, T);
template <class I, class T> ptrdiff_t count(I, I, T);
template <class I> ptrdiff_t distance(I, I);
template <class I> void sort(I, I);
}
