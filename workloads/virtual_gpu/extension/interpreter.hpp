// Python's lock. Threads that run programs of collectives are Python's, so the host must not keep it while it waits
// for them, or sleeps.
#pragma once
#include <Python.h>

namespace groundwire {

class LetGo {  // of the lock, if this thread has it
 public:
  LetGo() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~LetGo() {
    if (state_) PyEval_RestoreThread(state_);
  }
  LetGo(const LetGo&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace groundwire
