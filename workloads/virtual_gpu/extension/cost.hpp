// How long an operator's kernel takes.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <map>
#include <string>
#include <vector>

namespace groundwire {

using Values = c10::ArrayRef<c10::IValue>;

// Launches the kernel of an operator on the current stream of a device, unless it has none: a view,
// an allocation.
void charge_operator(const c10::FunctionSchema& schema, Values arguments, Values results, int device);

// A kernel that is no operator's, such as one of Triton: by the table, or by the memory that its tensors
// take, once read and once written. The tensors that it writes have no contents then.
void charge_foreign(const std::string& name, const std::vector<at::Tensor>& read,
                    const std::vector<at::Tensor>& written);

// A copy between the host and the device. Returns when the host may go on.
void charge_link(int device, int64_t bytes, bool to_host, bool host_waits);

// Times of a table: by operator and shapes, and by data types too where these are given.
void add_time(const std::string& name, const std::vector<std::vector<int64_t>>& shapes,
              const std::string& types, int64_t ns);
std::map<std::string, int64_t> not_in_table();  // what was said of it -> how often

void set_optimizing(bool optimizing);

// Indices of embeddings that backward passes have come to since the last call, by the number of rows.
std::map<int64_t, int64_t> take_lookups();

}  // namespace groundwire
