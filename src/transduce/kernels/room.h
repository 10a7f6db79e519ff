// Room that is kept from use to use, and grows where it must.
#pragma once
#include <cstdint>
#include <vector>

namespace transduce {

// Numbers that are written before they are read.
template <typename T>
inline T* at_least(std::vector<T>& room, std::int64_t size) {
  if (static_cast<std::int64_t>(room.size()) < size) room.resize(size);
  return room.data();
}

}  // namespace transduce
