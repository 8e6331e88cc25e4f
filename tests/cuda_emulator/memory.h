// Device memory: a separate mapping that the host cannot read or write, except while kernels run.
//
// New memory is filled with bytes 0xFF, which is NaN in every floating-point type, and so is released memory. Behind
// each allocation there are 256 bytes that no code may change. Both are checked when a block is released or used again.
#pragma once

#include <cstddef>
#include <string>

namespace cuda_emulator {

// Bytes of the device: LMX_EMULATED_MEMORY, or 8 GiB.
size_t memory_bytes();
size_t free_bytes();

// 256-byte aligned. Null if the device has no block of that size left.
void* allocate(size_t bytes);
// Fault: not the begin of an allocation, or bytes behind it were changed.
void release(void* block);

// Whether this is an address of the device, allocated or not.
bool on_device(const void* address);
// Fault, if bytes [address, address + bytes) of the device are not inside one allocation.
void check_range(const char* call, const void* address, size_t bytes);
// "byte 16 of allocation 3, which has 4096 bytes"; "" if this is no address of the device.
std::string describe_address(const void* address);
// Fault, if the bytes behind any allocation were changed.
void check_guards();

// While one exists, device memory is accessible. They may be nested.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// Page-locked memory of the host, also filled with 0xFF.
void* allocate_pinned(size_t bytes);
bool release_pinned(void* block);  // false: not the begin of an allocation
bool pinned(const void* address);

// Whether this is an address in memory of this process that is neither the device's nor page-locked.
bool of_host_alone(const void* address);

}  // namespace cuda_emulator
