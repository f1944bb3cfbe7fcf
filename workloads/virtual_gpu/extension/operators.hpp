#pragma once
#include <map>
#include <string>
#include <vector>

namespace groundwire {

// Takes over the operators that a GPU runs as one kernel and that torch would otherwise take apart.
void take_over(std::vector<std::string> names);

// operator -> how often it asked for contents that a tensor does not have.
struct Told {
  std::map<std::string, int64_t> read;      // zeros in their place
  std::map<std::string, int64_t> invented;  // valid indices in their place
  std::map<std::string, int64_t> unshaped;  // computed from zeros, as only its contents tell its shape
};
Told told();

}  // namespace groundwire
