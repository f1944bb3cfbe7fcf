// The differences between the versions of torch that virtual GPUs have, 2.6 and later: here what is
// asked of torch's types, which tell themselves what they have. Methods that older versions do not
// ask for are without `override` where they stand.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <string>
#include <type_traits>
#include <vector>

namespace groundwire {

// Whether a call is on its group's own stream. Before 2.8 all are whose options do not say.
template <class CallOptions>
bool is_asynchronous(const CallOptions& given) {
  if constexpr (requires { given.asyncOp; })
    return given.asyncOp;
  else
    return true;
}

template <class Group>
void set_timeout(Group& group, std::chrono::milliseconds timeout) {
  if constexpr (requires { group.setTimeout(timeout); }) group.setTimeout(timeout);
}

struct NamesOfGroup {
  std::string group_name;
  std::vector<uint64_t> global_ranks_in_group;
};
struct NoNames {};

template <class Options>
constexpr bool names_groups = requires(Options given) { given.global_ranks_in_group; };

// Before 2.8 a group's name and ranks are NCCL's options, and not those of all backends.
using GroupOptions = c10d::Backend::Options;
using OwnNames = std::conditional_t<names_groups<GroupOptions>, NoNames, NamesOfGroup>;

template <class Options, class Given>
void take_names(Options& own, const Given& given) {
  if constexpr (names_groups<Given>) {
    own.group_name = given.group_name;
    own.global_ranks_in_group = given.global_ranks_in_group;
  }
}

// Options of NCCL in Python; later torch's own class has the two already.
template <class Options, class Bound>
void bind_names(Bound& bound) {
  if constexpr (!names_groups<GroupOptions>)
    bound.def_readwrite("group_name", &Options::group_name)
        .def_readwrite("global_ranks_in_group", &Options::global_ranks_in_group);
}

}  // namespace groundwire
