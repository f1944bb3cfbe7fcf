// SPDX-License-Identifier: GPL-2.0-only
// A queue in one block of memory, which grows by doubling.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

template <class T>
class Ring {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    Ring() = default;
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    Ring(Ring&& other) noexcept { *this = std::move(other); }
    Ring& operator=(Ring&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(mask_, other.mask_);
        std::swap(head_, other.head_);
        std::swap(tail_, other.tail_);
        return *this;
    }
    ~Ring() { free(data_); }

    bool empty() const { return head_ == tail_; }
    uint32_t size() const { return tail_ - head_; }
    T& operator[](uint32_t i) { return data_[(head_ + i) & mask_]; }
    const T& operator[](uint32_t i) const { return data_[(head_ + i) & mask_]; }
    T& front() { return data_[head_ & mask_]; }
    const T& front() const { return data_[head_ & mask_]; }
    T& back() { return data_[(tail_ - 1) & mask_]; }
    // Places count all that was ever pushed to the end.
    uint32_t head() const { return head_; }
    uint32_t tail() const { return tail_; }
    T& at(uint32_t place) { return data_[place & mask_]; }
    // Has the first one, or the place of the next one, in the cache by the time that it is wanted.
    void prefetch_front() const { __builtin_prefetch(data_ + (head_ & mask_)); }
    void prefetch_back() const { __builtin_prefetch(data_ + (tail_ & mask_), 1); }
    void pop_front() { ++head_; }
    void clear() { head_ = tail_; }
    void push_back(const T& value) {
        const T kept = value;
        reserve();
        data_[tail_++ & mask_] = kept;
    }
    void push_front(const T& value) {
        const T kept = value;
        reserve();
        data_[--head_ & mask_] = kept;
    }
    void insert(uint32_t at, const T& value) {
        push_back(value);
        for (uint32_t i = size() - 1; i > at; --i) std::swap((*this)[i], (*this)[i - 1]);
    }

    void erase(uint32_t at) {
        for (uint32_t i = at; i + 1 < size(); ++i) (*this)[i] = (*this)[i + 1];
        --tail_;
    }

  private:
    void reserve() {
        if (data_ && size() <= mask_) return;
        uint32_t capacity = data_ ? (mask_ + 1) * 2 : 8;
        T* bigger = static_cast<T*>(malloc(sizeof(T) * capacity));
        if (!bigger) abort();
        for (uint32_t i = head_; i != tail_; ++i) bigger[i & (capacity - 1)] = at(i);
        free(data_);
        data_ = bigger;
        mask_ = capacity - 1;
    }

    T* data_ = nullptr;
    uint32_t mask_ = 0, head_ = 0, tail_ = 0;
};
