// Callback<T>: what a call does when it is over. A move-only function object of fixed size, kept in
// the record of its call, so that issuing a call allocates nothing.
//
// A value; no threads of its own. What it captures must fit kCallbackBytes (checked at compile
// time): a `this`, a pointer to a parked operation and a few words, not buffers.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "transport/base/status.h"

namespace rdfs::fs::client {

template <typename Signature, std::size_t kBytes>
class InlineFunction;

template <typename R, typename... Args, std::size_t kBytes>
class InlineFunction<R(Args...), kBytes> {
 public:
  InlineFunction() = default;
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, InlineFunction> &&
           std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
      InlineFunction(F&& function) {  // NOLINT(google-explicit-constructor)
    using Stored = std::decay_t<F>;
    static_assert(sizeof(Stored) <= kBytes, "captures too much: capture a pointer instead");
    static_assert(alignof(Stored) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Stored>);
    new (storage_) Stored(std::forward<F>(function));
    operations_ = &OperationsOf<Stored>::kTable;
  }
  InlineFunction(InlineFunction&& other) noexcept { Take(other); }
  InlineFunction& operator=(InlineFunction&& other) noexcept {
    if (this != &other) {
      Reset();
      Take(other);
    }
    return *this;
  }
  InlineFunction(const InlineFunction&) = delete;
  InlineFunction& operator=(const InlineFunction&) = delete;
  ~InlineFunction() { Reset(); }

  explicit operator bool() const { return operations_ != nullptr; }
  R operator()(Args... args) { return operations_->call(storage_, std::forward<Args>(args)...); }
  void Reset() {
    if (operations_ != nullptr) std::exchange(operations_, nullptr)->destroy(storage_);
  }

 private:
  struct Operations {
    R (*call)(void*, Args&&...);
    void (*move)(void* to, void* from);  // and destroys `from`
    void (*destroy)(void*);
  };
  template <typename F>
  struct OperationsOf {
    static F& At(void* storage) { return *std::launder(static_cast<F*>(storage)); }
    static constexpr Operations kTable{
        [](void* storage, Args&&... args) -> R { return At(storage)(std::forward<Args>(args)...); },
        [](void* to, void* from) {
          new (to) F(std::move(At(from)));
          std::destroy_at(&At(from));
        },
        [](void* storage) { std::destroy_at(&At(storage)); }};
  };

  void Take(InlineFunction& other) {
    if (other.operations_ == nullptr) return;
    other.operations_->move(storage_, other.storage_);
    operations_ = std::exchange(other.operations_, nullptr);
  }

  alignas(std::max_align_t) std::byte storage_[kBytes];
  const Operations* operations_ = nullptr;
};

inline constexpr std::size_t kCallbackBytes = 64;
// Takes `Result<T>`, `Result<T>&&` or `const Result<T>&`, as the caller likes it.
template <typename T>
using Callback = InlineFunction<void(Result<T>&&), kCallbackBytes>;
// Of calls that answer nothing but success.
using DoneCallback = InlineFunction<void(Status&&), kCallbackBytes>;

}  // namespace rdfs::fs::client
