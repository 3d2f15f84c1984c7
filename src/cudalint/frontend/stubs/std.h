// The part of the C++ library that carries types: containers, strings, algorithms, pairs, smart pointers.
namespace std {
using ::abs; using ::atoi; using ::ceil; using ::cos; using ::exit; using ::exp; using ::fabs; using ::floor;
using ::fprintf; using ::free; using ::int16_t; using ::int32_t; using ::int64_t; using ::int8_t; using ::log;
using ::log2; using ::malloc; using ::memcpy; using ::memset; using ::pow; using ::printf; using ::ptrdiff_t;
using ::rand; using ::round; using ::sin; using ::size_t; using ::sqrt; using ::strlen; using ::uint16_t;
using ::uint32_t; using ::uint64_t; using ::uint8_t; using ::uintptr_t; using ::intptr_t; using ::tanh;
using nullptr_t = decltype(nullptr);

template <class T, T v> struct integral_constant {
  static constexpr T value = v;
  constexpr operator T() const { return v; }
};
template <bool v> using bool_constant = integral_constant<bool, v>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <class T, class U> struct is_same : false_type {};
template <class T> struct is_same<T, T> : true_type {};
template <class T, class U> constexpr bool is_same_v = is_same<T, U>::value;
template <bool c, class T, class U> struct conditional { using type = T; };
template <class T, class U> struct conditional<false, T, U> { using type = U; };
template <bool c, class T, class U> using conditional_t = typename conditional<c, T, U>::type;
template <bool c, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool c, class T = void> using enable_if_t = typename enable_if<c, T>::type;
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T &> { using type = T; };
template <class T> struct remove_reference<T &&> { using type = T; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_cv { using type = typename remove_const<T>::type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct decay { using type = __decay(T); };
template <class T> using decay_t = typename decay<T>::type;
template <class T> struct make_unsigned { using type = __make_unsigned(T); };
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> struct make_signed { using type = __make_signed(T); };
template <class T> using make_signed_t = typename make_signed<T>::type;
template <class T> struct underlying_type { using type = __underlying_type(T); };
template <class T> using underlying_type_t = typename underlying_type<T>::type;
template <class T> struct is_integral : bool_constant<__is_integral(T)> {};
template <class T> struct is_floating_point : bool_constant<__is_floating_point(T)> {};
template <class T> remove_reference_t<T> &&move(T &&);
template <class T> T &&forward(remove_reference_t<T> &);
template <class T> T &&declval();
template <class T> void swap(T &, T &);

template <class T> struct numeric_limits {
  static constexpr T max(); static constexpr T min(); static constexpr T lowest(); static constexpr T epsilon();
  static constexpr T infinity();
  static constexpr int digits = 0;
};

template <class T> struct initializer_list {
  using value_type = T; using size_type = size_t; using iterator = const T *; using const_iterator = const T *;
  const T *first; size_t count;
  constexpr size_t size() const; constexpr const T *begin() const; constexpr const T *end() const;
};

template <class T, class U> struct pair {
  using first_type = T; using second_type = U;
  T first; U second;
  pair(); pair(const T &, const U &);
};
template <class T, class U> pair<decay_t<T>, decay_t<U>> make_pair(T &&, U &&);
template <class... T> struct tuple { tuple(); tuple(const T &...); };
template <class... T> tuple<decay_t<T>...> make_tuple(T &&...);
template <class... T> tuple<T &...> tie(T &...);
template <size_t i, class T> struct tuple_element;
template <size_t i, class H, class... R> struct tuple_element<i, tuple<H, R...>> : tuple_element<i - 1, tuple<R...>> {};
template <class H, class... R> struct tuple_element<0, tuple<H, R...>> { using type = H; };
template <class T, class U> struct tuple_element<0, pair<T, U>> { using type = T; };
template <class T, class U> struct tuple_element<1, pair<T, U>> { using type = U; };
template <size_t i, class T> using tuple_element_t = typename tuple_element<i, T>::type;
template <class T> struct tuple_size;
template <class... T> struct tuple_size<tuple<T...>> : integral_constant<size_t, sizeof...(T)> {};
template <class T, class U> struct tuple_size<pair<T, U>> : integral_constant<size_t, 2> {};
template <size_t i, class... T> tuple_element_t<i, tuple<T...>> &get(tuple<T...> &);
template <size_t i, class... T> const tuple_element_t<i, tuple<T...>> &get(const tuple<T...> &);
template <size_t i, class... T> tuple_element_t<i, tuple<T...>> &&get(tuple<T...> &&);
template <size_t i, class T, class U> tuple_element_t<i, pair<T, U>> &get(pair<T, U> &);
template <size_t i, class T, class U> tuple_element_t<i, pair<T, U>> &&get(pair<T, U> &&);
template <size_t i, class T, class U> const tuple_element_t<i, pair<T, U>> &get(const pair<T, U> &);

template <class T> struct iterator_traits { using value_type = typename T::value_type; using difference_type = ptrdiff_t; };
template <class T> struct iterator_traits<T *> { using value_type = remove_const_t<T>; using difference_type = ptrdiff_t; };

#define SEQUENCE(T) \
  using value_type = T; using size_type = size_t; using difference_type = ptrdiff_t; \
  using reference = T &; using const_reference = const T &; using iterator = T *; using const_iterator = const T *; \
  constexpr size_t size() const; constexpr bool empty() const; constexpr size_t max_size() const; \
  T *begin(); T *end(); const T *begin() const; const T *end() const; const T *cbegin() const; const T *cend() const; \
  T &front(); const T &front() const; T &back(); const T &back() const; \
  T &operator[](size_t); const T &operator[](size_t) const; T &at(size_t); const T &at(size_t) const;
#define GROWING(T) \
  void resize(size_t); void resize(size_t, const T &); void push_back(const T &); void pop_back(); void clear(); \
  T *insert(const T *, const T &); T *erase(const T *); template <class... A> T &emplace_back(A &&...);

template <class T> struct vector {
  SEQUENCE(T) GROWING(T)
  vector(); explicit vector(size_t); vector(size_t, const T &); vector(initializer_list<T>);
  template <class I, class = decltype(*declval<I>())> vector(I, I);
  T *data(); const T *data() const; size_t capacity() const; void reserve(size_t);
  void assign(size_t, const T &); vector &operator=(initializer_list<T>);
};
template <class T> struct deque { SEQUENCE(T) GROWING(T) deque(); explicit deque(size_t); void push_front(const T &); };
template <class T, size_t n> struct array { SEQUENCE(T) T items[n]; T *data(); const T *data() const; void fill(const T &); };
template <class T, size_t n = size_t(-1)> struct span {
  using element_type = T; using value_type = remove_const_t<T>;
  constexpr size_t size() const; constexpr size_t size_bytes() const; constexpr bool empty() const;
  T *data() const; T *begin() const; T *end() const; T &operator[](size_t) const; T &front() const; T &back() const;
  span(); span(T *, size_t); template <class C> span(C &&);
  span<T> subspan(size_t, size_t = size_t(-1)) const; span<T> first(size_t) const; span<T> last(size_t) const;
};
struct string {
  SEQUENCE(char)
  static constexpr size_t npos = size_t(-1);
  string(); string(const char *); string(const char *, size_t); string(size_t, char);
  size_t length() const; const char *c_str() const; const char *data() const; void push_back(char);
  string substr(size_t = 0, size_t = npos) const; string &operator+=(const string &); string &append(const string &);
  size_t find(const string &, size_t = 0) const; size_t find(char, size_t = 0) const; size_t rfind(char) const;
  size_t find_last_of(const string &) const; size_t find_first_of(const string &) const; int compare(const string &) const;
};
string operator+(const string &, const string &);
bool operator==(const string &, const string &);
bool operator!=(const string &, const string &);
bool operator<(const string &, const string &);
struct string_view {
  constexpr size_t size() const; constexpr size_t length() const; constexpr bool empty() const;
  const char *data() const; const char *begin() const; const char *end() const; const char &operator[](size_t) const;
  string_view(); string_view(const char *); string_view(const string &);
};
template <class T> string to_string(T);
int stoi(const string &, size_t * = 0, int = 10);
long stol(const string &, size_t * = 0, int = 10);
long long stoll(const string &, size_t * = 0, int = 10);
unsigned long stoul(const string &, size_t * = 0, int = 10);
unsigned long long stoull(const string &, size_t * = 0, int = 10);
float stof(const string &, size_t * = 0);
double stod(const string &, size_t * = 0);

template <class T> struct __node_iterator {
  using value_type = T;
  T &operator*() const; T *operator->() const; __node_iterator &operator++(); __node_iterator operator++(int);
  bool operator==(const __node_iterator &) const; bool operator!=(const __node_iterator &) const;
};
#define KEYED(K, V) \
  using key_type = K; using value_type = V; using size_type = size_t; using iterator = __node_iterator<V>; \
  using const_iterator = __node_iterator<const V>; \
  size_t size() const; bool empty() const; void clear(); size_t count(const K &) const; size_t erase(const K &); \
  iterator begin(); iterator end(); const_iterator begin() const; const_iterator end() const; \
  iterator find(const K &); const_iterator find(const K &) const; pair<iterator, bool> insert(const V &);
#define MAPPED(K, V) \
  using mapped_type = V; V &operator[](const K &); V &at(const K &); const V &at(const K &) const; \
  template <class... A> pair<iterator, bool> emplace(A &&...);
template <class K, class V> struct map { using entry = pair<const K, V>; KEYED(K, entry) MAPPED(K, V) };
template <class K, class V> struct unordered_map { using entry = pair<const K, V>; KEYED(K, entry) MAPPED(K, V) };
template <class K> struct set { KEYED(K, const K) };
template <class K> struct unordered_set { KEYED(K, const K) };
template <class T> struct list {
  using value_type = T; using iterator = __node_iterator<T>;
  size_t size() const; bool empty() const; iterator begin(); iterator end(); T &front(); T &back(); void push_back(const T &);
};
template <class T> struct queue { size_t size() const; bool empty() const; T &front(); void push(const T &); void pop(); };
template <class T> struct stack { size_t size() const; bool empty() const; T &top(); void push(const T &); void pop(); };
#undef SEQUENCE
#undef GROWING
#undef KEYED
#undef MAPPED

template <class T> struct optional {
  optional(); optional(const T &); bool has_value() const; explicit operator bool() const; T &value(); const T &value() const;
  T &operator*(); const T &operator*() const; T *operator->(); template <class U> T value_or(U &&) const;
};
template <class T> struct default_delete {};
template <class T, class D = default_delete<T>> struct unique_ptr {
  unique_ptr(); explicit unique_ptr(T *); T *get() const; T &operator*() const; T *operator->() const; T *release();
  void reset(T * = nullptr); explicit operator bool() const;
};
template <class T, class D> struct unique_ptr<T[], D> {
  unique_ptr(); explicit unique_ptr(T *); T *get() const; T &operator[](size_t) const; T *release();
};
template <class T> struct shared_ptr {
  shared_ptr(); explicit shared_ptr(T *); T *get() const; T &operator*() const; T *operator->() const; long use_count() const;
};
template <class T> struct __made { using unique = unique_ptr<T>; using shared = shared_ptr<T>; };
template <class T> struct __made<T[]> { using unique = unique_ptr<T[]>; };
template <class T, class... A> typename __made<T>::unique make_unique(A &&...);
template <class T, class... A> typename __made<T>::shared make_shared(A &&...);
template <class T> struct complex { complex(T = T(), T = T()); T real() const; T imag() const; };
template <class T> struct function;
template <class R, class... A> struct function<R(A...)> { template <class F> function(F); R operator()(A...) const; };

template <class T> constexpr const T &min(const T &, const T &);
template <class T> constexpr const T &max(const T &, const T &);
template <class T> constexpr T min(initializer_list<T>);
template <class T> constexpr T max(initializer_list<T>);
template <class T> constexpr const T &clamp(const T &, const T &, const T &);
template <class C> constexpr auto size(const C &c) -> decltype(c.size());
template <class T, size_t n> constexpr size_t size(const T (&)[n]);
template <class C> constexpr auto data(C &c) -> decltype(c.data());
template <class C> constexpr auto begin(C &c) -> decltype(c.begin());
template <class C> constexpr auto end(C &c) -> decltype(c.end());
template <class T, size_t n> constexpr T *begin(T (&)[n]);
template <class T, size_t n> constexpr T *end(T (&)[n]);
template <class I> typename iterator_traits<I>::difference_type distance(I, I);
template <class I, class T> T accumulate(I, I, T);
template <class I, class T, class F> T accumulate(I, I, T, F);
template <class I, class J, class T> T inner_product(I, I, J, T);
template <class I, class T> ptrdiff_t count(I, I, const T &);
template <class I, class F> ptrdiff_t count_if(I, I, F);
template <class I> I max_element(I, I);
template <class I> I min_element(I, I);
template <class I, class T> I find(I, I, const T &);
template <class I, class T> I lower_bound(I, I, const T &);
template <class I, class T> I upper_bound(I, I, const T &);
template <class I, class T> void fill(I, I, const T &);
template <class I, class T> void iota(I, I, T);
template <class I, class J> J copy(I, I, J);
template <class I> void sort(I, I);
template <class I, class F> void sort(I, I, F);
template <class I> I unique(I, I);
template <class T> constexpr T gcd(T, T);
}
