// SPDX-License-Identifier: GPL-2.0-only
// Numbers of which little is kept: two sums, each by another odd factor. Others have the same ones once in 2^128.
#pragma once
#include <cstdint>
#include <utility>

class Sums {
  public:
    void add(int64_t value) {
        first_ = (first_ ^ uint64_t(value)) * 0x9E3779B97F4A7C15u;
        first_ ^= first_ >> 29;
        second_ = (second_ + uint64_t(value)) * 0xD1B54A32D192ED03u;
        second_ ^= second_ >> 31;
    }
    std::pair<uint64_t, uint64_t> both() const { return {first_, second_}; }

  private:
    uint64_t first_ = 1, second_ = 2;
};
