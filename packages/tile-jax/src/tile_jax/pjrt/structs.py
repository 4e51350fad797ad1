"""The structures of the PJRT C API, as a table of their fields.

Every structure of arguments begins with `struct_size` and `extension_start`. The other fields are eight bytes (a
pointer, a size or an int64) unless the table says otherwise; pointers are plain integers here, 0 for null.
"""

from __future__ import annotations

import ctypes
from typing import Any

MAJOR, MINOR = 0, 60
"""The version that is reported. Callers take what came later for absent then: handles of memories and errors that are
objects with tables of functions, for one."""

_KINDS: dict[str, Any] = {"": ctypes.c_uint64, "i": ctypes.c_int32, "q": ctypes.c_int64, "b": ctypes.c_bool, "f": ctypes.c_float}  # fmt: skip

_TABLE = """
Error_Destroy: error
Error_Message: error message message_size
Error_GetCode: error code/i
Error_ForEachPayload: error visitor user_arg
Plugin_Initialize:
Plugin_Attributes: attributes num_attributes
Event_Destroy: event
Event_IsReady: event is_ready/b
Event_Error: event
Event_Await: event
Event_OnReady: event callback user_arg
Client_Create: create_options num_options kv_get_callback kv_get_user_arg kv_put_callback kv_put_user_arg client
Client_Destroy: client
Client_PlatformName: client platform_name platform_name_size
Client_PlatformVersion: client platform_version platform_version_size
Client_ProcessIndex: client process_index/i
Client_Devices: client devices num_devices
Client_AddressableDevices: client addressable_devices num_addressable_devices
Client_AddressableMemories: client addressable_memories num_addressable_memories
Client_LookupDevice: client id/i device
Client_LookupAddressableDevice: client local_hardware_id/i addressable_device
Client_DefaultDeviceAssignment: client num_replicas/i num_partitions/i default_assignment_size default_assignment
Client_TopologyDescription: client topology
Client_Compile: client program compile_options compile_options_size executable
Client_BufferFromHostBuffer: client data type/i dims num_dims byte_strides num_byte_strides host_buffer_semantics/i device memory device_layout done_with_host_buffer buffer
Client_CreateUninitializedBuffer: client shape_dims shape_num_dims shape_element_type/i shape_layout device memory buffer
TopologyDescription_Destroy: topology
TopologyDescription_PlatformName: topology platform_name platform_name_size
TopologyDescription_PlatformVersion: topology platform_version platform_version_size
TopologyDescription_GetDeviceDescriptions: topology descriptions num_descriptions
TopologyDescription_Attributes: topology attributes num_attributes
DeviceDescription_Id: device_description id/i
DeviceDescription_ProcessIndex: device_description process_index/i
DeviceDescription_Attributes: device_description num_attributes attributes
DeviceDescription_Kind: device_description device_kind device_kind_size
DeviceDescription_DebugString: device_description debug_string debug_string_size
DeviceDescription_ToString: device_description to_string to_string_size
Device_GetDescription: device device_description
Device_IsAddressable: device is_addressable/b
Device_LocalHardwareId: device local_hardware_id/i
Device_AddressableMemories: device memories num_memories
Device_DefaultMemory: device memory
Device_GetAttributes: device attributes num_attributes device_attributes attributes_deleter
Device_MemoryStats: device bytes_in_use/q peak_bytes_in_use/q peak_bytes_in_use_is_set/b num_allocs/q num_allocs_is_set/b largest_alloc_size/q largest_alloc_size_is_set/b bytes_limit/q bytes_limit_is_set/b bytes_reserved/q bytes_reserved_is_set/b peak_bytes_reserved/q peak_bytes_reserved_is_set/b bytes_reservable_limit/q bytes_reservable_limit_is_set/b largest_free_block_bytes/q largest_free_block_bytes_is_set/b pool_bytes/q pool_bytes_is_set/b peak_pool_bytes/q peak_pool_bytes_is_set/b
Memory_Id: memory id/i
Memory_Kind: memory kind kind_size
Memory_Kind_Id: memory kind_id/i
Memory_DebugString: memory debug_string debug_string_size
Memory_ToString: memory to_string to_string_size
Memory_AddressableByDevices: memory devices num_devices
Executable_Destroy: executable
Executable_Name: executable executable_name executable_name_size
Executable_NumReplicas: executable num_replicas
Executable_NumPartitions: executable num_partitions
Executable_NumOutputs: executable num_outputs
Executable_SizeOfGeneratedCodeInBytes: executable size_in_bytes/q
Executable_GetCostAnalysis: executable num_properties properties
Executable_GetCompiledMemoryStats: executable generated_code_size_in_bytes/q argument_size_in_bytes/q output_size_in_bytes/q alias_size_in_bytes/q temp_size_in_bytes/q host_generated_code_size_in_bytes/q host_argument_size_in_bytes/q host_output_size_in_bytes/q host_alias_size_in_bytes/q host_temp_size_in_bytes/q
Executable_OutputMemoryKinds: executable num_outputs memory_kinds memory_kind_sizes
Executable_OutputElementTypes: executable output_types num_output_types
Executable_OutputDimensions: executable num_outputs dims dim_sizes
Executable_OptimizedProgram: executable program
Executable_Fingerprint: executable executable_fingerprint executable_fingerprint_size
Executable_Serialize: executable serialized_bytes serialized_bytes_size serialized_executable serialized_executable_deleter
Executable_DeserializeAndLoad: client serialized_executable serialized_executable_size loaded_executable
LoadedExecutable_Destroy: executable
LoadedExecutable_GetExecutable: loaded_executable executable
LoadedExecutable_AddressableDevices: executable addressable_devices num_addressable_devices
LoadedExecutable_Delete: executable
LoadedExecutable_IsDeleted: executable is_deleted/b
LoadedExecutable_Fingerprint: executable executable_fingerprint executable_fingerprint_size
LoadedExecutable_Execute: executable options argument_lists num_devices num_args output_lists device_complete_events execute_device
Buffer_Destroy: buffer
Buffer_ElementType: buffer type/i
Buffer_Dimensions: buffer dims num_dims
Buffer_UnpaddedDimensions: buffer unpadded_dims num_dims
Buffer_DynamicDimensionIndices: buffer dynamic_dim_indices num_dynamic_dims
Buffer_OnDeviceSizeInBytes: buffer on_device_size_in_bytes
Buffer_Device: buffer device
Buffer_Memory: buffer memory
Buffer_Delete: buffer
Buffer_IsDeleted: buffer is_deleted/b
Buffer_CopyToDevice: buffer dst_device dst_buffer
Buffer_CopyToMemory: buffer dst_memory dst_buffer
Buffer_CopyRawToHost: buffer dst offset/q transfer_size/q event
Buffer_ToHostBuffer: src host_layout dst dst_size event
Buffer_IsOnCpu: buffer is_on_cpu/b
Buffer_ReadyEvent: buffer event
Buffer_UnsafePointer: buffer buffer_pointer
Buffer_IncreaseExternalReferenceCount: buffer
Buffer_DecreaseExternalReferenceCount: buffer
Buffer_OpaqueDeviceMemoryDataPointer: buffer device_memory_ptr
Program: code code_size format format_size
NamedValue: name name_size type/i value value_size
MemoryLayout_Tiled: minor_to_major minor_to_major_size tile_dims tile_dim_sizes num_tiles
MemoryLayout_Strides: byte_strides num_byte_strides
ExecuteOptions: send_callbacks recv_callbacks num_send_ops num_recv_ops launch_id/i non_donatable_input_indices num_non_donatable_input_indices
"""


def _structure(line: str) -> type[ctypes.Structure]:
    name, _, fields = line.partition(":")
    parts = [field.partition("/") for field in ("struct_size", "extension_start", *fields.split())]
    return type(name, (ctypes.Structure,), {"_fields_": [(field, _KINDS[kind]) for field, _, kind in parts]})


STRUCTS: dict[str, Any] = {made.__name__: made for made in map(_structure, filter(None, _TABLE.splitlines()))}
"""By name, without the `PJRT_` before it and the `_Args` behind it."""


class MemoryLayout(ctypes.Structure):
    """The layout of an array: tiled, which is the only one that JAX asks for, or strides in the same place."""

    _fields_ = (
        ("struct_size", ctypes.c_uint64),
        ("extension_start", ctypes.c_uint64),
        ("tiled", STRUCTS["MemoryLayout_Tiled"]),
        ("type", ctypes.c_int32),
    )


class GetMemoryLayout(ctypes.Structure):
    """The arguments of Buffer_GetMemoryLayout, which hold a layout."""

    _fields_ = (
        ("struct_size", ctypes.c_uint64),
        ("extension_start", ctypes.c_uint64),
        ("buffer", ctypes.c_uint64),
        ("layout", MemoryLayout),
    )


STRUCTS["Buffer_GetMemoryLayout"] = GetMemoryLayout

_LISTED = """
Error_Destroy Error_Message Error_GetCode Plugin_Initialize Plugin_Attributes Event_Destroy Event_IsReady Event_Error
Event_Await Event_OnReady Client_Create Client_Destroy Client_PlatformName Client_ProcessIndex Client_PlatformVersion
Client_Devices Client_AddressableDevices Client_LookupDevice Client_LookupAddressableDevice Client_AddressableMemories
Client_Compile Client_DefaultDeviceAssignment Client_BufferFromHostBuffer DeviceDescription_Id
DeviceDescription_ProcessIndex DeviceDescription_Attributes DeviceDescription_Kind DeviceDescription_DebugString
DeviceDescription_ToString Device_GetDescription Device_IsAddressable Device_LocalHardwareId Device_AddressableMemories
Device_DefaultMemory Device_MemoryStats Memory_Id Memory_Kind Memory_DebugString Memory_ToString
Memory_AddressableByDevices Executable_Destroy Executable_Name Executable_NumReplicas Executable_NumPartitions
Executable_NumOutputs Executable_SizeOfGeneratedCodeInBytes Executable_GetCostAnalysis Executable_OutputMemoryKinds
Executable_OptimizedProgram Executable_Serialize LoadedExecutable_Destroy LoadedExecutable_GetExecutable
LoadedExecutable_AddressableDevices LoadedExecutable_Delete LoadedExecutable_IsDeleted LoadedExecutable_Execute
Executable_DeserializeAndLoad LoadedExecutable_Fingerprint Buffer_Destroy Buffer_ElementType Buffer_Dimensions
Buffer_UnpaddedDimensions Buffer_DynamicDimensionIndices Buffer_GetMemoryLayout Buffer_OnDeviceSizeInBytes Buffer_Device
Buffer_Memory Buffer_Delete Buffer_IsDeleted Buffer_CopyToDevice Buffer_ToHostBuffer Buffer_IsOnCpu Buffer_ReadyEvent
Buffer_UnsafePointer Buffer_IncreaseExternalReferenceCount Buffer_DecreaseExternalReferenceCount
Buffer_OpaqueDeviceMemoryDataPointer CopyToDeviceStream_Destroy CopyToDeviceStream_AddChunk
CopyToDeviceStream_TotalBytes CopyToDeviceStream_GranuleSize CopyToDeviceStream_CurrentBytes TopologyDescription_Create
TopologyDescription_Destroy TopologyDescription_PlatformName TopologyDescription_PlatformVersion
TopologyDescription_GetDeviceDescriptions TopologyDescription_Serialize TopologyDescription_Attributes Compile
Executable_OutputElementTypes Executable_OutputDimensions Buffer_CopyToMemory Client_CreateViewOfDeviceBuffer
Executable_Fingerprint Client_TopologyDescription Executable_GetCompiledMemoryStats Memory_Kind_Id ExecuteContext_Create
ExecuteContext_Destroy Buffer_CopyRawToHost AsyncHostToDeviceTransferManager_Destroy
AsyncHostToDeviceTransferManager_TransferData Client_CreateBuffersForAsyncHostToDevice
AsyncHostToDeviceTransferManager_RetrieveBuffer AsyncHostToDeviceTransferManager_Device
AsyncHostToDeviceTransferManager_BufferCount AsyncHostToDeviceTransferManager_BufferSize
AsyncHostToDeviceTransferManager_SetBufferError AsyncHostToDeviceTransferManager_AddMetadata Client_DmaMap
Client_DmaUnmap Client_CreateUninitializedBuffer Client_UpdateGlobalProcessInfo TopologyDescription_Deserialize
Client_CreateAliasBuffer Client_FulfillAliasBuffer LoadedExecutable_GetDeviceAssignment Client_CreateErrorBuffer
AsyncHostToDeviceTransferManager_TransferLiteral Buffer_CopyRawToHostFuture Device_PoisonExecution
Device_CreateAsyncTrackingEvent AsyncTrackingEvent_Destroy Executable_GetCompileOptions
Buffer_DonateWithControlDependency Event_Create Event_Set Device_GetAttributes Client_Load
LoadedExecutable_AddressableDeviceLogicalIds Buffer_Bitcast Error_ForEachPayload TopologyDescription_Fingerprint
Executable_ParameterMemoryKinds Device_ClearMemoryStats TopologyDescription_MakeCanonicalShapeForMemorySpace
TopologyDescription_GetMemorySpaceKindIds
"""
SLOTS = tuple(_LISTED.split())
"""The functions of the API, in the order of its table."""
