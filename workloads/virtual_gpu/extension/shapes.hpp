// The shapes of operators' results, remembered by those of their arguments. torch's own Meta kernels
// are Python for most operators, 10 to 1,000 us a call; a look-up here is 2 us.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory.hpp"
#include "settings.hpp"

namespace groundwire {

inline int64_t limit_of(c10::ScalarType type) {
  return at::isIntegralType(type, true) ? settings.integer_elements : settings.float_elements;
}

struct Shape {
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  caffe2::TypeMeta type;
  int argument = -1;  // the argument that the result is
  int storage = -1;   // the argument's storage that it views
  int made = -1;      // else the number of its new storage
  size_t bytes = 0;   // of that
};

struct Shapes {
  std::vector<Shape> results;
  std::vector<int> lists;  // -1 a tensor, n a list of n
};

// The key of the shapes of the results, taken in one pass over the arguments.
struct Look {
  std::string key;
  bool complete = true;
  bool floats = false;  // whether a float may tell a size, as arange's
  int device = -1;
  std::vector<c10::StorageImpl*> storages;
  std::vector<at::Tensor> tensors;

  template <class T>
  void add(T value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class List>
  void add_list(char mark, const List& list) {
    add(mark);
    add(int(list.size()));
    for (auto value : list) add(value);
  }
  void add_tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return add('u');
    if (!tensor.is_cuda()) {
      if (tensor.dim()) complete = false;
      add('c');
      add(tensor.scalar_type());
      return add(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    }
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    size_t at = 0;
    while (at < storages.size() && storages[at] != storage) at++;
    if (at == storages.size()) storages.push_back(storage);
    if (device < 0) device = tensor.get_device();
    add('t');
    add(tensor.scalar_type());
    add(int(at));
    add(storage->nbytes());
    add(tensor.storage_offset());
    add(tensor.is_conj());
    add(tensor.is_neg());
    add_list('z', tensor.sizes());
    add_list('z', tensor.strides());
    tensors.push_back(tensor);
  }
  void add_value(const c10::IValue& value) {
    if (value.isTensor()) return add_tensor(value.toTensor());
    if (value.isNone()) return add('n');
    if (value.isInt()) return add('i'), add(value.toInt());
    if (value.isBool()) return add('b'), add(value.toBool());
    if (value.isDouble()) {
      add('d');
      if (floats) add(value.toDouble());
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      add('L');
      add(int(list.size()));
      for (auto& tensor : list) add_tensor(tensor);
    } else if (value.isIntList()) {
      add_list('I', value.toIntVector());
    } else if (value.isDoubleList()) {
      if (floats)
        add_list('D', value.toDoubleVector());
      else
        add('D'), add(int(value.toDoubleVector().size()));
    } else if (value.isString()) {
      add('s');
      key += value.toStringRef();
      add('\0');
    } else if (value.isBoolList()) {
      add('B');
      for (bool each : value.toBoolList()) add(each);
      add('.');
    } else if (value.isDevice()) {
      auto place = value.toDevice();
      add('p');
      add(int(place.type()));
      if (place.is_cuda() && device < 0)
        device = place.index() < 0 ? current_device() : place.index();
    } else if (value.isOptionalTensorList()) {
      add('O');
      for (auto&& tensor : value.toOptionalTensorVector())
        add_tensor(tensor ? *tensor : at::Tensor());
      add('.');
    } else if (value.isList()) {
      add('l');
      add(int(value.toListRef().size()));
      for (auto& each : value.toListRef()) add_value(each);
    } else if (value.isGenerator()) {
      add('g');
    } else {
      complete = false;
    }
  }
};

class ShapeCache {
 public:
  const Shapes* find(const Look& look) {  // entries are never moved or dropped
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = known_.find(look.key);
    return found == known_.end() ? nullptr : &found->second;
  }

  void learn(const Look& look, const torch::jit::Stack& stack, size_t first) {
    Shapes shapes;
    std::vector<c10::StorageImpl*> made;
    bool complete = true;
    auto add = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_cuda() || tensor.is_conj() || tensor.is_neg()) {
        complete = false;
        return;
      }
      Shape shape{tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(),
                  tensor.dtype()};
      for (size_t i = 0; i < look.tensors.size(); i++)
        if (look.tensors[i].is_same(tensor)) shape.argument = i;
      auto* storage = tensor.storage().unsafeGetStorageImpl();
      for (size_t i = 0; i < look.storages.size(); i++)
        if (look.storages[i] == storage) shape.storage = i;
      if (shape.storage < 0) {
        size_t at = 0;
        while (at < made.size() && made[at] != storage) at++;
        if (at == made.size()) made.push_back(storage);
        shape.made = at;
        shape.bytes = storage->nbytes();
      }
      shapes.results.push_back(shape);
    };
    for (size_t i = first; i < stack.size(); i++) {
      if (stack[i].isTensor()) {
        shapes.lists.push_back(-1);
        add(stack[i].toTensor());
      } else if (stack[i].isTensorList()) {
        auto list = stack[i].toTensorVector();
        shapes.lists.push_back(list.size());
        for (auto& tensor : list) add(tensor);
      } else {
        complete = false;
      }
    }
    if (!complete) return;
    std::lock_guard<std::mutex> guard(mutex_);
    known_.emplace(look.key, std::move(shapes));
  }

  // Puts results of these shapes, without contents, on the stack.
  static void give(const Shapes& shapes, const Look& look, torch::jit::Stack& stack) {
    std::vector<c10::Storage> made;
    size_t at = 0;
    auto next = [&]() -> at::Tensor {
      const Shape& shape = shapes.results[at++];
      if (shape.argument >= 0) return look.tensors[shape.argument];
      c10::Storage storage;
      if (shape.storage >= 0) {
        storage = c10::Storage(
            c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(look.storages[shape.storage]));
      } else {
        if (shape.made == int(made.size())) {
          int device = look.device < 0 ? current_device() : look.device;
          made.emplace_back(c10::Storage::use_byte_size_t(), shape.bytes,
                            take_memory(device, shape.bytes, false), device_allocator(), true);
        }
        storage = made[shape.made];
      }
      auto tensor = at::detail::make_tensor<c10::TensorImpl>(
          std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), shape.type);
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides,
                                                          shape.offset);
      return tensor;
    };
    for (int count : shapes.lists) {
      if (count < 0) {
        stack.push_back(next());
        continue;
      }
      std::vector<at::Tensor> list;
      for (int i = 0; i < count; i++) list.push_back(next());
      stack.push_back(list);
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, Shapes> known_;
};

}  // namespace groundwire
