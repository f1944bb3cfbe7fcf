// SPDX-License-Identifier: GPL-2.0-only
// Scenarios and timelines as they pass a pipe: named columns of numbers (README.md, "Format").
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// A mistake in what was given. Its message names the column, what was found and what is allowed.
struct BadScenario : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline constexpr char kMagic[9] = "GWCOLS01", kProgressMagic[9] = "GWPROG01";
inline constexpr size_t kNameBytes = 24;
enum ColumnType : uint64_t { kInt64 = 0, kInt32 = 1, kFloat64 = 2 };

template <class T>
struct Span {
    const T* data = nullptr;
    size_t size = 0;
    const T& operator[](size_t i) const { return data[i]; }
    const T* begin() const { return data; }
    const T* end() const { return data + size; }
};

// Columns that were read. Each is asked for by its name and its type.
class Columns {
  public:
    // Reads magic, then columns up to the one without a name.
    void read(FILE* from) {
        char magic[8];
        if (fread(magic, 1, 8, from) != 8 || memcmp(magic, kMagic, 8) != 0)
            throw BadScenario(std::string("expected a scenario that begins with ") + kMagic);
        for (;;) {
            struct {
                char name[kNameBytes];
                uint64_t type, count;
            } head;
            if (fread(&head, sizeof head, 1, from) != 1) throw BadScenario("the scenario is cut off");
            if (!head.name[0]) return;
            std::string name(head.name, strnlen(head.name, kNameBytes));
            if (head.type > kFloat64) throw BadScenario(name + ": unknown type " + std::to_string(head.type));
            size_t bytes = head.count * (head.type == kInt32 ? 4 : 8);
            Column& column = columns_[name];
            column.type = ColumnType(head.type);
            column.count = head.count;
            column.bytes.resize((bytes + 7) / 8);
            size_t padded = column.bytes.size() * 8;
            if (padded && fread(column.bytes.data(), 1, padded, from) != padded)
                throw BadScenario(name + ": the column is cut off");
        }
    }

    bool has(const std::string& name) const { return columns_.contains(name); }
    Span<int64_t> ints(const std::string& name) const { return get<int64_t>(name, kInt64); }
    Span<int32_t> shorts(const std::string& name) const { return get<int32_t>(name, kInt32); }
    Span<double> floats(const std::string& name) const { return get<double>(name, kFloat64); }

    int64_t number(const std::string& name) const {
        auto found = ints(name);
        if (found.size != 1) throw BadScenario(name + ": found " + std::to_string(found.size) + " numbers, allowed 1");
        return found[0];
    }

  private:
    struct Column {
        ColumnType type = kInt64;
        uint64_t count = 0;
        std::vector<uint64_t> bytes;
    };

    template <class T>
    Span<T> get(const std::string& name, ColumnType type) const {
        auto found = columns_.find(name);
        if (found == columns_.end()) throw BadScenario(name + ": the scenario lacks this column");
        if (found->second.type != type) throw BadScenario(name + ": the column has another type");
        return {reinterpret_cast<const T*>(found->second.bytes.data()), found->second.count};
    }

    std::map<std::string, Column> columns_;
};

inline void write_column(FILE* to, const char* name, ColumnType type, const void* data, size_t count) {
    struct {
        char name[kNameBytes];
        uint64_t type, count;
    } head = {{}, type, count};
    strncpy(head.name, name, kNameBytes - 1);
    fwrite(&head, sizeof head, 1, to);
    size_t bytes = count * (type == kInt32 ? 4 : 8);
    fwrite(data, 1, bytes, to);
    const char zeros[8] = {};
    fwrite(zeros, 1, (8 - bytes % 8) % 8, to);
}
